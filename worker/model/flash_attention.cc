// Packed attention on GPU: one varlen kernel for all samples (Dao, "FlashAttention-2", 2023), with ATen's own
// derivative; and single calls that give their sums, for what is merged.
#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <optional>

#include "worker/model/attention_kernel.h"

namespace penstock::worker {
namespace {

// Between [count, heads, length, width] and the kernel's [count, length, heads, width], or [tokens, heads,
// width] with lengths. Views.
at::Tensor ByToken(const at::Tensor& heads, bool packed) {
  const at::Tensor tokens = heads.transpose(1, 2);
  return packed ? tokens.squeeze(0) : tokens;
}

at::Tensor ByHead(const at::Tensor& tokens, bool packed) {
  return (packed ? tokens.unsqueeze(0) : tokens).transpose(1, 2);
}

}  // namespace

bool FlashAttentionSupports(at::ScalarType type, at::Device device) {
  return device.is_cuda() && (type == at::kBFloat16 || type == at::kHalf);
}

at::Tensor FlashAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const at::Tensor& cu_seqlens, int64_t longest) {
  return std::get<0>(at::_flash_attention_forward(query, key, value, cu_seqlens, cu_seqlens, longest, longest,
                                                  /*dropout_p=*/0.0, /*is_causal=*/true,
                                                  /*return_debug_mask=*/false));
}

KernelResult FlashForward(const AttentionOptions& options, const AttentionOperands& piece,
                          const at::Tensor& cu_seqlens, int64_t longest) {
  const bool packed = cu_seqlens.defined();
  const std::optional<at::Tensor> lengths = packed ? std::optional(cu_seqlens) : std::nullopt;
  const auto result = at::_flash_attention_forward(
      ByToken(piece.query, packed), ByToken(piece.key, packed), ByToken(piece.value, packed), lengths,
      lengths, packed ? longest : piece.query.size(2), packed ? longest : piece.key.size(2),
      /*dropout_p=*/0.0, options.causal, /*return_debug_mask=*/false, options.scale);
  const at::Tensor& log_sums = std::get<1>(result);
  return {ByHead(std::get<0>(result), packed), packed ? log_sums.unsqueeze(0) : log_sums};
}

AttentionOperands FlashBackward(const AttentionOptions& options, const AttentionOperands& piece,
                                const at::Tensor& cu_seqlens, int64_t longest, const KernelResult& merged,
                                const at::Tensor& gradient) {
  const bool packed = cu_seqlens.defined();
  const at::Tensor log_sums = (packed ? merged.log_sums.squeeze(0) : merged.log_sums).contiguous();
  // Seed and offset of dropout, which nothing reads.
  const at::Tensor none = at::empty({0}, piece.query.options().dtype(at::kLong));
  const auto [query, key, value] = at::_flash_attention_backward(
      ByToken(gradient, packed), ByToken(piece.query, packed), ByToken(piece.key, packed),
      ByToken(piece.value, packed), ByToken(merged.output, packed), log_sums, cu_seqlens, cu_seqlens,
      packed ? longest : piece.query.size(2), packed ? longest : piece.key.size(2), /*dropout_p=*/0.0,
      options.causal, none, none, options.scale);
  return {ByHead(query, packed), ByHead(key, packed), ByHead(value, packed)};
}

}  // namespace penstock::worker
