#include "worker/model/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "worker/model/biased_attention.h"

namespace penstock::worker {
namespace {

// [count * stride, heads * width] from `begin` to [count, heads, length, width]; a view.
at::Tensor Heads(const at::Tensor& flat, int64_t heads, int64_t begin, int64_t count, int64_t stride,
                 int64_t length) {
  return flat.narrow(0, begin, count * stride)
      .view({count, stride, heads, flat.size(1) / heads})
      .narrow(1, 0, length)
      .transpose(1, 2);
}

at::Tensor QueryHeads(const at::Tensor& flat, int64_t heads, const AttentionPiece& piece) {
  return Heads(flat, heads, piece.query_begin, piece.count, piece.query_length, piece.query_length);
}

at::Tensor KeyHeads(const at::Tensor& flat, int64_t heads, const AttentionPiece& piece) {
  return Heads(flat, heads, piece.key_begin, piece.count, piece.key_stride, piece.key_length);
}

AttentionOperands PieceOperands(const AttentionOperands& flat, const AttentionOptions& options,
                                const AttentionPiece& piece) {
  return {QueryHeads(flat.query, options.heads, piece), KeyHeads(flat.key, options.key_value_heads, piece),
          KeyHeads(flat.value, options.key_value_heads, piece)};
}

// Query heads that share a key and a value head.
int64_t GroupSize(const AttentionOptions& options) { return options.heads / options.key_value_heads; }

// The query heads of a group, of a tensor [count, heads, ...].
at::Tensor GroupHeads(const AttentionOptions& options, const at::Tensor& heads, int64_t group) {
  return heads.narrow(1, group * GroupSize(options), GroupSize(options));
}

// A group's operands, with the key and the value head once for each query head: views, not copies.
AttentionOperands GroupOperands(const AttentionOptions& options, const AttentionOperands& piece,
                                int64_t group) {
  const auto repeated = [&](const at::Tensor& heads) {
    return heads.narrow(1, group, 1).expand({-1, GroupSize(options), -1, -1});
  };
  return {GroupHeads(options, piece.query, group), repeated(piece.key), repeated(piece.value)};
}

// Fused kernel of the CPU: [count, heads, queries, width], and log-sums, [count, heads, queries].
std::pair<at::Tensor, at::Tensor> FusedForward(const AttentionOptions& options,
                                               const AttentionOperands& piece) {
  auto [output, log_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(piece.query, piece.key, piece.value, /*dropout_p=*/0.0,
                                                      options.causal, /*attn_mask=*/{}, options.scale);
  return {std::move(output), std::move(log_sums)};
}

// The same where several query heads share a key: the kernel wants as many of both, so it is called for one
// group after the other.
std::pair<at::Tensor, at::Tensor> GroupedForward(const AttentionOptions& options,
                                                 const AttentionOperands& piece) {
  if (GroupSize(options) == 1) return FusedForward(options, piece);
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> log_sums;
  for (int64_t group = 0; group < options.key_value_heads; ++group) {
    auto [output, sums] = FusedForward(options, GroupOperands(options, piece, group));
    outputs.push_back(std::move(output));
    log_sums.push_back(std::move(sums));
  }
  return {at::cat(outputs, 1), at::cat(log_sums, 1)};
}

AttentionOperands FusedBackward(const AttentionOptions& options, const AttentionOperands& piece,
                                const at::Tensor& attended, const at::Tensor& log_sums,
                                const at::Tensor& gradient) {
  auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, piece.query, piece.key, piece.value, attended, log_sums, /*dropout_p=*/0.0, options.causal,
      /*attn_mask=*/{}, options.scale);
  return {std::move(query), std::move(key), std::move(value)};
}

void GroupedBackward(const AttentionOptions& options, const AttentionOperands& piece,
                     const at::Tensor& attended, const at::Tensor& log_sums, const at::Tensor& gradient,
                     const AttentionOperands& gradients) {
  if (GroupSize(options) == 1) {
    const AttentionOperands all = FusedBackward(options, piece, attended, log_sums, gradient);
    gradients.query.copy_(all.query);
    gradients.key.copy_(all.key);
    gradients.value.copy_(all.value);
    return;
  }
  for (int64_t group = 0; group < options.key_value_heads; ++group) {
    const auto heads = [&](const at::Tensor& tensor) { return GroupHeads(options, tensor, group); };
    const AttentionOperands own = FusedBackward(options, GroupOperands(options, piece, group),
                                                heads(attended), heads(log_sums), heads(gradient));
    heads(gradients.query).copy_(own.query);
    gradients.key.select(1, group).copy_(own.key.sum(1));
    gradients.value.select(1, group).copy_(own.value.sum(1));
  }
}

// Kernels that come with autograd: of the GPU. Keeps the graph in `memory`, where that is given.
template <typename Kernel>
at::Tensor GraphForward(const AttentionOperands& operands, AttentionMemory::Piece* memory,
                        const Kernel& kernel) {
  if (memory == nullptr) return kernel(operands);
  const at::AutoGradMode with_graph(true);
  memory->leaves = {MakeLeaf(operands.query), MakeLeaf(operands.key), MakeLeaf(operands.value)};
  const at::Tensor output = kernel(memory->leaves);
  memory->end = GraphEnd(output);
  return output.detach();
}

void GraphBackward(AttentionMemory::Piece& memory, const at::Tensor& gradient,
                   const AttentionOperands& gradients) {
  memory.end.Backward(gradient);
  gradients.query.copy_(memory.leaves.query.grad());
  gradients.key.copy_(memory.leaves.key.grad());
  gradients.value.copy_(memory.leaves.value.grad());
}

at::Tensor Kernel(const AttentionOptions& options, const AttentionOperands& piece) {
  return at::scaled_dot_product_attention(piece.query, piece.key, piece.value, /*attn_mask=*/{},
                                          /*dropout_p=*/0.0, options.causal, options.scale,
                                          /*enable_gqa=*/GroupSize(options) > 1);
}

// All packed samples in one call. [tokens, heads * width] each.
at::Tensor VariableLengths(const AttentionOptions& options, const AttentionShape& shape,
                           const AttentionOperands& flat) {
  const int64_t width = flat.query.size(1) / options.heads;
  const auto heads = [&](const at::Tensor& tensor) {
    return tensor.view({tensor.size(0), tensor.size(1) / width, width});
  };
  return FlashAttention(heads(flat.query), heads(flat.key), heads(flat.value), shape.cu_seqlens,
                        shape.longest)
      .flatten(1);
}

at::Tensor PieceForward(const AttentionOptions& options, const AttentionShape& shape,
                        const AttentionPiece& piece, const AttentionOperands& operands,
                        AttentionMemory::Piece* memory) {
  if (options.bias != nullptr) {
    return BiasedForward(options, shape, piece, operands, memory == nullptr ? nullptr : &memory->log_sums);
  }
  if (!operands.query.is_cpu()) {
    return GraphForward(operands, memory,
                        [&](const AttentionOperands& leaves) { return Kernel(options, leaves); });
  }
  auto [output, log_sums] = GroupedForward(options, operands);
  if (memory != nullptr) memory->log_sums = std::move(log_sums);
  return output;
}

void PieceBackward(const AttentionOptions& options, const AttentionShape& shape, const AttentionPiece& piece,
                   const AttentionOperands& operands, const at::Tensor& attended,
                   AttentionMemory::Piece memory, const at::Tensor& gradient,
                   const AttentionOperands& gradients) {
  if (options.bias != nullptr) {
    BiasedBackward(options, shape, piece, operands, attended, memory.log_sums, gradient, gradients);
    return;
  }
  const bool kept = memory.log_sums.defined() || memory.end.defined();
  if (!kept) PieceForward(options, shape, piece, operands, &memory);
  if (operands.query.is_cpu()) {
    GroupedBackward(options, operands, attended, memory.log_sums, gradient, gradients);
  } else {
    GraphBackward(memory, gradient, gradients);
  }
}

}  // namespace

at::Tensor AttentionForward(const AttentionOptions& options, const AttentionShape& shape,
                            const AttentionOperands& operands, AttentionMemory* memory) {
  if (memory != nullptr) memory->pieces.resize(shape.cu_seqlens.defined() ? 1 : shape.pieces.size());
  if (shape.cu_seqlens.defined()) {
    return GraphForward(operands, memory == nullptr ? nullptr : memory->pieces.data(),
                        [&](const AttentionOperands& flat) { return VariableLengths(options, shape, flat); });
  }
  const int64_t inner = operands.query.size(1);
  at::Tensor attended;
  for (size_t i = 0; i < shape.pieces.size(); ++i) {
    const AttentionPiece& piece = shape.pieces[i];
    const at::Tensor output = PieceForward(options, shape, piece, PieceOperands(operands, options, piece),
                                           memory == nullptr ? nullptr : &memory->pieces[i]);
    if (shape.all_queries && shape.pieces.size() == 1)
      return output.transpose(1, 2).reshape({shape.queries, inner});
    if (!attended.defined()) attended = at::zeros({shape.queries, inner}, operands.query.options());
    QueryHeads(attended, options.heads, piece).copy_(output);
  }
  return attended.defined() ? attended : at::zeros({shape.queries, inner}, operands.query.options());
}

void AttentionBackward(const AttentionOptions& options, const AttentionShape& shape,
                       const AttentionOperands& operands, const at::Tensor& attended, AttentionMemory memory,
                       const at::Tensor& attended_gradient, const AttentionOperands& gradients) {
  if (shape.cu_seqlens.defined()) {
    if (memory.pieces.empty()) AttentionForward(options, shape, operands, &memory);
    GraphBackward(memory.pieces.front(), attended_gradient, gradients);
    return;
  }
  if (!shape.all_queries) gradients.query.zero_();
  if (!shape.all_keys) {
    gradients.key.zero_();
    gradients.value.zero_();
  }
  memory.pieces.resize(shape.pieces.size());
  for (size_t i = 0; i < shape.pieces.size(); ++i) {
    const AttentionPiece& piece = shape.pieces[i];
    PieceBackward(options, shape, piece, PieceOperands(operands, options, piece),
                  QueryHeads(attended, options.heads, piece), std::move(memory.pieces[i]),
                  QueryHeads(attended_gradient, options.heads, piece),
                  PieceOperands(gradients, options, piece));
  }
}

}  // namespace penstock::worker
