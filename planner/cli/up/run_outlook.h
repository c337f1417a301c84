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

// A task of a mixture.
struct TaskOutlook {
  std::string name;
  // Of the samples of each global batch, at most 1.
  double share = 0;
  // Of its dataset; of them, those that are left out (--cut drop).
  uint64_t samples = 0;
  uint64_t dropped_samples = 0;
  uint64_t tokens = 0;
};

struct RunOutlook {
  v1::JobSpec job = {};
  // Of the data, and of an iteration.
  uint64_t samples = 0;
  uint64_t global_batch = 0;
  std::vector<TaskOutlook> tasks = {};
  // Of a worker.
  uint32_t threads = 0;
  // Of the first batch; nothing where the planner could not say.
  std::optional<PlanSummary> plan = {};
};

std::vector<std::string> Describe(const RunOutlook& outlook);
nlohmann::ordered_json ToJson(const RunOutlook& outlook);

}  // namespace penstock::cli
