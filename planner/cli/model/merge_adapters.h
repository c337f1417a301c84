// The model that adapters make of the one that they are beside: W + scale * B A in place of each W.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "planner/cli/model/model_folder.h"

namespace penstock::cli {

// Of a scale: alpha / rank, or alpha / sqrt(rank).
double ScaleOf(const v1::Adapters& adapters);

// Writes all tensors of the model, in Penstock's layout and as its base has them but for those that are
// adapted, to a checkpoint's folder of one rank. Computes in float64, and rounds to the number format of the
// base. One tensor is in memory at a time. Possible errors: INVALID_ARGUMENT (a checkpoint of another model:
// names the tensor), those of the file system.
absl::Status MergeAdapters(const ModelFolder& folder, const std::string& to);

}  // namespace penstock::cli
