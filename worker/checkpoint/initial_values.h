// Values to begin training with that are not drawn by chance: those of a checkpoint, whoever wrote it.
//
//   PENSTOCK_RETURN_IF_ERROR(ReadInitialValues("models/llama/checkpoints/iteration-0", pieces));
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/tensor_piece.h"

namespace penstock::worker {

// Reads each piece from the folder's files rank-*.safetensors, which may be of another floating-point type
// and divided in any other way, and must be of tensors of the same shapes. Reads what is copied and nothing
// else; a run of elements at a time is in memory beside them, where types or devices differ. The state of an
// optimizer is not read. Possible errors: NOT_FOUND (no such folder or files), INVALID_ARGUMENT (a broken
// file; a tensor that is missing, or of another shape or kind: names it), RESOURCE_EXHAUSTED (memory),
// UNAVAILABLE.
absl::Status ReadInitialValues(const std::string& folder, const std::vector<TensorPiece>& pieces);

}  // namespace penstock::worker
