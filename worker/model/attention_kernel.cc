#include "worker/model/attention_kernel.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace penstock::worker {
namespace {

KernelResult CpuForward(const AttentionOptions& options, const AttentionOperands& piece) {
  auto [output, log_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(piece.query, piece.key, piece.value, /*dropout_p=*/0.0,
                                                      options.causal, /*attn_mask=*/{}, options.scale);
  return {std::move(output), std::move(log_sums)};
}

void Put(Write write, const at::Tensor& from, const at::Tensor& to) {
  write == Write::kAdd ? to.add_(from) : to.copy_(from);
}

void Put(Write write, const AttentionOperands& from, const AttentionOperands& to) {
  Put(write, from.query, to.query);
  Put(write, from.key, to.key);
  Put(write, from.value, to.value);
}

// As many heads of keys as of queries.
AttentionOperands CpuBackward(const AttentionOptions& options, const AttentionOperands& piece,
                              const KernelResult& merged, const at::Tensor& gradient) {
  auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, piece.query, piece.key, piece.value, merged.output, merged.log_sums, /*dropout_p=*/0.0,
      options.causal, /*attn_mask=*/{}, options.scale);
  return {std::move(query), std::move(key), std::move(value)};
}

// Where query heads share a key, one group of heads after the other: given all at once, the kernel adds up
// the gradients of a key in its own type, which in bfloat16 has two to three times the error.
void GroupedCpuBackward(const AttentionOptions& options, const AttentionOperands& piece,
                        const KernelResult& merged, const at::Tensor& gradient, Write write,
                        const AttentionOperands& gradients) {
  const int64_t size = options.heads / options.key_value_heads;
  if (size == 1) {
    Put(write, CpuBackward(options, piece, merged, gradient), gradients);
    return;
  }
  for (int64_t group = 0; group < options.key_value_heads; ++group) {
    const auto heads = [&](const at::Tensor& tensor) { return tensor.narrow(1, group * size, size); };
    // Views, not copies.
    const auto repeated = [&](const at::Tensor& tensor) {
      return tensor.narrow(1, group, 1).expand({-1, size, -1, -1});
    };
    const AttentionOperands own =
        CpuBackward(options, {heads(piece.query), repeated(piece.key), repeated(piece.value)},
                    {heads(merged.output), heads(merged.log_sums)}, heads(gradient));
    Put(write, own.query, heads(gradients.query));
    Put(write, own.key.sum(1), gradients.key.select(1, group));
    Put(write, own.value.sum(1), gradients.value.select(1, group));
  }
}

bool IsForFlash(const AttentionOperands& piece) {
  return FlashAttentionSupports(piece.query.scalar_type(), piece.query.device(), piece.query.size(3));
}

}  // namespace

KernelResult KernelForward(const AttentionOptions& options, const RowBegins& rows,
                           const AttentionOperands& piece) {
  if (piece.query.is_cpu()) return CpuForward(options, piece);
  if (IsForFlash(piece)) return FlashForward(options, rows, piece);
  return ProductForward(options, piece);
}

void KernelBackward(const AttentionOptions& options, const RowBegins& rows, const AttentionOperands& piece,
                    const KernelResult& merged, const at::Tensor& gradient, Write write,
                    const AttentionOperands& gradients) {
  if (piece.query.is_cpu()) {
    GroupedCpuBackward(options, piece, merged, gradient, write, gradients);
  } else if (IsForFlash(piece)) {
    Put(write, FlashBackward(options, rows, piece, merged, gradient), gradients);
  } else {
    Put(write, ProductBackward(options, piece, merged, gradient), gradients);
  }
}

void Merge(const KernelResult& other, const KernelResult& result) {
  const at::Tensor sums = at::logaddexp(result.log_sums, other.log_sums);
  const auto share = [&](const KernelResult& part) {
    return at::mul(part.output, at::exp(part.log_sums - sums).unsqueeze(3));
  };
  result.output.copy_(share(result).add_(share(other)));
  result.log_sums.copy_(sums);
}

}  // namespace penstock::worker
