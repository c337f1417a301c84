#include "planner/core/search/memory_room.h"

#include <algorithm>

namespace penstock::core {
namespace {

constexpr int64_t kPlenty = int64_t{1} << 60;

int64_t RoomOn(const Job& job, const CostModel& costs, int rank) {
  return job.memory_limits.Of(rank) - costs.StaticBytesOfRank(rank);
}

}  // namespace

int64_t MemoryRoom::LeastAt(int position) const {
  int64_t least = bytes_[position];
  for (size_t at = position; at < bytes_.size(); at += positions_) least = std::min(least, bytes_[at]);
  return least;
}

std::vector<int64_t> MemoryRoom::LeastByPosition() const {
  std::vector<int64_t> least;
  for (size_t position = 0; position < positions_; ++position)
    least.push_back(LeastAt(static_cast<int>(position)));
  return least;
}

int64_t MemoryRoom::Least() const { return *std::min_element(bytes_.begin(), bytes_.end()); }

MemoryRoom MemoryRoom::Plenty() const {
  MemoryRoom plenty = *this;
  if (!alike_) plenty.alone_ = bytes_;
  std::fill(plenty.bytes_.begin(), plenty.bytes_.end(), kPlenty);
  return plenty;
}

int TightestRank(const Job& job, const CostModel& costs, int replica, int position) {
  const std::vector<int32_t>& group = job.topology.GroupAt(replica, position);
  return *std::min_element(group.begin(), group.end(),
                           [&](int a, int b) { return RoomOn(job, costs, a) < RoomOn(job, costs, b); });
}

MemoryRoom AvailableBytes(const Job& job, const CostModel& costs) {
  std::vector<int64_t> available;
  if (job.memory_limits.alike()) {
    for (int position = 0; position < costs.positions(); ++position)
      available.push_back(job.memory_limits.common - costs.RankStaticBytes(position));
    return MemoryRoom(std::move(available));
  }
  for (int replica = 0; replica < job.topology.replicas(); ++replica) {
    for (int position = 0; position < costs.positions(); ++position)
      available.push_back(RoomOn(job, costs, TightestRank(job, costs, replica, position)));
  }
  return {static_cast<size_t>(costs.positions()), std::move(available)};
}

}  // namespace penstock::core
