// Pieces of tensors in a checkpoint: tensor ranks have a part of a parameter each, and where replicas and
// context ranks divide the optimizer's state, each of them has an interval of that. Each writes what it has,
// and whoever continues takes what it needs from all of them, however things are divided now
// (common/checkpoint/tensor_blocks.h says what the entries are called).
//
//   const std::vector<NamedTensor> entries = EntriesOf(pieces);                  // to be written
//   std::vector<MissingPiece> missing = PiecesToRead(pieces);
//   for (const TensorFile& file : files) PENSTOCK_RETURN_IF_ERROR(ReadPieces(file, missing));
//   if (!missing.empty()) ... no file has missing.front() ...
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/tensor_blocks.h"
#include "worker/checkpoint/tensor_file.h"

namespace penstock::worker {

// A block of a whole tensor that a rank has.
struct HeldBlock {
  Block block;
  // Another tensor rank, which has it too, writes it.
  bool copy = false;
};

// What a rank has of a tensor: blocks, one behind the other, each row by row.
struct TensorSlice {
  // Of the whole tensor.
  std::string name;
  std::vector<int64_t> shape;
  std::vector<HeldBlock> blocks;
};

// The whole tensor.
TensorSlice WholeSlice(const std::string& name, std::vector<int64_t> shape);

// Elements of a slice from `begin` on.
struct TensorPiece {
  TensorSlice slice;
  int64_t begin = 0;
  // Those elements, contiguous.
  at::Tensor values;
};

// What of the pieces this rank writes: shares their storage. A whole tensor has its shape.
std::vector<NamedTensor> EntriesOf(const std::vector<TensorPiece>& pieces);

// Elements of a tensor that are not read yet.
struct MissingPiece {
  // Of the whole tensor.
  std::string name;
  std::vector<int64_t> shape;
  // In `destination`, which is contiguous and of one dimension.
  std::vector<LocatedBlock> blocks;
  at::Tensor destination;
};

std::vector<MissingPiece> PiecesToRead(const std::vector<TensorPiece>& pieces);

// Whether what is read may be of another floating-point type than where it goes.
enum class StoredTypes : uint8_t { kSame, kAnyFloat };

// Reads what the file has of `missing`, which is then what is still missing. Where types or devices differ, a
// run of elements at a time is in memory beside its destination. Possible errors: INVALID_ARGUMENT (a tensor
// of another type or shape; names it and the file), RESOURCE_EXHAUSTED (memory), INTERNAL.
absl::Status ReadPieces(const TensorFile& file, std::vector<MissingPiece>& missing,
                        StoredTypes types = StoredTypes::kSame);

}  // namespace penstock::worker
