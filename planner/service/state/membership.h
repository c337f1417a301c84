// Who works on a job: ranks, incarnations, epochs, failures. Part of the fold of a job's events: what is
// asked changes nothing, and what is applied cannot fail.
//
// An epoch is one set of worker processes that work together. The first registration opens an epoch; it is
// READY when every rank has registered and rank 0 has told where its rendezvous is. When a rank is lost,
// leaves or reports a failure the epoch fails as a whole; the next registration opens a new one, for which
// every worker registers anew with a new incarnation. Incarnations and epochs keep the ghosts of old
// processes out. When each worker was last heard of is not kept here but in engine/heartbeats.h.
//
// Not thread-safe. The model is openxla's coordination service (incarnations, heartbeats on an injected
// clock, errors broadcast to every task).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/state/epoch_failure.h"

namespace penstock {

// A worker process as it names itself.
struct WorkerKey {
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t epoch = 0;
};

class Membership {
 public:
  // Of what a worker says about its failure.
  static constexpr size_t kMaxFailureBytes = 2048;

  struct Place {
    uint32_t rank = 0;
    // It holds the rank already.
    bool held = false;
    // It would be the first of a new epoch.
    bool opens_epoch = false;
  };

  explicit Membership(uint32_t ranks) : members_(ranks) {}
  Membership(uint32_t ranks, const store::v1::Epoch& saved);

  // Where a worker that registers would be: at the wanted rank, or the lowest free one; the same incarnation
  // again at the same rank.
  // Possible errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, ALREADY_EXISTS, ABORTED (see RegisterWorker).
  absl::StatusOr<Place> PlaceFor(const v1::RegisterWorkerRequest& request) const;

  // Possible errors: INVALID_ARGUMENT (no such rank), ABORTED (another incarnation or epoch, and why).
  absl::Status Check(const WorkerKey& key) const;

  void Apply(const store::v1::WorkerRegistered& event);
  void Apply(const store::v1::RendezvousOpened& event) { rendezvous_address_ = event.address(); }
  void Apply(const store::v1::WorkerFailed& event) { failure_.Add(event); }
  void Apply(const store::v1::WorkerLeft& event) { members_[event.rank()].reset(); }

  // 0: nobody has registered yet.
  uint64_t epoch() const { return epoch_; }
  uint64_t first_iteration() const { return first_iteration_; }
  const std::string& rendezvous_address() const { return rendezvous_address_; }
  // What the epoch's workers share (RegisterWorkerResponse.epoch_secret): for them alone. Empty: of an epoch
  // that was opened without.
  const std::string& secret() const { return secret_; }
  bool failed() const { return !failure_.empty(); }
  // Empty when the epoch has not failed.
  std::string failure() const { return failure_.Describe(); }
  // Why the rank failed is known.
  bool KnowsFailureOf(uint32_t rank) const { return failure_.Knows(rank); }
  bool ready() const;
  // No worker holds a rank.
  bool empty() const;
  bool IsHeld(uint32_t rank) const { return members_[rank].has_value(); }
  // "rank 2 (10.0.0.3)"; the rank is held. Whoever reads it must not learn the incarnation.
  std::string NameOf(uint32_t rank) const;
  // Of an epoch that is ready, by rank.
  std::vector<std::string> hosts() const;
  // By rank, with rank, digest of the incarnation and host.
  std::vector<v1::WorkerStatus> Workers() const;

  store::v1::Epoch Save() const;

 private:
  struct Member {
    uint64_t incarnation = 0;
    std::string host;
  };

  static constexpr size_t kRememberedIncarnations = 4096;

  std::optional<uint32_t> RankOf(uint64_t incarnation) const;
  bool WasReplaced(uint64_t incarnation) const;
  absl::StatusOr<uint32_t> FreeRank(int32_t wanted) const;
  void OpenEpoch(const store::v1::WorkerRegistered& event);

  std::vector<std::optional<Member>> members_;
  uint64_t epoch_ = 0;
  uint64_t first_iteration_ = 0;
  std::string rendezvous_address_;
  std::string secret_;
  EpochFailure failure_;
  // Why the epoch before this one ended.
  std::string last_failure_;
  // Of earlier epochs, oldest first.
  std::deque<uint64_t> replaced_;
};

}  // namespace penstock
