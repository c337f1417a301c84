// Fused attention of one piece with the logarithms of its sums, so that results over different keys can be
// merged, and each part's gradients be made from the merged result (Dao, "FlashAttention-2", 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/model/attention.h"

namespace penstock::worker {

// [count, heads, queries, width], and of the scores' exponentials [count, heads, queries], at least float32.
struct KernelResult {
  at::Tensor output;
  at::Tensor log_sums;
  // For a backward pass: no query sees keys that are not given.
  bool whole = false;
};

// Operands: [count, heads, queries or keys, width], none of them empty. `rows`, where defined, divides the
// queries and keys of a piece, whose count is 1. `lead`: how far the first query lies behind the first key in
// the row, for causal attention, at least 0; every query sees a key.
KernelResult KernelForward(const AttentionOptions& options, const RowBegins& rows,
                           const AttentionOperands& piece, int64_t lead = 0);

enum class Write : uint8_t { kOverwrite, kAdd };

// Writes the gradients of the operands, or adds them. `merged`: over all keys that the queries see, these and
// others.
void KernelBackward(const AttentionOptions& options, const RowBegins& rows, const AttentionOperands& piece,
                    const KernelResult& merged, const at::Tensor& gradient, Write write,
                    const AttentionOperands& gradients, int64_t lead = 0);

// worker/model/flash_attention.cc, built with PENSTOCK_CUDA.
KernelResult FlashForward(const AttentionOptions& options, const RowBegins& rows,
                          const AttentionOperands& piece);
AttentionOperands FlashBackward(const AttentionOptions& options, const RowBegins& rows,
                                const AttentionOperands& piece, const KernelResult& merged,
                                const at::Tensor& gradient);

// Any device and type, from products of some queries' scores at a time, over the keys that these queries see:
// what there is no fused kernel for, or on a GPU none that gives its sums.
KernelResult ProductForward(const AttentionOptions& options, const AttentionOperands& piece,
                            int64_t lead = 0);
AttentionOperands ProductBackward(const AttentionOptions& options, const AttentionOperands& piece,
                                  const KernelResult& merged, const at::Tensor& gradient, int64_t lead = 0);

// Makes of a result over some keys that over these and the keys of `other`, in place.
void Merge(const KernelResult& other, const KernelResult& result);

}  // namespace penstock::worker
