// What an iteration would take under other conditions, by planning it again.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const std::vector<WhatIf> what_ifs, AskWhatIf(job, planned));
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/time_split.h"
#include "planner/core/parallel/run_tasks.h"

namespace penstock::cli {

enum class WhatIfKind {
  // A plan was made for this, so it can be had where the condition can.
  kPlan,
  // Reckoned from the plan, without a plan that reaches it.
  kEstimate,
  // No plan on this mesh can be faster.
  kBound,
};

struct WhatIf {
  // "unlimited memory".
  std::string condition = {};
  WhatIfKind kind = WhatIfKind::kPlan;
  // For the samples of the batch. 0: there is no plan.
  double makespan_ms = 0;
  // Share of the plan's makespan that goes away; below 0 when it would take longer.
  double gain = 0;
  // Times as many ranks as the plan has.
  int ranks = 1;
  // What a user can do to get there; empty where nothing but better planning can.
  std::string advice = {};
};

// The most gain first. `ranks` is the time of the plan (SplitTime). Plans some ten times, at the job's
// effort. Conditions that cannot change anything for this job (no padding in a packed plan) are left out.
// `progress` is called with each condition before it is planned, where it is set. `run_tasks` may use
// threads. Possible errors: INTERNAL (a plan breaks a rule).
absl::StatusOr<std::vector<WhatIf>> AskWhatIf(
    const v1::JobSpec& job, const v1::PlannedBatch& planned, const std::vector<TimeSplit>& ranks,
    const std::function<void(const std::string&)>& progress = nullptr,
    const core::RunTasks& run_tasks = core::RunSerially);

// "plan", "estimate", "bound".
const char* KindName(WhatIfKind kind);

}  // namespace penstock::cli
