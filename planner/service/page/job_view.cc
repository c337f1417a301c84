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

// Without profile, and without typical samples; of its strategies those that iterations are planned on now.
v1::JobSpec Shown(const v1::JobSpec& spec, const StrategyChanges::Numbers& strategies) {
  v1::JobSpec shown;
  shown.set_job_id(spec.job_id());
  shown.set_owner(spec.owner());
  *shown.mutable_model() = spec.model();
  *shown.mutable_mesh() = spec.mesh();
  for (const uint32_t number : strategies)
    *shown.add_strategies() = spec.strategies(static_cast<int>(number));
  if (!shown.strategies().empty()) *shown.mutable_mesh() = shown.strategies(0).meshes(0).mesh();
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
    response.mutable_jobs()->rbegin()->clear_diagnosis();
  }
  return ToJson(response);
}

std::string JobAsJson(const Job& job) {
  const std::vector<v1::IterationSummary> iterations = job.Summaries(0);
  v1::GetJobResponse response;
  *response.mutable_status() = job.Status();
  // Before the specification, which only gets more of them.
  const StrategyChanges::Numbers strategies = job.StrategyNumbers();
  *response.mutable_job() = Shown(job.SpecNow(), strategies);
  const size_t last = std::min(iterations.size(), kLastIterations);
  response.mutable_iterations()->Add(iterations.end() - static_cast<int64_t>(last), iterations.end());
  for (int i = 0; i + 1 < response.iterations_size(); ++i)
    response.mutable_iterations(i)->clear_expert_layers();
  return absl::StrCat("{\"job\":", ToJson(response),
                      ",\"history\":", HistoryAsJson(iterations, kHistoryPoints).dump(), "}");
}

}  // namespace penstock
