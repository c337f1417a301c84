// The messages of a job's programs that streams hold, made when they are asked for.
//
// A message is made once for all streams that hold it at the same time, is counted by the planner's
// StreamBudget until the last of them has sent it, and is made again when it is wanted later. The worker of a
// rank has one stream and one message whatever others hold: the training goes on beside any number of streams
// that nobody reads. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/compact/packed_plan.h"
#include "common/sync/sync.h"
#include "penstock/v1/plan.pb.h"
#include "planner/service/engine/owner_quotas.h"
#include "planner/service/engine/program_message.h"
#include "planner/service/engine/stream_budget.h"

namespace penstock {

class ProgramMessages {
 public:
  // What an open stream costs beside its message, measured: gRPC's state of the call.
  static constexpr size_t kStreamBytes = size_t{48} << 10;

  // Whoever reads a rank's programs.
  struct Reader {
    uint32_t rank = 0;
    // It is the rank's worker of the current epoch.
    bool is_worker = false;
    // The newest compact.proto that it reads; 0: none.
    uint32_t compact_version = 0;
  };

  // `budget` and `quotas` must outlive the job. `owner`: who pays. `most_bytes`: of one message.
  ProgramMessages(const StreamBudget* budget, const OwnerQuotas* quotas, std::string owner,
                  int64_t most_bytes = std::numeric_limits<int64_t>::max())
      : budget_(budget), quotas_(quotas), owner_(std::move(owner)), most_bytes_(most_bytes) {}

  // A place for one more stream, kept while it is open.
  // Possible errors: RESOURCE_EXHAUSTED, that of StreamBudget or OwnerQuotas.
  absl::StatusOr<std::shared_ptr<void>> OpenStream(const Reader& reader);
  // What a stream sends for the iteration of the plan. Possible errors: those of StreamBudget and
  // CheckMessage. `profile_durations` and `topologies`: as of MakeProgramMessage.
  absl::StatusOr<ProgramBytes> Message(const v1::Batch& batch, const PackedPlan& plan, const Reader& reader,
                                       absl::Span<const int64_t> profile_durations = {},
                                       const NewTopologies& topologies = {});

 private:
  struct Made {
    std::string content_hash;
    std::weak_ptr<const std::string> bytes;
  };
  // What a worker has whatever others hold.
  struct Worker {
    std::weak_ptr<void> stream;
    std::weak_ptr<const std::string> message;
  };

  // What a stream has while it is open.
  absl::StatusOr<std::shared_ptr<void>> PlaceFor(bool anyway) const;
  // Iteration, rank, whether it is compact, and whether it has topologies: of the plan, of its validation.
  using Key = std::tuple<uint64_t, uint32_t, bool, bool, bool>;
  static Key KeyOf(const PackedPlan& plan, const Reader& reader, const NewTopologies& topologies);
  ProgramBytes Find(const PackedPlan& plan, const Key& key) const;
  void KeepLocked(const PackedPlan& plan, const Key& key, const ProgramBytes& bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StreamBudget* const budget_;
  const OwnerQuotas* const quotas_;
  const std::string owner_;
  const int64_t most_bytes_;
  mutable Mutex mutex_;
  // Those that nobody holds any more are taken out now and then.
  std::map<Key, Made> made_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
  std::map<uint32_t, Worker> workers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
