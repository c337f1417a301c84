// How long the samples of a batch are.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock {

// Samples of `from` to `to` tokens, input and target together.
struct LengthBucket {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t samples = 0;
  uint64_t tokens = 0;
};

// Buckets that double (1, 2 to 3, 4 to 7, ...), from that of the shortest sample to that of the longest.
std::vector<LengthBucket> LengthHistogram(const v1::Batch& batch);

}  // namespace penstock
