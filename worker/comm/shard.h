// How a flat buffer is divided over the ranks of a group.
#pragma once

#include <cstdint>

namespace penstock::worker {

// Elements [begin, end) of a buffer.
struct Shard {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

// Shard `index` of `count` equal ones; the last one has what is left over, fewer elements than there are
// shards.
inline Shard ShardOf(int64_t elements, int index, int count) {
  const int64_t each = elements / count;
  return {each * index, index + 1 == count ? elements : each * (index + 1)};
}

}  // namespace penstock::worker
