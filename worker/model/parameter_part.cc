#include "worker/model/parameter_part.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "worker/comm/shard.h"

namespace penstock::worker {
namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Rows [begin, end), of one dimension elements.
Block Lines(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  Block block = WholeBlock(shape);
  if (shape.size() == 1) {
    block.first_column = begin;
    block.end_column = end;
  } else {
    block.first_row = begin;
    block.end_row = end;
  }
  return block;
}

// Part of `stretch`, which begins at row `first`, that `tensor_rank` has.
OwnBlock BlockOf(const std::vector<int64_t>& shape, const RowStretch& stretch, int64_t first, int tensor_rank,
                 int tensors) {
  const int64_t unit = stretch.rows / stretch.units;
  if (stretch.units >= tensors) {
    const Shard units = ShardOf(stretch.units, tensor_rank, tensors);
    return {Lines(shape, first + units.begin * unit, first + units.end * unit), tensor_rank, 1};
  }
  const int holders = tensors / static_cast<int>(stretch.units);
  const int index = tensor_rank / holders;
  return {Lines(shape, first + index * unit, first + (index + 1) * unit), index * holders, holders};
}

std::vector<OwnBlock> RowBlocks(const std::vector<int64_t>& shape, const std::vector<RowStretch>& stretches,
                                int tensor_rank, int tensors) {
  std::vector<OwnBlock> blocks;
  int64_t first = 0;
  for (const RowStretch& stretch : stretches) {
    blocks.push_back(BlockOf(shape, stretch, first, tensor_rank, tensors));
    first += stretch.rows;
  }
  return blocks;
}

int64_t Elements(const std::vector<OwnBlock>& blocks) {
  int64_t elements = 0;
  for (const OwnBlock& own : blocks) elements += own.block.elements();
  return elements;
}

}  // namespace

ParameterPart WholePart(const std::vector<int64_t>& shape, const GroupPlace& place) {
  return {shape, {{WholeBlock(shape), 0, place.tensors}}, shape, Product(shape)};
}

ParameterPart OwnPart(const std::vector<int64_t>& shape, const GroupPlace& place) {
  return {shape, {{WholeBlock(shape), place.tensor, 1}}, shape, Product(shape)};
}

ParameterPart PartByRows(const std::vector<int64_t>& shape, const std::vector<RowStretch>& stretches,
                         const GroupPlace& place) {
  if (place.tensors == 1) return WholePart(shape, place);
  ParameterPart part = {.whole_shape = shape,
                        .blocks = RowBlocks(shape, stretches, place.tensor, place.tensors),
                        .shape = shape};
  part.shape[0] = Elements(part.blocks) / std::max<int64_t>(1, Product(shape) / shape[0]);
  part.most_elements = Elements(RowBlocks(shape, stretches, place.tensors - 1, place.tensors));
  return part;
}

ParameterPart PartByColumns(const std::vector<int64_t>& shape, const GroupPlace& place) {
  if (place.tensors == 1) return WholePart(shape, place);
  const auto columns = [&](int tensor_rank) { return ShardOf(shape[1], tensor_rank, place.tensors); };
  const Shard own = columns(place.tensor);
  return {shape,
          {{{0, shape[0], own.begin, own.end}, place.tensor, 1}},
          {shape[0], own.size()},
          shape[0] * columns(place.tensors - 1).size()};
}

}  // namespace penstock::worker
