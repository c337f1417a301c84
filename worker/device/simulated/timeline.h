// The simulated times of one iteration on one rank, by the plan's model of execution: the instructions of a
// stream run one after another, an instruction is ready when the one before it on its stream and its deps
// have ended.
//
//   Timeline timeline;
//   timeline.Start(program, /*start_ns=*/0);
//   PENSTOCK_ASSIGN_OR_RETURN(const int64_t ready, timeline.Ready(7));   // blocks until that is known
//   timeline.End(7, ready, ready + duration);
//
// Simulated time is a number that travels with the work, never read from a clock: when the host comes to an
// instruction has no influence.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Thread-safe. Instructions are named by their ids.
class Timeline {
 public:
  struct Span {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };

  // Nothing of an earlier iteration may be under way. The program is not needed afterwards.
  void Start(const Program& program, int64_t start_ns);

  // Blocks until all that the instruction waits for has ended; the time at which that was.
  // Possible errors: why an instruction that it waits for failed, or why the timeline was cancelled.
  absl::StatusOr<int64_t> Ready(uint32_t id);

  // Each instruction ends once, or fails once; those that wait for it fail with it.
  void End(uint32_t id, int64_t start_ns, int64_t end_ns);
  void Fail(uint32_t id, const absl::Status& why);

  // Blocks until the instruction has ended. Possible errors: as Ready.
  absl::Status Await(uint32_t id);

  // Ends every blocking call, now and later, with `why`. Idempotent.
  void Cancel(const absl::Status& why);

  int64_t start_ns() const;
  // When the last instruction of all streams ends, of those that have ended.
  int64_t end_ns() const;
  // Of an instruction that has ended.
  std::optional<Span> At(uint32_t id) const;

 private:
  struct Entry {
    // The deps and the one before it on its stream.
    std::vector<uint32_t> waits_for = {};
    std::optional<Span> span = {};
    absl::Status failure = {};
  };

  absl::Status AwaitLocked(uint32_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  int64_t start_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock::worker
