// What a worker does when its epoch has failed: it ends, or goes on in the next one from the newest
// checkpoint.
//
// A worker that is healthy need not be started again because another rank was lost. Whether it is healthy,
// the code of the epoch's failure says (worker/agent/planner_agent.h). That it makes no sense to go on is
// seen by the progress: an epoch in a row that gets no further than an earlier one counts.
//
//   const absl::Status status = TrainThroughFailures({.most = 10}, {.run_epoch = ..., .wait = ...});
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace penstock::worker {

// How an epoch has ended.
struct EpochEnd {
  // OK: the job is finished.
  absl::Status status;
  // One more than the last iteration that this worker finished in it; 0: none.
  uint64_t next_iteration = 0;
};

// The failure is another's: what this worker holds is sound, and a new epoch may go well.
bool MayRejoin(const absl::Status& failure);

// A process that is started again with the same flags may do better than the one that ended like this.
bool IsWorthRestarting(const absl::Status& failure);

struct RejoinOptions {
  // Epochs in a row that may fail without a new iteration, after the first; 0: the first failure ends it.
  uint32_t most = 10;
  // Between epochs; doubles from one that fails without a new iteration to the next.
  absl::Duration first_pause = absl::Milliseconds(50);
  absl::Duration longest_pause = absl::Seconds(5);
};

struct RejoinParts {
  // Registers, joins and trains until the epoch is over. `again`: it is not the first one of this process.
  std::function<EpochEnd(bool again)> run_epoch;
  // Blocks for the time. An error: the worker is told to end.
  std::function<absl::Status(absl::Duration)> wait;
};

// Blocks until the job is finished. Possible errors: those of the last epoch and of `wait`.
absl::Status TrainThroughFailures(const RejoinOptions& options, const RejoinParts& parts);

}  // namespace penstock::worker
