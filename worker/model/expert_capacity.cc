#include "worker/model/expert_capacity.h"

#include <ATen/ATen.h>

#include <numeric>
#include <vector>

#include "worker/model/routed_samples.h"

namespace penstock::worker {
namespace {

// [tokens, per_token] bool, of tokens in their order, with all of each sample among them.
at::Tensor Taken(const at::Tensor& chosen, const at::Tensor& sample_of_token, const at::Tensor& capacities,
                 int64_t experts) {
  // A line for each sample and expert; all first choices come before all second ones.
  const at::Tensor line = (sample_of_token.unsqueeze(1) * experts + chosen).t().reshape({-1});
  const at::Tensor order = line.argsort(/*stable=*/true, /*dim=*/0);
  const at::Tensor sorted = line.index_select(0, order);
  const at::Tensor lengths =
      at::zeros({capacities.size(0) * experts}, line.options()).scatter_add_(0, line, at::ones_like(line));
  const at::Tensor begins = lengths.cumsum(0).sub_(lengths);
  const at::Tensor place_in_line =
      at::arange(line.size(0), line.options()).sub_(begins.index_select(0, sorted));
  const at::Tensor taken = place_in_line.lt(capacities.index_select(0, sorted.div(experts, "floor")));
  return at::empty_like(taken).index_copy_(0, order, taken).view({chosen.size(1), chosen.size(0)}).t();
}

// `chosen`: of the context rank's tokens. What all ranks' tokens chose, in the order of the micro-batch.
at::Tensor OfAllRanks(const TokenRows& rows, const at::Tensor& chosen) {
  const TokensOfAllRanks& all = *rows.samples->all;
  const auto contexts = static_cast<int64_t>(all.of_ranks.size());
  const std::vector<int64_t> sent(all.of_ranks.size(), chosen.size(0));
  const at::Tensor of_ranks = rows.group->ExchangeRows(chosen.repeat({contexts, 1}), sent, all.of_ranks);
  return at::empty_like(of_ranks).index_copy_(0, all.places, of_ranks);
}

// Of the context rank's tokens.
at::Tensor TakenOfContext(const TokenRows& rows, const at::Tensor& chosen, int64_t experts) {
  const RoutedSamples& samples = *rows.samples;
  if (!samples.all.has_value()) return Taken(chosen, samples.sample_of_token, samples.capacities, experts);
  const at::Tensor taken =
      Taken(OfAllRanks(rows, chosen), samples.all->sample_of_token, samples.capacities, experts);
  const auto own = samples.all->of_ranks.begin() + rows.group->place().context;
  const int64_t begin = std::accumulate(samples.all->of_ranks.begin(), own, int64_t{0});
  return taken.index_select(0, samples.all->places.narrow(0, begin, *own));
}

}  // namespace

at::Tensor TakenRows(const TokenRows& rows, const at::Tensor& chosen, int64_t experts) {
  if (rows.samples == nullptr || !rows.samples->capacities.defined()) return {};
  if (rows.group->place().experts == 1) return TakenOfContext(rows, chosen, experts);
  // Each rank routes its own tokens.
  return TakenOfContext(rows, rows.Gather(chosen.contiguous()), experts)
      .narrow(0, rows.own().begin, rows.own().size());
}

}  // namespace penstock::worker
