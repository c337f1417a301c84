// Pieces of tensors in a checkpoint: where replicas divide the optimizer's state, each writes what it has of
// a tensor, and whoever continues takes what it needs from all of them, however it is divided now.
//
//   "optimizer.first_moment.head.weight"             the whole tensor, in its shape
//   "optimizer.first_moment.head.weight[512:1024]"   its elements 512 to 1023, in one dimension
//
//   std::vector<MissingPiece> missing = PiecesToRead(state);
//   for (const TensorFile& file : files) PENSTOCK_RETURN_IF_ERROR(ReadPieces(file, missing));
//   if (!missing.empty()) ... no file has missing.front() ...
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/tensor_file.h"

namespace penstock::worker {

// What a checkpoint calls the elements of the tensor `name`, of shape `sizes`, that begin with `begin`;
// `values` are those elements, in one dimension and contiguous. The result shares their storage.
NamedTensor PieceOf(const std::string& name, at::IntArrayRef sizes, int64_t begin, const at::Tensor& values);

// Elements of a tensor that are not read yet.
struct MissingPiece {
  // Of the whole tensor.
  std::string name;
  // Of the whole tensor; empty where only a piece of it is known.
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  // Contiguous, in one dimension.
  at::Tensor destination;
};

// `tensors` are contiguous and named as above.
std::vector<MissingPiece> PiecesToRead(const std::vector<NamedTensor>& tensors);

// Reads what the file has of `missing`, which is then what is still missing.
// Possible errors: INVALID_ARGUMENT (a tensor of another type or shape; names it and the file), INTERNAL.
absl::Status ReadPieces(const TensorFile& file, std::vector<MissingPiece>& missing);

}  // namespace penstock::worker
