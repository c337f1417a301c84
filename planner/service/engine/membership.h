// Who works on a job: ranks, incarnations, epochs, heartbeats, failures.
//
// An epoch is one set of worker processes that work together. The first registration opens an epoch; it is
// READY when every rank has registered and rank 0 has told where its rendezvous is. When a rank is lost,
// leaves or reports a failure the epoch fails as a whole; the next registration opens a new one, for which
// every worker registers anew with a new incarnation. Incarnations and epochs keep the ghosts of old
// processes out.
//
// Not thread-safe; time is a parameter. The model is openxla's coordination service (incarnations, heartbeats
// on an injected clock, errors broadcast to every task).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/epoch_failure.h"

namespace penstock {

// A worker process as it names itself.
struct WorkerKey {
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t epoch = 0;
};

class Membership {
 public:
  struct Registration {
    uint32_t rank = 0;
    uint64_t epoch = 0;
    // This registration opened the epoch: the job goes back to the worker's first iteration.
    bool opened_epoch = false;
  };

  // A worker that is silent for longer than `timeout` is lost.
  Membership(uint32_t ranks, absl::Duration timeout) : members_(ranks), timeout_(timeout) {}

  // Gives the wanted rank, or the lowest free one. The same incarnation again gets the same answer.
  // A worker whose first iteration is not that of its epoch fails the epoch.
  // Possible errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ALREADY_EXISTS, ABORTED (see RegisterWorker).
  absl::StatusOr<Registration> Register(const v1::RegisterWorkerRequest& request, absl::Time now);

  // Possible errors: INVALID_ARGUMENT (no such rank), ABORTED (another incarnation or epoch, and why).
  absl::Status Check(const WorkerKey& key) const;

  // Takes note of the worker, of its failure or of its leaving. `finished`: the job is done, so that leaving
  // is in order. Possible errors: as Check.
  absl::Status Heartbeat(const v1::HeartbeatRequest& request, bool finished, absl::Time now);
  // The state of the epoch for a worker that has just sent a heartbeat.
  v1::HeartbeatResponse Answer(uint32_t rank, bool finished);

  // Declares silent workers lost. True when that changed the failure.
  bool Expire(absl::Time now);

  // 0: nobody has registered yet.
  uint64_t epoch() const { return epoch_; }
  bool failed() const { return !failure_.empty(); }
  // Empty when the epoch has not failed.
  std::string failure() const { return failure_.Describe(); }
  bool ready() const;
  // No worker holds a rank.
  bool empty() const;
  // By rank. `last_iteration` is not filled in.
  std::vector<v1::WorkerStatus> Workers(absl::Time now) const;
  absl::Duration heartbeat_interval() const;

 private:
  struct Member {
    uint64_t incarnation = 0;
    std::string host;
    absl::Time last_heartbeat;
    // It knows that the epoch failed, so its silence explains nothing.
    bool knows_failure = false;
  };

  static constexpr size_t kRememberedIncarnations = 4096;
  // Of what a worker says about its failure.
  static constexpr size_t kMaxFailureBytes = 2048;

  std::optional<uint32_t> RankOf(uint64_t incarnation) const;
  bool WasReplaced(uint64_t incarnation) const;
  absl::StatusOr<uint32_t> PickRank(int32_t wanted) const;
  void OpenEpoch(uint64_t first_iteration);
  void Fail(FailureKind kind, uint32_t rank, const std::string& what);
  // "rank 2 (10.0.0.3, incarnation 1234)"
  std::string NameOf(uint32_t rank) const;

  std::vector<std::optional<Member>> members_;
  const absl::Duration timeout_;
  uint64_t epoch_ = 0;
  uint64_t first_iteration_ = 0;
  std::string rendezvous_address_;
  EpochFailure failure_;
  // Why the epoch before this one ended.
  std::string last_failure_;
  // Of earlier epochs, oldest first.
  std::deque<uint64_t> replaced_;
};

}  // namespace penstock
