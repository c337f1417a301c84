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
// else; a run of elements at a time is in memory beside them, where types or devices differ. Possible errors:
// NOT_FOUND (no such folder or files), INVALID_ARGUMENT (a broken file; a tensor that is missing, or of
// another shape or kind: names it), RESOURCE_EXHAUSTED (memory), UNAVAILABLE.
absl::Status ReadInitialValues(const std::string& folder, const std::vector<TensorPiece>& pieces);

// What names of masters begin with; the parameter's name follows.
inline constexpr char kMasterPrefix[] = "optimizer.master.";

// The same for masters, by those names: where the files have none, as of a model that was imported, they are
// what the files have of the parameters, before they are rounded.
absl::Status ReadInitialMasters(const std::string& folder, const std::vector<TensorPiece>& masters);

}  // namespace penstock::worker
