#include "planner/service/page/job_view.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/service/page/history.h"

namespace penstock {
namespace {

constexpr size_t kLastIterations = 12;
// A chart is a few hundred pixels wide.
constexpr size_t kHistoryPoints = 240;

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails for Any of unknown types alone.
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "{}";
  return json;
}

// Without profile, and without typical samples.
v1::JobSpec Shown(const v1::JobSpec& spec) {
  v1::JobSpec shown;
  shown.set_job_id(spec.job_id());
  shown.set_owner(spec.owner());
  *shown.mutable_model() = spec.model();
  *shown.mutable_mesh() = spec.mesh();
  *shown.mutable_strategies() = spec.strategies();
  *shown.mutable_tasks() = spec.tasks();
  shown.mutable_planning()->set_policy(spec.planning().policy());
  shown.mutable_training()->set_iterations(spec.training().iterations());
  shown.set_look_ahead_window(spec.look_ahead_window());
  shown.set_heartbeat_timeout_ms(spec.heartbeat_timeout_ms());
  return shown;
}

}  // namespace

std::string JobsAsJson(const PlannerEngine& engine) {
  v1::ListJobsResponse response;
  for (const auto& job : engine.Jobs()) {
    *response.add_jobs() = job->Status();
    response.mutable_jobs()->rbegin()->clear_workers();
  }
  return ToJson(response);
}

std::string JobAsJson(const Job& job) {
  const std::vector<v1::IterationSummary> iterations = job.Summaries(0);
  v1::GetJobResponse response;
  *response.mutable_status() = job.Status();
  *response.mutable_job() = Shown(job.spec());
  const size_t last = std::min(iterations.size(), kLastIterations);
  response.mutable_iterations()->Add(iterations.end() - static_cast<int64_t>(last), iterations.end());
  return absl::StrCat("{\"job\":", ToJson(response),
                      ",\"history\":", HistoryAsJson(iterations, kHistoryPoints).dump(), "}");
}

}  // namespace penstock
