// How large a vocabulary a dataset needs.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"

namespace penstock {

// The largest token id; 0 without tokens. Reads all tokens. Possible errors: those of Tokens.
absl::StatusOr<int32_t> LargestToken(const IndexedDataset& dataset);

}  // namespace penstock
