#include "common/checkpoint/tensor_blocks.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock {
namespace {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// "3:10"
std::optional<Range> ParseRange(absl::string_view text) {
  const size_t colon = text.find(':');
  Range range;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, colon), &range.begin) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &range.end) || range.begin < 0 || range.end < range.begin) {
    return std::nullopt;
  }
  return range;
}

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

absl::Status WrongEntry(const EntryName& name, const std::vector<int64_t>& stored,
                        const std::vector<int64_t>& whole) {
  const std::string part = name.is_whole() ? "" : " as a part";
  return absl::InvalidArgumentError(absl::StrCat("is [", absl::StrJoin(stored, ", "), "]", part,
                                                 ", that of the model [", absl::StrJoin(whole, ", "),
                                                 "]: it is of another model"));
}

bool Contains(const Block& outer, const Block& inner) {
  return inner.first_row >= outer.first_row && inner.end_row <= outer.end_row &&
         inner.first_column >= outer.first_column && inner.end_column <= outer.end_column;
}

}  // namespace

Block WholeBlock(const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return {0, 1, 0, Product(shape)};
  return {0, shape[0], 0, Product({shape.begin() + 1, shape.end()})};
}

std::optional<Block> Intersection(const Block& a, const Block& b) {
  const Block both = {std::max(a.first_row, b.first_row), std::min(a.end_row, b.end_row),
                      std::max(a.first_column, b.first_column), std::min(a.end_column, b.end_column)};
  if (both.rows() <= 0 || both.columns() <= 0) return std::nullopt;
  return both;
}

std::vector<Block> Without(const Block& a, const Block& b) {
  const std::optional<Block> both = Intersection(a, b);
  if (!both.has_value()) return {a};
  std::vector<Block> rest;
  for (const Block& block : {Block{a.first_row, both->first_row, a.first_column, a.end_column},
                             Block{both->first_row, both->end_row, a.first_column, both->first_column},
                             Block{both->first_row, both->end_row, both->end_column, a.end_column},
                             Block{both->end_row, a.end_row, a.first_column, a.end_column}}) {
    if (block.elements() > 0) rest.push_back(block);
  }
  return rest;
}

std::vector<Block> BlocksOf(const Block& block, int64_t begin, int64_t end) {
  std::vector<Block> blocks;
  const int64_t columns = block.columns();
  while (begin < end) {
    const int64_t row = begin / columns;
    const int64_t column = begin % columns;
    const int64_t rows = column == 0 ? std::max<int64_t>(1, (end - begin) / columns) : 1;
    const int64_t width = std::min(columns - column, end - begin);
    blocks.push_back({block.first_row + row, block.first_row + row + rows, block.first_column + column,
                      block.first_column + column + width});
    begin += rows * width;
  }
  return blocks;
}

std::vector<Run> RunsOf(const Block& part, const LocatedBlock& from, const LocatedBlock& to) {
  const auto place = [&](const LocatedBlock& in, int64_t row) {
    return in.first + (row - in.block.first_row) * in.stride + part.first_column - in.block.first_column;
  };
  const bool whole_rows = part.columns() == from.stride && part.columns() == to.stride;
  if (whole_rows || part.rows() == 1)
    return {{place(from, part.first_row), place(to, part.first_row), part.elements()}};
  std::vector<Run> runs;
  runs.reserve(static_cast<size_t>(part.rows()));
  for (int64_t row = part.first_row; row < part.end_row; ++row)
    runs.push_back({place(from, row), place(to, row), part.columns()});
  return runs;
}

std::vector<LocatedBlock> LocatedBlocksOf(const Block& block, int64_t begin, int64_t end, int64_t first) {
  std::vector<LocatedBlock> located;
  for (const Block& part : BlocksOf(block, begin, end)) {
    located.push_back({part, first, block.columns()});
    first += part.elements();
  }
  return located;
}

EntryName ParseEntryName(absl::string_view name) {
  const size_t bracket = name.rfind('[');
  if (bracket == absl::string_view::npos || name.back() != ']') return {.tensor = std::string(name)};
  const absl::string_view inside = name.substr(bracket + 1, name.size() - bracket - 2);
  const size_t comma = inside.find(',');
  const std::optional<Range> first = ParseRange(inside.substr(0, comma));
  if (!first.has_value()) return {.tensor = std::string(name)};
  EntryName entry = {.tensor = std::string(name.substr(0, bracket))};
  if (comma == absl::string_view::npos) {
    entry.is_interval = true;
    entry.begin = first->begin;
    entry.end = first->end;
    return entry;
  }
  const std::optional<Range> second = ParseRange(inside.substr(comma + 1));
  if (!second.has_value()) return {.tensor = std::string(name)};
  entry.is_block = true;
  entry.block = {first->begin, first->end, second->begin, second->end};
  return entry;
}

std::string IntervalName(absl::string_view tensor, int64_t begin, int64_t end) {
  return absl::StrCat(tensor, "[", begin, ":", end, "]");
}

std::string BlockName(absl::string_view tensor, const Block& block) {
  return absl::StrCat(tensor, "[", block.first_row, ":", block.end_row, ",", block.first_column, ":",
                      block.end_column, "]");
}

absl::StatusOr<std::vector<LocatedBlock>> StoredBlocks(const EntryName& name,
                                                       const std::vector<int64_t>& stored,
                                                       const std::vector<int64_t>& whole) {
  const Block all = WholeBlock(whole);
  if (name.is_whole()) {
    if (stored != whole) return WrongEntry(name, stored, whole);
    return std::vector<LocatedBlock>{{all, 0, all.columns()}};
  }
  if (name.is_interval) {
    if (stored != std::vector<int64_t>{name.end - name.begin} || name.end > all.elements())
      return WrongEntry(name, stored, whole);
    return LocatedBlocksOf(all, name.begin, name.end, 0);
  }
  if (stored != std::vector<int64_t>{name.block.rows(), name.block.columns()} || !Contains(all, name.block))
    return WrongEntry(name, stored, whole);
  return std::vector<LocatedBlock>{{name.block, 0, name.block.columns()}};
}

}  // namespace penstock
