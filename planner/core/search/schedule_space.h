// The schedules and recompute levels that a job allows, and where to start among them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/schedule/recompute_ladder.h"
#include "planner/core/schedule/stage_bytes.h"
#include "planner/core/search/memory_room.h"
#include "planner/core/search/micro_batch_table.h"

namespace penstock::core {

// Rules of a replica, and the recompute of each stage (recompute_ladder.h) for all its micro-batches.
struct FittedRules {
  ScheduleRules rules;
  std::vector<int32_t> levels;
};

// How a search avoids plans whose programs need more memory than it has counted.
enum class Caution : uint8_t {
  // It counts the buffers of a micro-batch's own transfers alone.
  kLittle,
  // It also counts those of the micro-batches before and after it.
  kMuch,
  // One micro-batch of a replica after the other, with whole backward passes, and rows on as many context
  // ranks as take least memory: nothing else has buffers then, and nothing is put aside.
  kMost,
};

class ScheduleSpace {
 public:
  // `room`: for micro-batches. Whatever searches in this space asks `stop`.
  ScheduleSpace(const CostModel& costs, const Job& job, MemoryRoom room, Caution caution = Caution::kLittle,
                StopToken stop = {});

  const CostModel& costs() const { return costs_; }
  // Of the job, which may have fewer replicas than the costs were made for.
  const Topology& topology() const { return topology_; }
  int replicas() const { return topology_.replicas(); }
  bool may_split() const { return may_split_; }
  bool is_strict() const { return strict_; }
  const LevelRange& levels(int stage) const { return levels_[stage]; }
  // Micro-batches that 1F1B has in flight on a stage; with several stages a rank, about as many as keep it
  // busy.
  int32_t Depth(int stage) const;
  const MemoryRoom& room() const { return room_; }
  MemoryRoom& room() { return room_; }
  bool one_at_a_time() const { return caution_ == Caution::kMost; }
  TransferBuffers buffers() const {
    return caution_ == Caution::kMuch ? TransferBuffers::kNeighbours : TransferBuffers::kOwn;
  }
  // The same, but searches place rows as though context ranks were alike, where some are slow. Pipelines may
  // be faster so: a micro-batch has one placement for all positions.
  ScheduleSpace WithEvenRows() const {
    ScheduleSpace space = *this;
    space.places_by_speed_ = false;
    return space;
  }
  bool places_by_speed() const { return places_by_speed_; }
  const StopToken& stop() const { return stop_; }
  // For each stage the reduction of its gradients; for each rank the optimizer step.
  const std::vector<int64_t>& reduce_ns() const { return reduce_ns_; }
  const std::vector<int64_t>& optimizer_ns() const { return optimizer_ns_; }

  // The least recompute that the mode allows.
  std::vector<int32_t> LowestLevels() const;
  // Rules to start with, and as little recompute as lets Depth() of the largest micro-batches be in flight on
  // every stage of the replica.
  FittedRules Fit(const MicroBatchTable& table, absl::Span<const int32_t> slots, int replica) const;
  // As little recompute as lets all of them be in flight on every stage.
  std::vector<int32_t> FitLevelsForAll(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                       int replica) const;
  // What a micro-batch takes on a rank when it is alone, with as much recompute as the mode allows: the least
  // that the rank needs for it.
  // Of a row alone on a stage group: over as many context ranks as take least.
  int64_t BytesAlone(int rank, const TokenSums& sums) const { return BytesAlone(rank, sums, 0); }
  // Likewise, of one whose context ranks have these shares.
  int64_t BytesAlone(int rank, absl::Span<const Share> shares) const;
  // What one context rank has room for of a micro-batch that is alone, on the replica with least.
  TokenRoom RoomOfRank() const;
  bool FitsAlone(int rank, const TokenSums& sums, int replica = 0) const {
    const int64_t available = room_.Alone(replica, rank);
    return BytesAlone(rank, sums, available) <= available;
  }
  // Likewise on all ranks of a replica, or of one of them.
  bool FitsReplica(int replica, const TokenSums& sums) const;
  bool FitsSomewhere(const TokenSums& sums) const;

 private:
  // As few as that are enough: looks no further.
  int64_t BytesAlone(int rank, const TokenSums& sums, int64_t enough) const;
  int64_t BytesAlone(int rank, const Share& share) const;
  // `in_flight`: micro-batches on each stage.
  std::vector<int32_t> FitLevels(const MicroBatchTable& table, absl::Span<const int32_t> slots,
                                 absl::Span<const int32_t> in_flight, int replica) const;

  const CostModel& costs_;
  Topology topology_;
  bool strict_;
  bool may_split_;
  std::vector<LevelRange> levels_;
  MemoryRoom room_;
  Caution caution_;
  bool places_by_speed_ = true;
  StopToken stop_;
  std::vector<int64_t> reduce_ns_;
  std::vector<int64_t> optimizer_ns_;
};

}  // namespace penstock::core
