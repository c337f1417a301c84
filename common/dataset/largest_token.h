// How large a vocabulary a dataset needs.
#pragma once

#include <cstdint>

#include "common/dataset/indexed_dataset.h"

namespace penstock {

// The largest token id; 0 without tokens. Reads all tokens.
int32_t LargestToken(const IndexedDataset& dataset);

}  // namespace penstock
