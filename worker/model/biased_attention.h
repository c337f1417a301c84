// Attention of one piece with a relative bias: scores, softmax and values as products, for some samples at a
// time, so that memory does not grow with the square of all lengths. Private to attention.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/attention.h"

namespace penstock::worker {

// Operands, results and gradients: [count, heads, queries or keys, width]. `log_sums`, [count, heads,
// queries, 1], is written where it is not null.
at::Tensor BiasedForward(const AttentionOptions& options, const AttentionShape& shape,
                         const AttentionPiece& piece, const AttentionOperands& operands,
                         at::Tensor* log_sums);

// Overwrites `gradients` and adds to the gradient of the bias. `log_sums` may be undefined: it is made again.
void BiasedBackward(const AttentionOptions& options, const AttentionShape& shape, const AttentionPiece& piece,
                    const AttentionOperands& operands, const at::Tensor& attended, const at::Tensor& log_sums,
                    const at::Tensor& gradient, const AttentionOperands& gradients);

}  // namespace penstock::worker
