// Which of a job's strategies its next iterations run on (ChangeStrategies). The job's specification has all
// that it ever had.
//
//   if (const auto active = AskForStrategies(client, job)) Say(StrategyNames(active->strategies));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/client/planner_client.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ActiveStrategies {
  // Indices of JobSpec.strategies, and these.
  std::vector<uint32_t> numbers = {};
  std::vector<v1::Strategy> strategies = {};
  // The first iteration that runs on one of them.
  uint64_t from_iteration = 0;
};

// `job`: as the planner says it is. Nothing: it has no strategies, or the planner does not tell (an earlier
// version, a standby, or one that takes the caller for a viewer). Asks for two seconds at most.
std::optional<ActiveStrategies> AskForStrategies(PlannerClient& client, const v1::JobSpec& job);

// The job with these alone, as it is planned now.
v1::JobSpec OnStrategies(v1::JobSpec job, const ActiveStrategies& active);

}  // namespace penstock::cli
