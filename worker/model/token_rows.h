// The tokens of a context rank between and inside layers (sequence parallelism; Korthikanti et al., "Reducing
// activation recomputation in large Transformer models", 2022, section 4.2.2): norms and the residual stream
// are computed by each tensor rank for its share of the tokens, what is divided between them for all.
//
//   const TokenRows rows = {&group, shape.queries};
//   at::Tensor partial = product(rows.Gather(own));   // [all tokens, ...] of a layer that has its part of
//   the outputs at::Tensor sum = rows.Sum(partial);               // [own tokens, ...] behind one that has
//   its part of the inputs
//
// With one tensor rank nothing is copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/comm/shard.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

struct RoutedSamples;

struct TokenRows {
  StageGroup* group = &SoleRank();
  // Of the context rank: all of a micro-batch, or of one of its parts.
  ListedRows tokens = 0;
  // Whose they are (routed_samples.h); null where nobody asks.
  const RoutedSamples* samples = nullptr;

  bool divided() const { return group->place().tensors > 1; }
  Shard own() const { return ShardOf(tokens, group->place().tensor, group->place().tensors); }
  at::Tensor Gather(const at::Tensor& own_rows) const { return group->GatherRows(own_rows, tokens); }
  at::Tensor Sum(const at::Tensor& partial) const { return group->SumRows(partial, tokens); }
};

}  // namespace penstock::worker
