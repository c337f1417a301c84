// RMS norms of queries and keys, head by head, before they are turned (Dehghani et al., "Scaling vision
// Transformers to 22 billion parameters", 2023, section 2; as in Qwen3).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/norm.h"

namespace penstock::worker {

struct HeadNormsPart {
  // Weights [width of a head], which all heads have in common: whole on every tensor rank.
  NormPart query;
  NormPart key;
};

// The heads as they were before, [tokens x heads, width].
struct HeadNormsMemory {
  at::Tensor query;
  at::Tensor key;
  NormStatistics query_statistics;
  NormStatistics key_statistics;
};

// In place. `queries` and `keys`: columns of a projection, [tokens, heads x width].
void NormaliseHeads(const HeadNormsPart& part, const at::Tensor& queries, const at::Tensor& keys,
                    HeadNormsMemory& memory);

// Their gradients, in place.
void HeadNormsBackward(const HeadNormsPart& part, HeadNormsMemory memory, const at::Tensor& queries,
                       const at::Tensor& keys);

}  // namespace penstock::worker
