#include "planner/cli/job_details.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"
#include "common/mesh/rank_places.h"
#include "planner/cli/dropped_rows.h"
#include "planner/cli/share_weights_flag.h"
#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::vector<std::pair<std::string, double>> TaskLossesOf(const v1::IterationSummary& iteration,
                                                         const v1::JobSpec& job) {
  std::vector<std::pair<std::string, double>> losses;
  for (const v1::TaskLoss& task : iteration.tasks()) {
    const auto index = static_cast<int>(task.task());
    if (task.weight() > 0 && index < job.tasks_size()) losses.emplace_back(job.tasks(index), task.loss());
  }
  return losses;
}

std::optional<RouterLosses> RouterLossesOf(const v1::IterationSummary& iteration) {
  const RouterLosses losses = {.balance = iteration.router_balance_loss(), .z = iteration.router_z_loss()};
  return losses.balance > 0 || losses.z > 0 ? std::optional(losses) : std::nullopt;
}

std::optional<double> DroppedExpertRowsOf(const v1::IterationSummary& iteration) {
  return iteration.routed_expert_rows() > 0 ? std::optional(DroppedShare(iteration)) : std::nullopt;
}

std::optional<std::pair<uint64_t, double>> LastValidationOf(const v1::GetJobResponse& response) {
  std::optional<std::pair<uint64_t, double>> last;
  for (const v1::IterationSummary& iteration : response.iterations())
    if (iteration.has_validation()) last = {iteration.iteration(), iteration.validation().loss()};
  return last;
}

OrderedJson MeshJson(const v1::Mesh& mesh) {
  return {{"pipeline", mesh.pipeline()},
          {"data", mesh.data()},
          {"context", ContextRanks(mesh)},
          {"tensor", TensorRanks(mesh)}};
}

OrderedJson StrategiesJson(const std::vector<v1::Strategy>& strategies) {
  OrderedJson names = OrderedJson::array();
  for (const v1::Strategy& strategy : strategies) names.push_back(StrategyName(strategy));
  return names;
}

OrderedJson TaskLossesJson(const JobDetails& details) {
  OrderedJson losses = OrderedJson::object();
  for (const auto& [task, loss] : details.task_losses) losses[task] = loss;
  return losses;
}

OrderedJson RouterLossesJson(const JobDetails& details) {
  if (!details.router_losses.has_value()) return nullptr;
  return {{"balance", details.router_losses->balance}, {"z", details.router_losses->z}};
}

OrderedJson LayerLoadsJson(const std::optional<LayerLoads>& loads) {
  if (!loads.has_value()) return nullptr;
  OrderedJson layers = OrderedJson::array();
  for (const LayerLoad& layer : loads->layers)
    layers.push_back({{"layer", layer.layer}, {"load", layer.load}});
  return {{"mean", loads->mean}, {"layers", layers}};
}

OrderedJson LayerLoadsJson(const JobDetails& details) {
  if (!details.rank_loads.has_value() && !details.expert_loads.has_value()) return nullptr;
  return {{"ranks", LayerLoadsJson(details.rank_loads)}, {"experts", LayerLoadsJson(details.expert_loads)}};
}

OrderedJson ValidationJson(const JobDetails& details) {
  if (!details.validation.has_value()) return nullptr;
  return {{"iteration", details.validation->first}, {"loss", details.validation->second}};
}

}  // namespace

JobDetails DetailsOf(const v1::GetJobResponse& response) {
  const auto& strategies = response.job().strategies();
  const auto& weights = response.job().planning().share_weights();
  JobDetails details = {.mesh = response.job().mesh(),
                        .strategies = {strategies.begin(), strategies.end()},
                        .share_weights = {weights.begin(), weights.end()}};
  if (!response.iterations().empty()) {
    const v1::IterationSummary& last = *response.iterations().rbegin();
    details.task_losses = TaskLossesOf(last, response.job());
    details.router_losses = RouterLossesOf(last);
    details.dropped_expert_rows = DroppedExpertRowsOf(last);
    details.rank_loads = RankLoads(last);
    details.expert_loads = ExpertLoads(last);
  }
  details.validation = LastValidationOf(response);
  return details;
}

std::string MeshesText(const JobDetails& details) {
  const std::vector<v1::Strategy>& strategies =
      details.active.has_value() ? details.active->strategies : details.strategies;
  const std::string meshes = strategies.empty() ? MeshName(details.mesh) : StrategyNames(strategies);
  return details.share_weights.empty()
             ? meshes
             : absl::StrCat(meshes, " (share weights ", ShareWeightsText(details.share_weights), ")");
}

uint64_t RankCount(const JobDetails& details) {
  return details.strategies.empty() ? RanksOf(details.mesh) : RanksOf(details.strategies.front());
}

std::string LossesText(const std::string& job, const JobDetails& details) {
  std::string text;
  if (!details.task_losses.empty()) {
    absl::StrAppend(&text, "\nlosses of job ", job, " in its last iteration: ",
                    absl::StrJoin(details.task_losses, ", ",
                                  [](std::string* out, const auto& task) {
                                    absl::StrAppendFormat(out, "%s %.4f", task.first, task.second);
                                  }),
                    "\n");
  }
  if (details.router_losses.has_value()) {
    absl::StrAppendFormat(&text,
                          "\nrouters of job %s in its last iteration: balance loss %.4g, z loss %.4g\n", job,
                          details.router_losses->balance, details.router_losses->z);
  }
  if (details.dropped_expert_rows.has_value()) {
    absl::StrAppendFormat(&text,
                          "\nexperts of job %s had no room for %.2f %% of the rows in its last iteration\n",
                          job, 100 * *details.dropped_expert_rows);
  }
  if (details.rank_loads.has_value())
    absl::StrAppend(&text, "\nfullest ranks that divide experts of job ", job,
                    " in its last iteration, over the mean: ", LayerLoadsText(*details.rank_loads), "\n");
  if (details.expert_loads.has_value())
    absl::StrAppend(&text, "\nfullest experts of job ", job,
                    " in its last iteration, over the mean: ", LayerLoadsText(*details.expert_loads), "\n");
  if (details.validation.has_value()) {
    absl::StrAppendFormat(&text, "\nvalidation of job %s: loss %.4f after iteration %d\n", job,
                          details.validation->second, details.validation->first);
  }
  return text;
}

nlohmann::ordered_json ToJson(const std::optional<JobDetails>& details) {
  if (!details.has_value()) {
    return {{"mesh", nullptr},          {"strategies", nullptr},          {"active_strategies", nullptr},
            {"active_from", nullptr},   {"share_weights", nullptr},       {"task_losses", nullptr},
            {"router_losses", nullptr}, {"dropped_expert_rows", nullptr}, {"layer_loads", nullptr},
            {"validation", nullptr}};
  }
  return {{"mesh", MeshJson(details->mesh)},
          {"strategies", StrategiesJson(details->strategies)},
          {"active_strategies",
           details->active.has_value() ? OrderedJson(details->active->numbers) : OrderedJson()},
          {"active_from",
           details->active.has_value() ? OrderedJson(details->active->from_iteration) : OrderedJson()},
          {"share_weights", details->share_weights},
          {"task_losses", TaskLossesJson(*details)},
          {"router_losses", RouterLossesJson(*details)},
          {"dropped_expert_rows",
           details->dropped_expert_rows.has_value() ? OrderedJson(*details->dropped_expert_rows) : nullptr},
          {"layer_loads", LayerLoadsJson(*details)},
          {"validation", ValidationJson(*details)}};
}

}  // namespace penstock::cli
