// Moves tensors between the two layouts of checkpoint_names.h, a few megabytes at a time, or, where rows and
// columns change places, one tensor at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/safetensors/writer.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/tensor_set.h"

namespace penstock::cli {

// The tensor that a piece is of, as its file has it.
std::vector<int64_t> ShapeOfPiece(const TensorNames& names, const TensorPiece& piece);

// Appends the rows of the stored tensor that are `piece` to what will be Penstock's tensor.
absl::Status AppendFromPiece(const FoundTensor& stored, const TensorNames& names, const TensorPiece& piece,
                             SafetensorsWriter& writer);

// Appends the rows of Penstock's tensor from `first_row` on that are `piece`.
absl::Status AppendPiece(const FoundTensor& tensor, const TensorNames& names, const TensorPiece& piece,
                         int64_t first_row, SafetensorsWriter& writer);

}  // namespace penstock::cli
