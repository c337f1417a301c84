#include "planner/service/page/page.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/grpc/targets.h"
#include "common/hash/sha256.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/service/page/assets.h"
#include "planner/service/page/iteration_view.h"
#include "planner/service/page/job_view.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNotModified = 304;
constexpr int kBadRequest = 400;
constexpr int kNotFound = 404;
constexpr int kInternalError = 500;
constexpr int kUnavailable = 503;

constexpr char kJson[] = "application/json; charset=utf-8";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return kBadRequest;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return kNotFound;
    case absl::StatusCode::kUnavailable:
      return kUnavailable;
    default:
      return kInternalError;
  }
}

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

HttpAnswer DataAnswer(const absl::StatusOr<std::string>& json) {
  return {.status = HttpStatusOf(json.status()),
          .content_type = kJson,
          .body = json.ok() ? *json : Dump({{"error", std::string(json.status().message())}}),
          .headers = {{"Cache-Control", "no-store"}}};
}

absl::StatusOr<std::shared_ptr<Job>> FindJob(const PlannerEngine& engine, const HttpRequest& request,
                                             const std::string& parameter) {
  const std::optional<std::string> id = request.Parameter(parameter);
  if (!id.has_value()) return absl::InvalidArgumentError(absl::StrCat(parameter, ": name a job"));
  return engine.FindJob(*id);
}

// Nothing where it is not given.
template <typename Number>
absl::StatusOr<std::optional<Number>> NumberIn(const HttpRequest& request, const std::string& parameter) {
  const std::optional<std::string> text = request.Parameter(parameter);
  if (!text.has_value()) return std::optional<Number>();
  Number number = 0;
  if (absl::SimpleAtoi(*text, &number)) return std::optional<Number>(number);
  return absl::InvalidArgumentError(absl::StrCat(parameter, ": '", *text, "' is no number"));
}

absl::StatusOr<std::string> IterationData(const PlannerEngine& engine, const HttpRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(engine, request, "job"));
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<uint64_t> iteration,
                            NumberIn<uint64_t>(request, "iteration"));
  if (!iteration.has_value()) return absl::InvalidArgumentError("iteration: name one");
  IterationViewOptions options;
  PENSTOCK_ASSIGN_OR_RETURN(options.replica, NumberIn<uint32_t>(request, "replica"));
  PENSTOCK_ASSIGN_OR_RETURN(const HeldIteration held, job->Held(*iteration));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, held.plan->Plan());
  return Dump(IterationAsJson(held, plan, options));
}

absl::StatusOr<std::string> Data(const EngineSlot& engines, absl::string_view what,
                                 const HttpRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(const EnginePtr engine, engines.ForJobs());
  if (what == "jobs") return JobsAsJson(*engine);
  if (what == "job") {
    PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(*engine, request, "id"));
    return JobAsJson(*job);
  }
  if (what == "iteration") return IterationData(*engine, request);
  return absl::NotFoundError("there is no such data: jobs, job and iteration are");
}

// Asked for again with each visit, and sent only where it has changed (with another version of the planner).
HttpAnswer AssetAnswer(const Asset& asset, const std::string& known_tag) {
  const std::string tag = absl::StrCat("\"", absl::BytesToHexString(Sha256(asset.text)).substr(0, 16), "\"");
  const bool known = tag == known_tag;
  return {.status = known ? kNotModified : 200,
          .content_type = std::string(asset.content_type),
          .body = known ? "" : std::string(asset.text),
          .headers = {{"Cache-Control", "no-cache"},
                      {"ETag", tag},
                      {"Content-Security-Policy", kPolicy},
                      {"Referrer-Policy", "no-referrer"}}};
}

HttpAnswer AnswerPath(const EngineSlot& engines, const HttpRequest& request) {
  absl::string_view path = request.path;
  if (absl::ConsumePrefix(&path, "/data/")) return DataAnswer(Data(engines, path, request));
  for (const Asset& asset : Assets())
    if (request.path == asset.path) return AssetAnswer(asset, request.known_tag);
  return HttpAnswer::Error(kNotFound, "there is no such page: / is");
}

}  // namespace

HttpAnswer AnswerPage(const EngineSlot& engines, const HttpRequest& request) {
  HttpAnswer answer = AnswerPath(engines, request);
  answer.headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  return answer;
}

absl::StatusOr<std::unique_ptr<HttpServer>> ServePage(const PageOptions& options, const EngineSlot* engines) {
  const bool local = IsLoopback(options.listen);
  if (!local && !options.allow_anyone) {
    return absl::InvalidArgumentError(
        absl::StrCat("--page-listen: other machines reach '", options.listen,
                     "', and the page asks nobody who reads it: listen on 127.0.0.1 and go through ssh -L or "
                     "a proxy that asks "
                     "(docs/security.md), or take the risk with --page-allow-anyone"));
  }
  auto server =
      HttpServer::Start({.listen = options.listen, .local_names_only = local},
                        [engines](const HttpRequest& request) { return AnswerPage(*engines, request); });
  if (!server.ok()) return AnnotateError(server.status(), "--page-listen");
  return server;
}

}  // namespace penstock
