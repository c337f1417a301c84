// How many positions the head computes at a time. Without LibTorch: the account of memory asks too.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::worker {

// Logits that may exist at a time, however few positions there are: 64 MiB of float32.
inline constexpr int64_t kLogitsPerChunk = int64_t{1} << 24;

// Each chunk goes once over the head's matrix and its gradient, [vocab, hidden], so chunks grow with the
// positions (as in Hsu et al., "Liger Kernel", 2024, section 3.2): the logits of one are no more than the
// hidden states of all, and the matrix is read vocab / hidden times at most.
constexpr int64_t PositionsPerChunk(int64_t positions, int64_t hidden, int64_t vocab) {
  return std::max<int64_t>(1, std::max(kLogitsPerChunk, positions * hidden) / vocab);
}

}  // namespace penstock::worker
