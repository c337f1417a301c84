// Which engine serves calls, while that changes: that of a leader, or of a standby, which has no jobs and
// answers what-ifs alone.
//
//   slot.Lead(engine);                       // all methods
//   slot.Follow(other, why);                 // what-ifs; the others are answered with `why`
//   PENSTOCK_ASSIGN_OR_RETURN(EnginePtr engine, slot.ForJobs());
//
// Whoever was given an engine keeps it for as long as its call takes, after a change too: so who takes an
// engine out shuts it down, and destroys it when nobody else has it any more (an engine must not be destroyed
// by a thread of its own). Thread-safe.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "planner/service/engine/engine.h"

namespace penstock {

using EnginePtr = std::shared_ptr<PlannerEngine>;

class EngineSlot {
 public:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void Lead(EnginePtr engine);
  // Calls of jobs are answered until then: somebody else may lead afterwards. Without a call: for ever.
  void LeadUntil(SteadyTime end);
  void Follow(EnginePtr what_ifs, absl::Status why);
  // The same engine, another reason.
  void Explain(absl::Status why);
  void Clear();

  // Possible errors: UNAVAILABLE (it does not lead; says who does).
  absl::StatusOr<EnginePtr> ForJobs() const;
  // Possible errors: UNAVAILABLE (the planner starts or stops).
  absl::StatusOr<EnginePtr> ForWhatIfs() const;
  // Null: none.
  EnginePtr current() const;
  bool leads() const { return ForJobs().ok(); }
  // It leads no more and does not know it yet.
  bool expired() const;

 private:
  mutable Mutex mutex_;
  EnginePtr engine_ ABSL_GUARDED_BY(mutex_);
  // OK: it leads.
  absl::Status why_not_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("the planner starts; try again");
  SteadyTime end_ ABSL_GUARDED_BY(mutex_) = SteadyTime::max();
};

}  // namespace penstock
