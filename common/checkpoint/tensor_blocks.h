// What tensor files of a checkpoint call the parts of a tensor, where no rank has it whole: a parameter is
// divided over tensor ranks, and an optimizer's state over replicas and context ranks.
//
//   "head.weight"                  the whole tensor, in its shape
//   "head.weight[512:1024]"        its elements 512 to 1023, row by row, in one dimension
//   "head.weight[0:64,16:32]"      of its rows 0 to 63 the columns 16 to 31, in two dimensions
//
// A tensor of one dimension is one row here; of more than two, what lies behind the first is its columns.
// Whoever needs a part takes it from any others that have it, block by block:
//
//   for (const LocatedBlock& stored : *StoredBlocks(*ParseEntry(entry), entry_shape, whole_shape))
//     if (auto both = Intersection(stored.block, wanted.block)) for (const Run& run : RunsOf(*both, stored,
//     wanted)) ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Rows [first_row, end_row) of columns [first_column, end_column).
struct Block {
  int64_t first_row = 0;
  int64_t end_row = 0;
  int64_t first_column = 0;
  int64_t end_column = 0;

  int64_t rows() const { return end_row - first_row; }
  int64_t columns() const { return end_column - first_column; }
  int64_t elements() const { return rows() * columns(); }
  bool operator==(const Block&) const = default;
};

// All of a tensor of this shape.
Block WholeBlock(const std::vector<int64_t>& shape);

// What both have; nothing where that is empty.
std::optional<Block> Intersection(const Block& a, const Block& b);
// What `a` has and `b` has not: up to four blocks.
std::vector<Block> Without(const Block& a, const Block& b);
// Elements [begin, end) of a block, row by row: the end of a row, whole rows and the beginning of one, as far
// as there are such.
std::vector<Block> BlocksOf(const Block& block, int64_t begin, int64_t end);

// A block of a tensor in a buffer: its first element is at `first`, and each row `stride` elements behind the
// one before.
struct LocatedBlock {
  Block block;
  int64_t first = 0;
  int64_t stride = 0;
};

// `count` elements that lie one behind the other in both buffers.
struct Run {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
};
// `part` lies in both.
std::vector<Run> RunsOf(const Block& part, const LocatedBlock& from, const LocatedBlock& to);

// Elements [begin, end) of a block that lie one behind the other from `first` on.
std::vector<LocatedBlock> LocatedBlocksOf(const Block& block, int64_t begin, int64_t end, int64_t first);

// What the name of an entry stands for.
struct EntryName {
  std::string tensor;
  // Of one dimension: elements [begin, end).
  bool is_interval = false;
  int64_t begin = 0;
  int64_t end = 0;
  bool is_block = false;
  Block block = {};

  bool is_whole() const { return !is_interval && !is_block; }
};
EntryName ParseEntryName(absl::string_view name);
std::string IntervalName(absl::string_view tensor, int64_t begin, int64_t end);
std::string BlockName(absl::string_view tensor, const Block& block);

// Where in an entry of shape `stored` it has what of a tensor of shape `whole`. Possible errors:
// INVALID_ARGUMENT (the entry is not of such a tensor, or not of the shape that its name says).
absl::StatusOr<std::vector<LocatedBlock>> StoredBlocks(const EntryName& name,
                                                       const std::vector<int64_t>& stored,
                                                       const std::vector<int64_t>& whole);

}  // namespace penstock
