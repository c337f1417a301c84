// First-fit bin packing in two dimensions (Johnson 1973): the first bin, in order of opening, that has room.
//
// The bins are the leaves of a tree whose nodes know the most room below them in each dimension, so that a
// search goes straight down where one dimension decides, and seldom looks at a bin in vain where both do.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::core {

class FirstFit {
 public:
  struct Size {
    double first = 0;
    double second = 0;
  };

  // At most `bins` items are placed, into bins of size `capacity`.
  FirstFit(size_t bins, Size capacity);

  // The bin that an item of this size goes into. One that is larger than the capacity gets a bin of its own,
  // to which nothing is added.
  size_t Place(Size size);

 private:
  bool HasRoom(size_t node, Size size) const {
    return room_[node].first >= size.first && room_[node].second >= size.second;
  }
  // The first leaf below `node` with room, or 0.
  size_t Find(size_t node, Size size) const;
  void Update(size_t leaf);

  // A heap: the root is 1, the children of i are 2i and 2i + 1, the leaves are the bins. A bin that was not
  // opened yet is empty.
  size_t leaves_ = 1;
  std::vector<Size> room_;
  size_t opened_ = 0;
};

}  // namespace penstock::core
