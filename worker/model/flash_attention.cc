// Packed attention on GPU: one varlen kernel for all samples (Dao, "FlashAttention-2", 2023), with ATen's own
// derivative.
#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_forward.h>

#include "worker/model/attention.h"

namespace penstock::worker {

bool FlashAttentionSupports(at::ScalarType type, at::Device device) {
  return device.is_cuda() && (type == at::kBFloat16 || type == at::kHalf);
}

at::Tensor FlashAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const at::Tensor& cu_seqlens, int64_t longest) {
  return std::get<0>(at::_flash_attention_forward(query, key, value, cu_seqlens, cu_seqlens, longest, longest,
                                                  /*dropout_p=*/0.0, /*is_causal=*/true,
                                                  /*return_debug_mask=*/false));
}

}  // namespace penstock::worker
