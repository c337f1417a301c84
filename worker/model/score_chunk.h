// How many scores of attention with a relative bias exist at a time. Without LibTorch: the account of memory
// asks too.
#pragma once

#include <cstdint>

namespace penstock::worker {

// Or those of one head of one sample, where these are more. 4 MiB of float32 on a CPU, whose caches they
// should be in; 16 MiB on a GPU, which many small kernels hold up.
inline constexpr int64_t kScoresPerChunkOnCpu = int64_t{1} << 20;
inline constexpr int64_t kScoresPerChunkOnGpu = int64_t{1} << 22;

}  // namespace penstock::worker
