#include "common/dataset/largest_token.h"

#include <algorithm>

namespace penstock {

int32_t LargestToken(const IndexedDataset& dataset) {
  int32_t largest = 0;
  for (size_t sample = 0; sample < dataset.size(); ++sample) {
    for (const int32_t token : dataset.Tokens(sample)) largest = std::max(largest, token);
  }
  return largest;
}

}  // namespace penstock
