#include "planner/cli/advise/measured_run.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/ratio/ratio.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/active_strategies.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMeasuredFormat = 1;
constexpr uint64_t kIterationsABatch = 4;

std::string MeasuredFile(const std::string& run_dir) { return absl::StrCat(run_dir, "/measured.json"); }

double MeanMs(const MeasuredRun& run, int64_t IterationTimes::*field) {
  int64_t sum = 0;
  for (const IterationTimes& iteration : run.iterations) sum += iteration.*field;
  return Ratio(Milliseconds(sum), static_cast<double>(run.iterations.size()));
}

absl::StatusOr<Json> MessageToJson(const google::protobuf::Message& message) {
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

bool JsonToMessage(const Json& json, google::protobuf::Message& message) {
  return google::protobuf::util::JsonStringToMessage(json.dump(), &message).ok();
}

bool ReadInteger(const Json& object, const char* key, int64_t& value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return false;
  value = found->get<int64_t>();
  return true;
}

bool ReadIterations(const Json& list, std::vector<IterationTimes>& iterations) {
  if (!list.is_array()) return false;
  for (const Json& object : list) {
    IterationTimes times;
    int64_t number = 0;
    const bool whole = object.is_object() && ReadInteger(object, "iteration", number) &&
                       ReadInteger(object, "planned_ns", times.planned_ns) &&
                       ReadInteger(object, "measured_ns", times.measured_ns) &&
                       ReadInteger(object, "waited_ns", times.waited_ns);
    if (!whole || number < 0) return false;
    times.iteration = static_cast<uint64_t>(number);
    iterations.push_back(times);
  }
  return true;
}

bool ReadBatches(const Json& list, std::vector<v1::Batch>& batches) {
  if (!list.is_array() || list.empty()) return false;
  return std::ranges::all_of(list,
                             [&](const Json& batch) { return JsonToMessage(batch, batches.emplace_back()); });
}

std::optional<MeasuredRun> FromJson(const Json& json) {
  MeasuredRun run;
  const bool whole = json.is_object() && json.value("format", 0) == kMeasuredFormat && json.contains("job") &&
                     JsonToMessage(json["job"], run.job) &&
                     ReadBatches(json.value("batches", Json()), run.batches) &&
                     ReadIterations(json.value("iterations", Json()), run.iterations);
  if (!whole) return std::nullopt;
  run.fitted = json.contains("fitted") && json["fitted"] == true;
  if (json.contains("start_seconds") && json["start_seconds"].is_number())
    run.start_seconds = json["start_seconds"].get<double>();
  return run;
}

// Of the planner's summaries, the last so many.
std::vector<IterationTimes> LastTimes(const v1::GetJobResponse& job, uint64_t count) {
  std::vector<IterationTimes> times;
  const auto& all = job.iterations();
  const int first = std::max(0, all.size() - static_cast<int>(count));
  for (int i = first; i < all.size(); ++i) {
    times.push_back({.iteration = all[i].iteration(),
                     .planned_ns = all[i].predicted_ns(),
                     .measured_ns = all[i].measured_ns(),
                     .waited_ns = all[i].waited_for_program_ns()});
  }
  return times;
}

}  // namespace

double MeanMeasuredMs(const MeasuredRun& run) { return MeanMs(run, &IterationTimes::measured_ns); }
double MeanPlannedMs(const MeasuredRun& run) { return MeanMs(run, &IterationTimes::planned_ns); }
double MeanWaitedMs(const MeasuredRun& run) { return MeanMs(run, &IterationTimes::waited_ns); }

absl::StatusOr<MeasuredRun> MeasuredRunOf(PlannerClient& client, const std::string& job_id,
                                          uint64_t batches) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(request));
  const std::optional<ActiveStrategies> active = AskForStrategies(client, job.job());
  MeasuredRun run = {.job = active.has_value() ? OnStrategies(job.job(), *active) : job.job(),
                     .iterations = LastTimes(job, kIterationsABatch * batches)};
  const uint64_t completed = job.status().completed_iteration();
  for (uint64_t i = completed - std::min(completed, batches); i < completed; ++i) {
    v1::GetIterationRequest wanted;
    wanted.set_job_id(job_id);
    wanted.set_iteration(i);
    const absl::StatusOr<v1::GetIterationResponse> iteration = client.GetIteration(wanted);
    if (absl::IsOutOfRange(iteration.status())) continue;
    PENSTOCK_RETURN_IF_ERROR(iteration.status());
    run.batches.push_back(iteration->batch());
    if (!iteration->has_profile()) continue;
    *run.job.mutable_profile() = iteration->profile();
    run.fitted = true;
  }
  if (!run.batches.empty()) return run;
  return absl::NotFoundError(absl::StrCat("job ", job_id, " has ", completed,
                                          " iterations that are done, of which the planner holds none"));
}

absl::StatusOr<MeasuredRun> ReadMeasuredRun(const std::string& run_dir) {
  const std::string file = MeasuredFile(run_dir);
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        "'", run_dir,
        "' has no measured.json: it is no run of penstock up, or one without an iteration that was done"));
  }
  PENSTOCK_RETURN_IF_ERROR(text.status());
  const std::optional<MeasuredRun> run = FromJson(Json::parse(*text, nullptr, /*allow_exceptions=*/false));
  if (run.has_value()) return *run;
  return absl::InvalidArgumentError(absl::StrCat("'", file, "' does not say what a run does"));
}

absl::Status WriteMeasuredRun(const std::string& run_dir, const MeasuredRun& run) {
  Json json = {{"format", kMeasuredFormat}, {"fitted", run.fitted}};
  if (run.start_seconds.has_value()) json["start_seconds"] = *run.start_seconds;
  json["iterations"] = Json::array();
  for (const IterationTimes& times : run.iterations) {
    json["iterations"].push_back({{"iteration", times.iteration},
                                  {"planned_ns", times.planned_ns},
                                  {"measured_ns", times.measured_ns},
                                  {"waited_ns", times.waited_ns}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(json["job"], MessageToJson(run.job));
  json["batches"] = Json::array();
  for (const v1::Batch& batch : run.batches) {
    PENSTOCK_ASSIGN_OR_RETURN(Json as_json, MessageToJson(batch));
    json["batches"].push_back(std::move(as_json));
  }
  return WriteFileAtomically(MeasuredFile(run_dir), json.dump() + "\n");
}

}  // namespace penstock::cli
