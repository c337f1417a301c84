// Causal multi-head attention over the layouts of a micro-batch.
//
// Padding lies behind a sample's tokens, so that the causal mask alone keeps it away from them. Packed
// samples are attended one by one: by the varlen flash kernel on GPU (float16, bfloat16), by a loop over the
// samples elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Neighbouring samples of one length, which are attended in one call.
struct SampleRun {
  int64_t samples = 0;
  int64_t length = 0;
};

// How the tokens of a micro-batch lie in memory, as attention sees it.
struct AttentionShape {
  Layout layout = Layout::kPadded;
  // Padded.
  int64_t rows = 0;
  int64_t length = 0;
  // Packed: the samples in order.
  std::vector<SampleRun> runs;
  // Packed, where flash attention is used: int32 [samples + 1] on the device, and the longest sample.
  at::Tensor cu_seqlens;
  int64_t longest = 0;
};

AttentionShape MakeAttentionShape(const MicroBatch& shape, at::ScalarType type, at::Device device);

// `qkv`: [..., 3 * inner], the fused projection. Returns [..., inner].
at::Tensor CausalAttention(const at::Tensor& qkv, int64_t heads, const AttentionShape& shape);

// worker/model/flash_attention.cc, built with PENSTOCK_CUDA. query, key, value: [tokens, heads, width].
bool FlashAttentionSupports(at::ScalarType type, at::Device device);
at::Tensor FlashAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const at::Tensor& cu_seqlens, int64_t longest);

}  // namespace penstock::worker
