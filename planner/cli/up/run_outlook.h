// What a run is about to do, said before it does it: model, batches, mesh, the plan of its first batch,
// memory and time. Lines for people, and "outlook" in run.json.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "planner/cli/plan_summary.h"

namespace penstock::cli {

struct RunOutlook {
  v1::JobSpec job = {};
  // Of the data, and of an iteration.
  uint64_t samples = 0;
  uint64_t global_batch = 0;
  // Of a worker.
  uint32_t threads = 0;
  // Of the first batch; nothing where the planner could not say.
  std::optional<PlanSummary> plan = {};
};

std::vector<std::string> Describe(const RunOutlook& outlook);
nlohmann::ordered_json ToJson(const RunOutlook& outlook);

}  // namespace penstock::cli
