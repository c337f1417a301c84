// How rows are divided over the ranks of a group, stretch by stretch of a list or all at once.
#include "worker/comm/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::worker {
namespace {

TEST(ShardOfListedRows, OfTheWholeListIsThatOfABuffer) {
  for (int count = 1; count <= 5; ++count) {
    for (int64_t all = 0; all <= 23; ++all) {
      for (int rank = 0; rank < count; ++rank) {
        const Shard whole = ShardOf(all, rank, count);
        const Shard listed = ShardOf(ListedRows(all), rank, count);
        EXPECT_EQ(listed.begin, whole.begin);
        EXPECT_EQ(listed.end, whole.end);
      }
    }
  }
}

// Of a list that is cut at two places.
void ExpectEven(const std::vector<int64_t>& ends, int count) {
  const int64_t all = ends.back();
  std::vector<int64_t> sizes(count, 0);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const ListedRows rows(begin, end, all);
    int64_t next = 0;
    for (int rank = 0; rank < count; ++rank) {
      const Shard shard = ShardOf(rows, rank, count);
      ASSERT_EQ(shard.begin, next);
      ASSERT_GE(shard.size(), 0);
      // The last rank has what is left of the list.
      const int64_t most = rows.size() / count + (rank + 1 == count ? count : 1);
      ASSERT_LE(shard.size(), most) << begin << " to " << end << " of " << all;
      next = shard.end;
      sizes[rank] += shard.size();
    }
    ASSERT_EQ(next, rows.size());
    begin = end;
  }
  for (int rank = 0; rank < count; ++rank) EXPECT_EQ(sizes[rank], ShardOf(all, rank, count).size());
}

TEST(ShardOfListedRows, OfStretchesAreEvenAndTogetherTheListsOwn) {
  for (int count = 1; count <= 5; ++count) {
    for (int64_t all = 0; all <= 17; ++all) {
      for (int64_t first = 0; first <= all; ++first) {
        for (int64_t second = first; second <= all; ++second) ExpectEven({first, second, all}, count);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::worker
