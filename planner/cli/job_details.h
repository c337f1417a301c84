// What a planner says of a job beyond its status: how many ranks do what, and the losses of its last
// iterations.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/active_strategies.h"
#include "planner/cli/expert_layers.h"

namespace penstock::cli {

struct RouterLosses {
  double balance = 0;
  double z = 0;
};

struct JobDetails {
  v1::Mesh mesh;
  // Where an iteration runs on one of several: all that the job ever had.
  std::vector<v1::Strategy> strategies = {};
  // Of the ranks' shares of parameters; empty: all are alike, or there are none.
  std::vector<uint32_t> share_weights = {};
  // Those of them that the next iterations run on; nothing: the planner does not tell.
  std::optional<ActiveStrategies> active = {};
  // Losses of the last iteration by name, where the job tells tasks apart.
  std::vector<std::pair<std::string, double>> task_losses = {};
  // Of the last iteration, where routers have some.
  std::optional<RouterLosses> router_losses = {};
  // Of the last iteration, where experts have a capacity: the share of rows that were dropped.
  std::optional<double> dropped_expert_rows = {};
  // Of the last iteration, where workers count rows: of ranks that divide experts, and of experts.
  std::optional<LayerLoads> rank_loads = {};
  std::optional<LayerLoads> expert_loads = {};
  // The last iteration that was validated on the ranks, and the loss; nothing: none was.
  std::optional<std::pair<uint64_t, double>> validation = {};
};

JobDetails DetailsOf(const v1::GetJobResponse& response);

// "pp 2 x dp 1 x cp 4", or the strategies that it runs on, with the weights of shares where these differ; and
// how many ranks they have.
std::string MeshesText(const JobDetails& details);
uint64_t RankCount(const JobDetails& details);

// "losses of job mix in its last iteration: flan 2.7113, code 1.9027" and the like, each behind an empty
// line; empty where there is nothing to say.
std::string LossesText(const std::string& job, const JobDetails& details);

// {mesh, strategies, active_strategies, active_from, share_weights, task_losses, router_losses,
// dropped_expert_rows, layer_loads, validation}; all null without details.
nlohmann::ordered_json ToJson(const std::optional<JobDetails>& details);

}  // namespace penstock::cli
