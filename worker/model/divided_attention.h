// Attention of a piece whose keys may lie on several context ranks: over its own keys and over those that
// were received, merged (attention_kernel.h). A piece that is not divided has its own alone, and waits for no
// others.
#pragma once

#include <cstddef>

#include "worker/model/attention.h"
#include "worker/model/attention_kernel.h"

namespace penstock::worker {

// `index`: of shape.pieces. `piece`: its operands, [count, heads, queries or keys, width].
KernelResult DividedForward(const AttentionOptions& options, const AttentionShape& shape, size_t index,
                            const AttentionOperands& piece, ArrivingKeys& received);

// The part of a divided piece's backward pass that is made of received keys: overwrites `gradients` and adds
// to `others`, the gradients of what was received.
void ReceivedBackward(const AttentionOptions& options, const AttentionShape& shape, size_t index,
                      const AttentionOperands& piece, ArrivingKeys& received, const KernelResult& merged,
                      const at::Tensor& gradient, const AttentionOperands& gradients,
                      const ReceivedKeys& others);

// The part that is made of the piece's own keys. Of a divided piece it comes behind ReceivedBackward and adds
// to `gradients`; of another one it is all, and overwrites them.
void OwnBackward(const AttentionOptions& options, const AttentionShape& shape, size_t index,
                 const AttentionOperands& piece, const KernelResult& merged, const at::Tensor& gradient,
                 const AttentionOperands& gradients);

}  // namespace penstock::worker
