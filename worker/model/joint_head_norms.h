// RMS norms of queries and keys over all heads together, before they are turned (OLMo 2; Team OLMo, "2 OLMo 2
// Furious", 2025, section 3.1). Tensor ranks, which have some of the heads each, sum squares, and in the
// backward pass products, of each token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/norm.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

// One of the two. Its weight is this rank's part of one for all heads, [heads here * width].
struct JointNorm {
  NormPart norm;
  // Elements of all heads of the model.
  int64_t elements = 0;
  // Tensor ranks that have the same heads: of keys, where there are more ranks than heads.
  int64_t holders = 1;
};

struct JointHeadNormsPart {
  JointNorm query;
  JointNorm key;
  StageGroup* group = &SoleRank();
};

struct JointHeadNormsMemory {
  // As they were before, [tokens, heads here * width].
  at::Tensor query;
  at::Tensor key;
  // 1 / root of the mean square over all heads, [tokens, 1].
  at::Tensor query_scale;
  at::Tensor key_scale;
};

// In place. `queries` and `keys`: columns of a projection, of all tokens of the context rank.
void NormaliseJointly(const JointHeadNormsPart& part, const at::Tensor& queries, const at::Tensor& keys,
                      JointHeadNormsMemory& memory);

// Their gradients, in place.
void JointHeadNormsBackward(const JointHeadNormsPart& part, const JointHeadNormsMemory& memory,
                            const at::Tensor& queries, const at::Tensor& keys);

}  // namespace penstock::worker
