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
  return {std::move(output), std::move(log_sums), false};
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

int64_t MostQueries(const RowBegins& rows, const AttentionOperands& piece) {
  return rows.defined() ? rows.longest_query : piece.query.size(2);
}

int64_t MostKeys(const RowBegins& rows, const AttentionOperands& piece) {
  return rows.defined() ? rows.longest_key : piece.key.size(2);
}

// Without the rules that hide nothing of this piece.
AttentionOptions RulesThatHide(AttentionOptions options, const RowBegins& rows,
                               const AttentionOperands& piece, int64_t lead) {
  if (lead >= MostKeys(rows, piece) - 1) options.causal = false;
  if (lead + MostQueries(rows, piece) <= options.window) options.window = 0;
  return options;
}

enum class KernelKind : uint8_t { kCpu, kFlash, kProducts };

KernelKind KindOf(const AttentionOptions& options, const AttentionOperands& piece, int64_t lead) {
  // A fused kernel's causal mask has its diagonal at the begin or the end.
  const bool square = lead == 0 && piece.query.size(2) == piece.key.size(2);
  if (options.score_cap > 0 || (options.causal && !square)) return KernelKind::kProducts;
  if (piece.query.is_cpu()) return options.window > 0 ? KernelKind::kProducts : KernelKind::kCpu;
  return IsForFlash(piece) && (options.window == 0 || square) ? KernelKind::kFlash : KernelKind::kProducts;
}

}  // namespace

KernelResult KernelForward(const AttentionOptions& options, const RowBegins& rows,
                           const AttentionOperands& piece, int64_t lead) {
  const AttentionOptions hiding = RulesThatHide(options, rows, piece, lead);
  switch (KindOf(hiding, piece, lead)) {
    case KernelKind::kCpu:
      return CpuForward(hiding, piece);
    case KernelKind::kFlash:
      return FlashForward(hiding, rows, piece);
    case KernelKind::kProducts:
      return ProductForward(hiding, piece, lead);
  }
  return {};
}

void KernelBackward(const AttentionOptions& options, const RowBegins& rows, const AttentionOperands& piece,
                    const KernelResult& merged, const at::Tensor& gradient, Write write,
                    const AttentionOperands& gradients, int64_t lead) {
  const AttentionOptions hiding = RulesThatHide(options, rows, piece, lead);
  switch (KindOf(hiding, piece, lead)) {
    case KernelKind::kCpu:
      return GroupedCpuBackward(hiding, piece, merged, gradient, write, gradients);
    case KernelKind::kFlash:
      return Put(write, FlashBackward(hiding, rows, piece, merged, gradient), gradients);
    case KernelKind::kProducts:
      return Put(write, ProductBackward(hiding, piece, merged, gradient, lead), gradients);
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
