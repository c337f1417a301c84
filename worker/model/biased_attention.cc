#include "worker/model/biased_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "worker/model/score_chunk.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

int64_t ScoresPerChunk(const at::Device& device) {
  return device.is_cpu() ? kScoresPerChunkOnCpu : kScoresPerChunkOnGpu;
}

// Some neighbours of a piece and some heads.
struct Block {
  int64_t first = 0;
  int64_t count = 0;
  int64_t first_head = 0;
  int64_t heads = 0;

  // Of [count, heads, ...].
  at::Tensor Of(const at::Tensor& tensor) const {
    return tensor.narrow(0, first, count).narrow(1, first_head, heads);
  }
  AttentionOperands Of(const AttentionOperands& operands) const {
    return {Of(operands.query), Of(operands.key), Of(operands.value)};
  }
};

// Some heads of a piece, and the bias of their scores.
struct HeadGroup {
  int64_t first = 0;
  int64_t count = 0;
  // The bias with the causal mask in it, [heads, queries, keys].
  at::Tensor bias;
};

// Calls `run` with each group of heads. One bias serves all neighbours.
template <typename Run>
void ForEachHeadGroup(const AttentionOptions& options, const AttentionPiece& piece, const PieceBias& bias,
                      const at::Device& device, const Run& run) {
  const int64_t scores = piece.query_length * piece.key_length;
  const int64_t group = std::clamp<int64_t>(ScoresPerChunk(device) / scores, 1, options.heads);
  at::Tensor future;
  if (options.causal) {
    future = at::ones({piece.query_length, piece.key_length}, at::TensorOptions(at::kBool).device(device))
                 .triu_(1);
  }
  for (int64_t first = 0; first < options.heads; first += group) {
    const int64_t count = std::min(group, options.heads - first);
    at::Tensor values = bias.Of(first, count);
    if (options.causal) values.masked_fill_(future, -std::numeric_limits<double>::infinity());
    run(HeadGroup{first, count, std::move(values)});
  }
}

template <typename Run>
void ForEachBlock(const AttentionPiece& piece, const HeadGroup& group, const Run& run) {
  const int64_t scores = group.count * piece.query_length * piece.key_length;
  const int64_t step = std::max<int64_t>(1, ScoresPerChunk(group.bias.device()) / scores);
  for (int64_t first = 0; first < piece.count; first += step) {
    run(Block{first, std::min(step, piece.count - first), group.first, group.count});
  }
}

at::Tensor Scores(const AttentionOptions& options, const AttentionOperands& operands,
                  const at::Tensor& bias) {
  at::Tensor scores = operands.query.matmul(operands.key.transpose(2, 3)).to(bias.scalar_type());
  if (options.scale != 1) scores.mul_(options.scale);
  return scores.add_(bias);
}

// Writes the gradients of a block's operands and adds to that of the bias.
void BlockBackward(const AttentionOptions& options, const AttentionOperands& operands, const at::Tensor& bias,
                   const at::Tensor& attended, const at::Tensor& log_sums, const at::Tensor& gradient,
                   const AttentionOperands& gradients, const at::Tensor& bias_gradient) {
  const at::ScalarType wide = bias.scalar_type();
  const at::ScalarType own = operands.query.scalar_type();
  at::Tensor scores = Scores(options, operands, bias);
  const at::Tensor sums = log_sums.defined() ? log_sums : scores.logsumexp(3, /*keepdim=*/true);
  const at::Tensor probabilities = scores.sub_(sums).exp_();
  gradients.value.copy_(probabilities.to(own).transpose(2, 3).matmul(gradient));
  // The derivative of the softmax: p * (dp - sum(p * dp)), the sum being that over the attended values.
  const at::Tensor along = at::mul(gradient.to(wide), attended).sum(3, /*keepdim=*/true);
  at::Tensor score_gradient = gradient.matmul(operands.value.transpose(2, 3)).to(wide);
  score_gradient.sub_(along).mul_(probabilities);
  bias_gradient.add_(score_gradient.sum(0));
  if (options.scale != 1) score_gradient.mul_(options.scale);
  score_gradient = score_gradient.to(own);
  gradients.query.copy_(score_gradient.matmul(operands.key));
  gradients.key.copy_(score_gradient.transpose(2, 3).matmul(operands.query));
}

}  // namespace

at::Tensor BiasedForward(const AttentionOptions& options, const AttentionShape& shape,
                         const AttentionPiece& piece, const AttentionOperands& operands,
                         at::Tensor* log_sums) {
  const PieceBias bias(*options.bias, shape, piece);
  const at::Tensor output =
      at::empty({piece.count, piece.query_length, options.heads, operands.value.size(3)},
                operands.query.options())
          .transpose(1, 2);
  if (log_sums != nullptr) {
    *log_sums = at::empty({piece.count, options.heads, piece.query_length, 1},
                          operands.query.options().dtype(AccumulationType(operands.query.scalar_type())));
  }
  ForEachHeadGroup(options, piece, bias, operands.query.device(), [&](const HeadGroup& group) {
    ForEachBlock(piece, group, [&](const Block& block) {
      const AttentionOperands part = block.Of(operands);
      at::Tensor scores = Scores(options, part, group.bias);
      const at::Tensor sums = scores.logsumexp(3, /*keepdim=*/true);
      if (log_sums != nullptr) block.Of(*log_sums).copy_(sums);
      const at::Tensor probabilities = scores.sub_(sums).exp_().to(part.value.scalar_type());
      block.Of(output).copy_(probabilities.matmul(part.value));
    });
  });
  return output;
}

void BiasedBackward(const AttentionOptions& options, const AttentionShape& shape, const AttentionPiece& piece,
                    const AttentionOperands& operands, const at::Tensor& attended, const at::Tensor& log_sums,
                    const at::Tensor& gradient, const AttentionOperands& gradients) {
  const PieceBias bias(*options.bias, shape, piece);
  ForEachHeadGroup(options, piece, bias, operands.query.device(), [&](const HeadGroup& group) {
    const at::Tensor bias_gradient = bias.NoGradient(group.count);
    ForEachBlock(piece, group, [&](const Block& block) {
      BlockBackward(options, block.Of(operands), group.bias, block.Of(attended),
                    log_sums.defined() ? block.Of(log_sums) : at::Tensor(), block.Of(gradient),
                    block.Of(gradients), bias_gradient);
    });
    bias.AddGradient(bias_gradient, group.first);
  });
}

}  // namespace penstock::worker
