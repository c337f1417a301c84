// What a tensor rank has of a parameter (Shoeybi et al., "Megatron-LM: training multi-billion parameter
// language models using model parallelism", 2019, section 3): rows of it, columns of it, or all of it.
//
//   const ParameterPart part = PartByRows({96, 32}, {{64, 8}, {16, 2}, {16, 2}}, place);
//   for (const OwnBlock& own : part.blocks) ...   // own.block: rows and columns of the whole parameter
//
// Blocks are those of checkpoints (common/checkpoint/tensor_blocks.h): a parameter of one dimension is one
// row.
#pragma once

#include <cstdint>
#include <vector>

#include "common/checkpoint/tensor_blocks.h"
#include "worker/program/group_place.h"

namespace penstock::worker {

// Several tensor ranks may have a block, the neighbours first_holder, first_holder + 1, ...: the same values
// in every bit, but each its own part of the gradient (whole_gradients.h).
struct OwnBlock {
  Block block;
  int first_holder = 0;
  int holders = 1;

  bool operator==(const OwnBlock&) const = default;
};

struct ParameterPart {
  std::vector<int64_t> whole_shape;
  // In the order in which they lie in the rank's tensor, each row by row.
  std::vector<OwnBlock> blocks;
  // Of the rank's tensor, and of the tensor rank that has most of the parameter.
  std::vector<int64_t> shape;
  int64_t most_elements = 0;
};

// Neighbouring rows (of a parameter with one dimension: elements) that are divided alike: into units, such as
// heads, that stay whole. As many for each tensor rank, and the rest for the last (shard.h); where there are
// fewer units than ranks, neighbours have the same one.
struct RowStretch {
  int64_t rows = 0;
  int64_t units = 0;
};

// On every tensor rank.
ParameterPart WholePart(const std::vector<int64_t>& shape, const GroupPlace& place);
// On this rank and none of its other tensor ranks.
ParameterPart OwnPart(const std::vector<int64_t>& shape, const GroupPlace& place);
// `stretches` are all its rows.
ParameterPart PartByRows(const std::vector<int64_t>& shape, const std::vector<RowStretch>& stretches,
                         const GroupPlace& place);
// Of two dimensions; the tensor ranks divide its columns.
ParameterPart PartByColumns(const std::vector<int64_t>& shape, const GroupPlace& place);

}  // namespace penstock::worker
