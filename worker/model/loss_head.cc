#include "worker/model/loss_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "worker/model/head_chunk.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Replaces logits [n, vocab] by the gradient of the summed cross entropy and returns that sum (float64
// scalar).
at::Tensor SoftmaxGradientInPlace(at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor columns = labels.unsqueeze(1);
  const at::Tensor log_sum = logits.logsumexp(1, /*keepdim=*/true);
  const at::Tensor loss = (log_sum - logits.gather(1, columns)).sum(at::kDouble);
  logits.sub_(log_sum).exp_();
  logits.scatter_add_(1, columns, at::full_like(columns, -1, logits.options()));
  return loss;
}

// A product that is rounded before it is added is made in blocks of rows: as a whole it is as large as the
// head's matrix.
constexpr int64_t kProductBytes = int64_t{32} << 20;

void AddProduct(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  if (sum.scalar_type() == left.scalar_type()) {
    sum.addmm_(left, right);
    return;
  }
  const int64_t rows = std::max<int64_t>(1, kProductBytes / (right.size(1) * right.element_size()));
  for (int64_t begin = 0; begin < left.size(0); begin += rows) {
    const int64_t count = std::min(rows, left.size(0) - begin);
    sum.narrow(0, begin, count).add_(left.narrow(0, begin, count).mm(right));
  }
}

}  // namespace

HeadLoss ComputeHeadLoss(const at::Tensor& hidden, const at::Tensor& weight, const TokenBatch& tokens,
                         double loss_tokens, at::Tensor& weight_gradient) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = hidden.detach().reshape({-1, hidden.size(-1)});
  at::Tensor gradient = at::zeros_like(flat);
  at::Tensor loss = at::zeros({}, flat.options().dtype(at::kDouble));
  const int64_t positions = tokens.loss_positions.size(0);
  const int64_t chunk = PositionsPerChunk(positions, weight.size(1), weight.size(0));
  for (int64_t begin = 0; begin < positions; begin += chunk) {
    const int64_t count = std::min(chunk, positions - begin);
    const at::Tensor index = tokens.loss_positions.narrow(0, begin, count);
    const at::Tensor rows = flat.index_select(0, index);
    at::Tensor logits = at::linear(rows, weight).to(AccumulationType(flat.scalar_type()));
    loss += SoftmaxGradientInPlace(logits, tokens.labels.narrow(0, begin, count));
    const at::Tensor logits_gradient = logits.div_(loss_tokens).to(flat.scalar_type());
    gradient.index_copy_(0, index, logits_gradient.mm(weight));
    AddProduct(weight_gradient, logits_gradient.t(), rows);
  }
  return {loss.div_(loss_tokens), gradient.view_as(hidden)};
}

}  // namespace penstock::worker
