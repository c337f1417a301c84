// Multi-head attention, forward and backward, on flat activations.
//
//   AttentionOptions options = {.heads = 8, .key_value_heads = 2, .causal = true};
//   AttentionMemory memory;
//   at::Tensor attended = AttentionForward(options, shape, {query, key, value}, &memory);
//   AttentionBackward(options, shape, operands, attended, memory, attended_gradient, gradients);
//
// Where heads have no bias the fused kernels run (Dao, "FlashAttention-2", 2023), one call for each piece.
// All packed samples are one piece on a GPU in 16-bit types. With a relative bias, whose gradient the kernels
// do not give, scores exist for some samples at a time and are made again in the backward pass; so do those
// of layers with windows (but on a GPU in 16-bit types) or capped scores, for some queries at a time, of the
// keys that these see.
//
// Where rows of the micro-batch are divided over context ranks, both passes begin with an exchange of keys
// and values (key_exchange.h), and the backward pass has one of their gradients: all context ranks call them
// in the same order. Queries attend to the keys of their own rank and to those of others apart, and the
// results are merged. What is on its way is waited for when nothing else is left: rows that are not divided,
// and keys of the own rank, hide it. The backward pass begins with the keys of others, whose gradients then
// travel beside everything else; so it wants these keys before it begins (ReceiveAhead).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/attention_shape.h"
#include "worker/model/graph.h"
#include "worker/model/key_exchange.h"
#include "worker/model/relative_bias.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

struct AttentionOptions {
  int64_t heads = 0;
  // Of keys and values: each for heads / key_value_heads query heads in order (Ainslie et al., "GQA: training
  // generalized multi-query Transformer models from multi-head checkpoints", 2023). As many as heads where
  // the scores have a bias.
  int64_t key_value_heads = 0;
  // A query sees the keys up to its own place in the piece.
  bool causal = false;
  // And of these, its own and the window - 1 before it in the row. 0: all. Causal attention alone has one.
  int64_t window = 0;
  // Factor of the scores.
  double scale = 1;
  // Scores x become cap * tanh(x / cap) (Bello et al., "Neural combinatorial optimization", 2016, section
  // 4.2); 0: they stay.
  double score_cap = 0;
  // May be null.
  const RelativeBias* bias = nullptr;
  // With whom keys and values are exchanged. Outlives the call.
  StageGroup* group = &SoleRank();
};

// [queries, heads * width] and [keys, key_value_heads * width]; rows may be strided.
struct AttentionOperands {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
};

// What the backward pass needs beside operands and result, for each piece. Without it, it is made again
// (selective recompute; Korthikanti et al., "Reducing activation recomputation in large Transformer models",
// 2022, section 5).
struct AttentionMemory {
  struct Piece {
    // Logarithms of the sums of exponentials of the scores.
    at::Tensor log_sums;
    // GPU in other types, nothing exchanged: the fused kernel's graph, from `leaves` to `end`.
    AttentionOperands leaves;
    GraphEnd end;
  };
  std::vector<Piece> pieces;
  // Asks the forward pass to keep what it received, where the backward pass comes next: it is not exchanged
  // again.
  bool keep_received = false;
  ArrivingKeys received;
};

// [queries, heads * width]; zeros where a query has no key. `memory` may be null. `carried`: of a part of a
// micro-batch, what it finds of the parts before it, replaced by what the next one finds; null where no row
// is cut.
at::Tensor AttentionForward(const AttentionOptions& options, const AttentionShape& shape,
                            const AttentionOperands& operands, AttentionMemory* memory,
                            CarriedKeys* carried = nullptr);

// Begins to exchange the keys and values that the backward pass needs, where the forward pass did not keep
// them and rows are divided: they travel beside what runs before that pass. It begins them itself where this
// was not called; all context ranks call it, or none.
void ReceiveAhead(const AttentionOptions& options, const AttentionShape& shape,
                  const AttentionOperands& operands, AttentionMemory& memory);

// Overwrites `gradients`, tensors like the operands. `attended`: the result of the forward pass. `memory` is
// used up; it may be empty.
void AttentionBackward(const AttentionOptions& options, const AttentionShape& shape,
                       const AttentionOperands& operands, const at::Tensor& attended, AttentionMemory memory,
                       const at::Tensor& attended_gradient, const AttentionOperands& gradients);

// Whether a kernel of the GPU takes heads of the width, and rows of every length in one call.
bool FlashAttentionSupports(at::ScalarType type, at::Device device, int64_t width);

}  // namespace penstock::worker
