#include "worker/model/loss_head.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/model/cap.h"
#include "worker/model/head_chunk.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Replaces logits [n, vocab] by the gradient of the summed cross entropy and returns that of each position.
at::Tensor SoftmaxGradientInPlace(at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor columns = labels.unsqueeze(1);
  const at::Tensor log_sum = logits.logsumexp(1, /*keepdim=*/true);
  const at::Tensor losses = log_sum - logits.gather(1, columns);
  logits.sub_(log_sum).exp_();
  logits.scatter_add_(1, columns, at::full_like(columns, -1, logits.options()));
  return losses.flatten();
}

// The same, of which each tensor rank has the logits of its part of the vocabulary.
at::Tensor DividedSoftmaxGradientInPlace(const VocabularyPart& vocabulary, at::Tensor& logits,
                                         const at::Tensor& labels) {
  const at::Tensor columns = vocabulary.RowsOf(labels).unsqueeze(1);
  const at::Tensor elsewhere = vocabulary.IsElsewhere(labels).unsqueeze(1);
  at::Tensor largest = logits.amax(1, /*keepdim=*/true);
  vocabulary.group->MaxOverTensorRanks(largest);
  logits.sub_(largest);
  const at::Tensor wanted = logits.gather(1, columns).masked_fill_(elsewhere, 0);
  logits.exp_();
  at::Tensor sums = at::cat({logits.sum(1), wanted.flatten()});
  vocabulary.group->SumOverTensorRanks(sums);
  const int64_t positions = labels.size(0);
  const at::Tensor exponentials = sums.narrow(0, 0, positions);
  const at::Tensor losses = exponentials.log() - sums.narrow(0, positions, positions);
  logits.div_(exponentials.unsqueeze(1));
  logits.scatter_add_(1, columns, elsewhere.to(logits.scalar_type()).sub_(1));
  return losses;
}

// Of each run the sum over its positions.
at::Tensor SumsOfRuns(const at::Tensor& losses, const std::vector<LossRun>& runs) {
  std::vector<at::Tensor> sums;
  int64_t begin = 0;
  for (const LossRun& run : runs) {
    sums.push_back(losses.narrow(0, begin, run.positions).sum());
    begin += run.positions;
  }
  return at::stack(sums);
}

// A product that is rounded before it is added is made in blocks of rows: as a whole it is as large as the
// head's matrix.
constexpr int64_t kProductBytes = int64_t{32} << 20;

void AddProduct(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  if (!sum.defined()) return;
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
                         double divisor, at::Tensor& weight_gradient) {
  return ComputeHeadLoss(MakeVocabularyPart(weight.size(0), SoleRank()), hidden, weight, tokens, divisor,
                         weight_gradient);
}

HeadLoss ComputeHeadLoss(const VocabularyPart& vocabulary, const at::Tensor& hidden, const at::Tensor& weight,
                         const TokenBatch& tokens, double divisor, at::Tensor& weight_gradient,
                         double logit_cap, HeadGradients gradients) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = hidden.detach().reshape({-1, hidden.size(-1)});
  const bool learns = gradients == HeadGradients::kMade;
  at::Tensor gradient;
  if (learns) gradient = at::zeros_like(flat);
  at::Tensor loss = at::zeros({}, flat.options().dtype(at::kDouble));
  const int64_t positions = tokens.loss_positions.size(0);
  const bool weighted = tokens.loss_weights.defined();
  std::vector<at::Tensor> losses;
  // The same on all tensor ranks, who exchange something in each.
  const int64_t chunk = PositionsPerChunk(positions, weight.size(1), vocabulary.tokens);
  for (int64_t begin = 0; begin < positions; begin += chunk) {
    const int64_t count = std::min(chunk, positions - begin);
    const at::Tensor index = tokens.loss_positions.narrow(0, begin, count);
    const at::Tensor rows = flat.index_select(0, index);
    at::Tensor logits = at::linear(rows, weight).to(AccumulationType(flat.scalar_type()));
    at::Tensor slope;
    CapInPlace(logit_cap, logits, &slope);
    const at::Tensor labels = tokens.labels.narrow(0, begin, count).to(at::kLong);
    at::Tensor own = vocabulary.divided() ? DividedSoftmaxGradientInPlace(vocabulary, logits, labels)
                                          : SoftmaxGradientInPlace(logits, labels);
    at::Tensor weights;
    if (weighted) {
      weights = tokens.loss_weights.narrow(0, begin, count);
      own = own.to(at::kDouble) * weights;
    }
    loss += own.sum(at::kDouble);
    if (!tokens.loss_runs.empty()) losses.push_back(own.to(at::kDouble));
    if (!learns) continue;
    if (weighted) logits.mul_(weights.to(logits.scalar_type()).unsqueeze(1));
    if (slope.defined()) logits.mul_(slope);
    const at::Tensor logits_gradient = logits.div_(divisor).to(flat.scalar_type());
    gradient.index_copy_(0, index, logits_gradient.mm(weight));
    AddProduct(weight_gradient, logits_gradient.t(), rows);
  }
  at::Tensor run_losses;
  if (!losses.empty()) run_losses = SumsOfRuns(at::cat(losses), tokens.loss_runs);
  if (learns) gradient = gradient.view_as(hidden);
  return {loss.div_(divisor), std::move(run_losses), std::move(gradient)};
}

}  // namespace penstock::worker
