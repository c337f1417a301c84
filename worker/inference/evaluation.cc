#include "worker/inference/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Logits that are in memory at once, elements.
constexpr int64_t kLogitsAtOnce = int64_t{1} << 24;

double SumOfLosses(const LanguageModel& model, const TokenBatch& tokens) {
  const at::NoGradGuard no_gradients;
  const at::Tensor hidden = model.Decode(tokens, model.Encode(tokens));
  const int64_t positions = tokens.loss_positions.size(0);
  const int64_t chunk = std::max<int64_t>(1, kLogitsAtOnce / model.config().vocab);
  double sum = 0;
  for (int64_t begin = 0; begin < positions; begin += chunk) {
    const int64_t count = std::min(chunk, positions - begin);
    const at::Tensor rows = hidden.index_select(0, tokens.loss_positions.narrow(0, begin, count));
    const at::Tensor labels = tokens.labels.narrow(0, begin, count).to(at::kLong);
    const at::Tensor logarithms = model.Logits(rows).log_softmax(-1);
    at::Tensor wanted = logarithms.gather(1, labels.unsqueeze(1)).flatten().to(at::kDouble);
    if (tokens.loss_weights.defined()) wanted = wanted * tokens.loss_weights.narrow(0, begin, count);
    sum -= wanted.sum().item<double>();
  }
  return sum;
}

}  // namespace

absl::StatusOr<EvaluatedLoss> Evaluate(const LanguageModel& model,
                                       const std::vector<SampleTokensOf>& samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const TokenBatch tokens, PackSamples(model, samples));
  EvaluatedLoss loss;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the weights of a loss", [&] {
    loss.positions = static_cast<uint64_t>(tokens.loss_positions.size(0));
    loss.weight = static_cast<double>(loss.positions);
    if (!tokens.loss_weights.defined()) return;
    loss.weight = tokens.loss_weights.sum(at::kDouble).item<double>();
    loss.positions = static_cast<uint64_t>(tokens.loss_weights.count_nonzero().item<int64_t>());
  }));
  PENSTOCK_ASSIGN_OR_RETURN(loss.sum, CallTorch("evaluating", [&] { return SumOfLosses(model, tokens); }));
  return loss;
}

}  // namespace penstock::worker
