#include "common/dataset/largest_token.h"

#include <algorithm>
#include <vector>

#include "common/status/status_macros.h"

namespace penstock {

absl::StatusOr<int32_t> LargestToken(const IndexedDataset& dataset) {
  int32_t largest = 0;
  for (size_t sample = 0; sample < dataset.size(); ++sample) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, dataset.Tokens(sample));
    for (const int32_t token : tokens) largest = std::max(largest, token);
  }
  return largest;
}

}  // namespace penstock
