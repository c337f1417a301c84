// How a flat buffer, or a list of rows, is divided over the ranks of a group.
#pragma once

#include <algorithm>
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

// The rows from `begin` to `end` - 1 of a list of `all`, of which every rank has a shard: the whole list, or
// one of the stretches that it consists of.
struct ListedRows {
  // NOLINTNEXTLINE(google-explicit-constructor): a whole list is what most callers have.
  ListedRows(int64_t all) : begin(0), end(all), all(all) {}
  ListedRows(int64_t begin, int64_t end, int64_t all) : begin(begin), end(end), all(all) {}

  int64_t size() const { return end - begin; }

  int64_t begin;
  int64_t end;
  int64_t all;
};

// How many of the first `rows` of such a list are a rank's: they are dealt out one by one, from rank 0 on,
// but for fewer at the end of the list than there are ranks, which the last rank has.
inline int64_t RowsDealtTo(int64_t rows, int64_t all, int index, int count) {
  const int64_t dealt = all / count * count;
  const int64_t own = (std::min(rows, dealt) + count - 1 - index) / count;
  return index + 1 == count ? own + std::max<int64_t>(0, rows - dealt) : own;
}

// The shard of a rank, counted from the first of these rows. Each rank has its rows side by side, so what is
// dealt says only how many these are: of every stretch about as many as any other rank has, and of all
// stretches together as many as of the list as a whole.
inline Shard ShardOf(const ListedRows& rows, int index, int count) {
  const auto size = [&](int rank) {
    return RowsDealtTo(rows.end, rows.all, rank, count) - RowsDealtTo(rows.begin, rows.all, rank, count);
  };
  int64_t begin = 0;
  for (int rank = 0; rank < index; ++rank) begin += size(rank);
  return {begin, begin + size(index)};
}

}  // namespace penstock::worker
