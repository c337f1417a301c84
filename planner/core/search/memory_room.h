// Bytes that micro-batches may take on the ranks of each replica's pipeline: their limits of memory, less
// what lies there whatever they run.
//
//   const MemoryRoom room = AvailableBytes(job, costs);
//   if (bytes <= room.Of(replica)[position]) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"

namespace penstock::core {

class MemoryRoom {
 public:
  // By position; all replicas have as much.
  MemoryRoom(std::vector<int64_t> of_positions)  // NOLINT(google-explicit-constructor): most have no other
      : positions_(of_positions.size()), bytes_(std::move(of_positions)) {}
  // By replica and position.
  MemoryRoom(size_t positions, std::vector<int64_t> of_replicas)
      : positions_(positions), alike_(false), bytes_(std::move(of_replicas)) {}

  // Whether all replicas have as much.
  bool alike() const { return alike_; }
  // By position. Not above 0 where nothing is left for micro-batches.
  absl::Span<const int64_t> Of(int replica) const {
    return absl::MakeConstSpan(bytes_).subspan(At(replica), positions_);
  }
  absl::Span<int64_t> Of(int replica) { return absl::MakeSpan(bytes_).subspan(At(replica), positions_); }
  // What a micro-batch that is alone may take: as `Of`, but where a search has more than there is.
  int64_t Alone(int replica, int position) const {
    return (alone_.empty() ? bytes_ : alone_)[At(replica) + position];
  }
  // Of the replica that has least there.
  int64_t LeastAt(int position) const;
  std::vector<int64_t> LeastByPosition() const;
  int64_t Least() const;

  // As if ranks had plenty, more than any micro-batch takes and far from overflow. Where replicas differ, a
  // micro-batch that is alone has no more than now.
  MemoryRoom Plenty() const;

 private:
  size_t At(int replica) const { return alike_ ? 0 : static_cast<size_t>(replica) * positions_; }

  size_t positions_;
  bool alike_ = true;
  std::vector<int64_t> bytes_;
  std::vector<int64_t> alone_;
};

// Of the job's replicas, which may be fewer than those of the costs. Of a stage group what its fullest rank
// has.
MemoryRoom AvailableBytes(const Job& job, const CostModel& costs);

// The rank of a stage group that has least room beside what lies there.
int TightestRank(const Job& job, const CostModel& costs, int replica, int position);

}  // namespace penstock::core
