#include "worker/model/router_losses.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Those that this rank routes.
at::Tensor SampleOfRoutedTokens(const TokenRows& rows) {
  const at::Tensor& all = rows.samples->sample_of_token;
  if (rows.group->place().experts == 1) return all;
  return all.narrow(0, rows.own().begin, rows.own().size());
}

// Where ranks divide the experts each routes its own tokens; else all tensor ranks route the same ones, and
// the first has their losses.
bool HasLosses(const GroupPlace& place) { return place.experts > 1 || place.tensor == 0; }

// Over the ranks that may have tokens of the same samples. Whole numbers: no order of sums shows.
void SumOverRanksOfSamples(const TokenRows& rows, at::Tensor& counts) {
  const GroupPlace place = rows.group->place();
  if (place.experts > 1 && place.tensors > 1) rows.group->SumOverTensorRanks(counts);
  if (place.contexts == 1 || !rows.samples->divided) return;
  const std::vector<int64_t> all(static_cast<size_t>(place.contexts), counts.size(0));
  const at::Tensor of_ranks = rows.group->ExchangeRows(counts.repeat({place.contexts, 1}), all, all);
  counts = of_ranks.view({place.contexts, counts.size(0), counts.size(1)}).sum(0);
}

at::Tensor SharesOfExperts(const TokenRows& rows, const at::Tensor& chosen, int64_t experts,
                           at::ScalarType type) {
  const int64_t samples = rows.samples->samples();
  const at::Tensor places = (SampleOfRoutedTokens(rows).unsqueeze(1) * experts + chosen).reshape({-1});
  // Whole numbers, whose sum no order changes; the host need not wait for it.
  at::Tensor shares = at::zeros({(samples + 1) * experts}, places.options())
                          .scatter_add_(0, places, at::ones_like(places))
                          .view({samples + 1, experts})
                          .to(type);
  SumOverRanksOfSamples(rows, shares);
  const at::Tensor of_sample = (rows.samples->tokens * chosen.size(1)).clamp_min(1).unsqueeze(1);
  shares.div_(of_sample);
  shares.narrow(0, samples, 1).zero_();
  return shares;
}

at::Tensor LogSums(const TokenRows& rows, const at::Tensor& scores, at::ScalarType type) {
  const at::Tensor real = SampleOfRoutedTokens(rows).lt(rows.samples->samples()).unsqueeze(1);
  return scores.to(type).logsumexp(-1, /*keepdim=*/true).mul_(real);
}

}  // namespace

void RouterLossSums::Add(const at::Tensor& balance, const at::Tensor& z) {
  const at::Tensor added = at::stack({balance.to(at::kDouble), z.to(at::kDouble)});
  if (sums_.defined()) {
    sums_.add_(added);
  } else {
    sums_ = added;
  }
}

RouterLossSums::Values RouterLossSums::Take() {
  if (!sums_.defined()) return {};
  const at::Tensor host = std::exchange(sums_, {}).cpu();
  return {.balance = host[0].item<double>(), .z = host[1].item<double>()};
}

RouterLossMemory RememberRouterLosses(const RouterLossWeights& weights, const TokenRows& rows,
                                      const at::Tensor& scores, const at::Tensor& chosen) {
  RouterLossMemory memory;
  if (rows.samples == nullptr || !weights.any() || !HasLosses(rows.group->place())) return memory;
  const at::ScalarType type = AccumulationType(scores.scalar_type());
  if (weights.balance > 0) memory.shares = SharesOfExperts(rows, chosen, scores.size(1), type);
  if (weights.z > 0) memory.log_sums = LogSums(rows, scores, type);
  return memory;
}

at::Tensor AddBalanceGradient(const RouterLossWeights& weights, const TokenRows& rows,
                              const RouterLossMemory& memory, const at::Tensor& probabilities,
                              at::Tensor& gradient) {
  if (!memory.shares.defined()) return at::zeros({}, probabilities.options());
  // Of a sample: experts * sum(share * mean probability), times its part of the batch's tokens.
  const double factor =
      weights.balance * static_cast<double>(probabilities.size(1)) / rows.samples->batch_tokens;
  const at::Tensor added = memory.shares.index_select(0, SampleOfRoutedTokens(rows)).mul_(factor);
  gradient.add_(added);
  return (added * probabilities).sum();
}

at::Tensor AddZGradient(const RouterLossWeights& weights, const TokenRows& rows,
                        const RouterLossMemory& memory, const at::Tensor& probabilities,
                        at::Tensor& gradient) {
  if (!memory.log_sums.defined()) return at::zeros({}, probabilities.options());
  const double factor = weights.z / rows.samples->batch_tokens;
  gradient.add_(probabilities * memory.log_sums, 2 * factor);
  return memory.log_sums.square().sum().mul_(factor);
}

}  // namespace penstock::worker
