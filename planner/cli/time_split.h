// Where the time of an iteration goes: what of the work is useful, and what the ranks wait for.
//
//   const std::vector<TimeSplit> ranks = SplitTime(*planner, batch, plan);
//   ranks[3][kPadding];
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/planner.h"

namespace penstock::cli {

// Parts of a rank's time. Work first, then waiting by cause (v1::Bubble).
enum TimePart : int {
  // What the samples' tokens take at full efficiency, in micro-batches without padding.
  kUseful,
  // What tokens of padding take, and attention across samples.
  kPadding,
  // Forward passes that are run again.
  kRecompute,
  // What a micro-batch takes whatever its size, and because a small one uses the accelerator badly;
  // what dividing a layer over tensor ranks costs its computation.
  kOverhead,
  // What is exchanged in a stage group inside passes, where computation does not hide it.
  kExchange,
  // Everything else that computes: the optimizer step.
  kUpdate,
  kFill,
  kDependency,
  kTransfer,
  kMemory,
  // Inside passes, for the slowest rank of the stage group.
  kGroup,
  kDrain,
  kImbalance,
  kTimeParts
};

// Nanoseconds; they add up to the makespan.
using TimeSplit = std::array<double, kTimeParts>;

// "useful work": for a table; "useful": for JSON.
const char* Title(TimePart part);
const char* Key(TimePart part);

// Of every rank. `planner` is of the job that the plan was made for. Where the profile has no closed form the
// cost without padding is taken in proportion to tokens, and kOverhead counts as useful.
// Possible errors: INVALID_ARGUMENT (the plan is not one of this job and batch).
absl::StatusOr<std::vector<TimeSplit>> SplitTime(const core::Planner& planner, const v1::Batch& batch,
                                                 const v1::Plan& plan);

// Zeros without ranks.
TimeSplit MeanOf(const std::vector<TimeSplit>& ranks);
// What a rank computes, in all.
double BusyNs(const TimeSplit& split);

}  // namespace penstock::cli
