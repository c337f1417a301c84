// Where the time of each rank goes: work, and waiting by cause.
//
// A rank that waits before a pass waits for memory from when the FORWARD that comes next in its list had its
// input, if that did not fit: the account just before the pass, the tokens, what FORWARD takes and what its
// backward pass takes on top are together above the limit. Without that limit the rank could have run it. Any
// other time before a pass is spent on its transfer while that is under way, or while the link is taken,
// although the data is ready; and otherwise on the computation that makes the data.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/model/memory_limits.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/program/program_set.h"
#include "planner/core/simulate/simulator.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// Busy time and the seven causes add up to the makespan. Nanoseconds.
struct RankTime {
  int64_t busy_ns = 0;
  // Before the rank's first pass.
  int64_t fill_ns = 0;
  // After its last pass, until the last one of its replica.
  int64_t drain_ns = 0;
  // For a computation of another rank.
  int64_t dependency_ns = 0;
  // For memory, although a FORWARD could have begun.
  int64_t memory_ns = 0;
  // For a transfer, or a collective, whose data was ready.
  int64_t transfer_ns = 0;
  // After the last pass of its replica, until the last one of all replicas.
  int64_t imbalance_ns = 0;
  // Inside passes, for the slowest rank of its stage group.
  int64_t group_ns = 0;
};

// `simulator` has run `programs`. Of no worth where it is stopped.
std::vector<RankTime> ExplainTime(const ProgramSet& programs, const Simulator& simulator,
                                  const Topology& topology, const MemoryLimits& memory_limits,
                                  StopToken stop = {});
// End of the last pass of any micro-batch on any stage; 0 without micro-batches.
int64_t LastPassEnd(const ProgramSet& programs, const Simulator& simulator);

}  // namespace penstock::core
