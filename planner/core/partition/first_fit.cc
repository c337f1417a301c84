#include "planner/core/partition/first_fit.h"

#include <algorithm>

namespace penstock::core {

FirstFit::FirstFit(size_t bins, Size capacity) {
  while (leaves_ < bins) leaves_ *= 2;
  room_.assign(2 * leaves_, capacity);
}

size_t FirstFit::Find(size_t node, Size size) const {
  if (!HasRoom(node, size)) return 0;
  if (node >= leaves_) return node;
  const size_t left = Find(2 * node, size);
  return left != 0 ? left : Find(2 * node + 1, size);
}

void FirstFit::Update(size_t leaf) {
  for (size_t node = leaf / 2; node > 0; node /= 2) {
    const Size& left = room_[2 * node];
    const Size& right = room_[2 * node + 1];
    room_[node] = {std::max(left.first, right.first), std::max(left.second, right.second)};
  }
}

size_t FirstFit::Place(Size size) {
  size_t leaf = Find(1, size);
  const bool larger = leaf == 0;
  if (larger) leaf = leaves_ + opened_;
  const size_t bin = leaf - leaves_;
  opened_ = std::max(opened_, bin + 1);
  // Nothing, not even an item of size 0, joins one that is larger than the bin.
  constexpr Size kClosed = {-1, -1};
  room_[leaf] = larger ? kClosed : Size{room_[leaf].first - size.first, room_[leaf].second - size.second};
  Update(leaf);
  return bin;
}

}  // namespace penstock::core
