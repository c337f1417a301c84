// Passes of stage groups of several ranks, which wait for each other inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/core/diagnose/step_replays.h"

namespace penstock::core {

// Those of which it is known what each rank computed.
class GroupPasses {
 public:
  // `replays` must outlive it.
  explicit GroupPasses(const StepReplays& replays);

  // By how much less the pass of an activity would take if `rank` computed in 1 / `factor` of its time: until
  // it waits for another rank of the group as it had the others wait for it. 0 for passes of other groups.
  double SavedNs(size_t step, size_t activity, int32_t rank, double factor) const;

 private:
  // Step, replica, place in the pipeline, kind, part of the model and micro-batch.
  using Key = std::tuple<size_t, int32_t, int32_t, OperationKind, int32_t, int32_t>;

  Key KeyOf(size_t step, const Operation& pass) const;

  const StepReplays& replays_;
  // One of each rank of the group.
  std::map<Key, std::vector<const Operation*>> groups_;
};

}  // namespace penstock::core
