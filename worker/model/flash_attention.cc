// Attention on a GPU in 16-bit types: one kernel for a rectangle, or for all packed samples (Dao,
// "FlashAttention-2", 2023), that gives the logarithms of its sums.
//
// ATen's own choice (at::scaled_dot_product_attention) would be cuDNN, which compiles a kernel for each shape
// that it has not seen: 0.2 s, where samples of every length come.
#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <optional>

#include "worker/model/attention_kernel.h"

namespace penstock::worker {
namespace {

// Of the kernel.
constexpr int64_t kWidthMultiple = 8;
constexpr int64_t kWidestHead = 256;

// [..., width], with zeros up to a width that the kernel takes. They add nothing to a product.
at::Tensor Widened(const at::Tensor& heads) {
  const int64_t missing = (kWidthMultiple - heads.size(-1) % kWidthMultiple) % kWidthMultiple;
  return missing == 0 ? heads : at::constant_pad_nd(heads, {0, missing});
}

// Between [count, heads, length, width] and the kernel's [count, length, heads, width], or [tokens, heads,
// width] with rows.
at::Tensor ByToken(const at::Tensor& heads, const RowBegins& rows) {
  const at::Tensor tokens = Widened(heads.transpose(1, 2));
  return rows.defined() ? tokens.squeeze(0) : tokens;
}

at::Tensor ByHead(const at::Tensor& tokens, const RowBegins& rows, int64_t width) {
  return (rows.defined() ? tokens.unsqueeze(0) : tokens).narrow(-1, 0, width).transpose(1, 2);
}

int64_t LongestQuery(const RowBegins& rows, const AttentionOperands& piece) {
  return rows.defined() ? rows.longest_query : piece.query.size(2);
}

int64_t LongestKey(const RowBegins& rows, const AttentionOperands& piece) {
  return rows.defined() ? rows.longest_key : piece.key.size(2);
}

// Keys before its own that a query sees; all where there is no window.
std::optional<int64_t> KeysBefore(const AttentionOptions& options) {
  return options.window > 0 ? std::optional(options.window - 1) : std::nullopt;
}

// And behind it.
std::optional<int64_t> KeysBehind(const AttentionOptions& options) {
  return options.window > 0 ? std::optional<int64_t>(0) : std::nullopt;
}

std::optional<at::Tensor> Optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

bool FlashAttentionSupports(at::ScalarType type, at::Device device, int64_t width) {
  return device.is_cuda() && (type == at::kBFloat16 || type == at::kHalf) && width <= kWidestHead;
}

KernelResult FlashForward(const AttentionOptions& options, const RowBegins& rows,
                          const AttentionOperands& piece) {
  const auto result = at::_flash_attention_forward(
      ByToken(piece.query, rows), ByToken(piece.key, rows), ByToken(piece.value, rows),
      Optional(rows.queries), Optional(rows.keys), LongestQuery(rows, piece), LongestKey(rows, piece),
      /*dropout_p=*/0.0, options.causal, /*return_debug_mask=*/false, options.scale, KeysBefore(options),
      KeysBehind(options));
  const at::Tensor& log_sums = std::get<1>(result);
  return {ByHead(std::get<0>(result), rows, piece.query.size(3)),
          rows.defined() ? log_sums.unsqueeze(0) : log_sums};
}

AttentionOperands FlashBackward(const AttentionOptions& options, const RowBegins& rows,
                                const AttentionOperands& piece, const KernelResult& merged,
                                const at::Tensor& gradient) {
  const at::Tensor log_sums = (rows.defined() ? merged.log_sums.squeeze(0) : merged.log_sums).contiguous();
  // Seed and offset of dropout, which nothing reads.
  const at::Tensor none = at::empty({0}, piece.query.options().dtype(at::kLong));
  const auto [query, key, value] = at::_flash_attention_backward(
      ByToken(gradient, rows), ByToken(piece.query, rows), ByToken(piece.key, rows),
      ByToken(piece.value, rows), ByToken(merged.output, rows), log_sums, rows.queries, rows.keys,
      LongestQuery(rows, piece), LongestKey(rows, piece), /*dropout_p=*/0.0, options.causal, none, none,
      options.scale, KeysBefore(options), KeysBehind(options));
  const int64_t width = piece.query.size(3);
  return {ByHead(query, rows, width), ByHead(key, rows, width), ByHead(value, rows, width)};
}

}  // namespace penstock::worker
