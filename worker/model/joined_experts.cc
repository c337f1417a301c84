#include "worker/model/joined_experts.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <utility>

#include "worker/model/part_rows.h"

namespace penstock::worker {
namespace {

// Those that lie by tokens.
std::vector<at::Tensor*> RoutedTensors(ExpertsMemory& memory) {
  Routing& routing = memory.routing;
  FeedForwardMemory& shared = memory.shared.part;
  return {&routing.probabilities, &routing.chosen, &routing.losses.log_sums, &shared.up,
          &shared.gate,           &shared.middle,  &memory.shared.share};
}

// Of each token's places among those of all parts.
at::Tensor PlacesInWhole(int64_t per_token, std::vector<ExpertsMemory>& parts) {
  std::vector<at::Tensor> places;
  int64_t tokens = 0;
  for (ExpertsMemory& part : parts) {
    places.push_back(std::exchange(part.routing.order, {}).add(tokens * per_token));
    tokens += part.routing.chosen.size(0);
  }
  return at::cat(places);
}

// By expert, and of each in their order.
at::Tensor InOrderOfExperts(const at::Tensor& places, const at::Tensor& chosen) {
  const at::Tensor experts = chosen.reshape({-1}).index_select(0, places);
  return places.index_select(0, experts.argsort(/*stable=*/true, /*dim=*/0));
}

// Those of a sample in several parts are added up: each has what its own rows make. Padding comes behind all
// samples.
at::Tensor JoinShares(const RoutedInParts& routed, std::vector<ExpertsMemory>& parts) {
  at::Tensor shares;
  for (size_t part = 0; part < parts.size(); ++part) {
    const at::Tensor of_part = std::exchange(parts[part].routing.losses.shares, {});
    if (!of_part.defined()) return {};
    if (!shares.defined()) shares = at::zeros({routed.samples + 1, of_part.size(1)}, of_part.options());
    const int64_t samples = of_part.size(0) - 1;
    shares.narrow(0, routed.first_samples[part], samples).add_(of_part.narrow(0, 0, samples));
  }
  return shares;
}

at::Tensor JoinRows(std::vector<ExpertsMemory>& parts, at::Tensor ExpertsMemory::*rows,
                    const std::vector<at::Tensor>& places) {
  const at::Tensor& first = parts.front().*rows;
  if (!first.defined()) return {};
  int64_t count = 0;
  for (const ExpertsMemory& part : parts) count += (part.*rows).size(0);
  at::Tensor joined = at::empty({count, first.size(1)}, first.options());
  for (size_t part = 0; part < parts.size(); ++part)
    joined.index_copy_(0, places[part], std::exchange(parts[part].*rows, {}));
  return joined;
}

}  // namespace

ExpertsMemory JoinExperts(int64_t per_token, const RoutedInParts& routed,
                          std::vector<ExpertsMemory> of_parts) {
  const at::Device device = of_parts.front().inputs.device();
  const at::Tensor places = PlacesInWhole(per_token, of_parts);
  std::vector<const ExpertExchange*> exchanges;
  std::vector<std::vector<at::Tensor*>> by_tokens;
  for (ExpertsMemory& part : of_parts) {
    exchanges.push_back(&part.routing.exchange);
    by_tokens.push_back(RoutedTensors(part));
  }
  JoinedExchange exchange = JoinExchanges(exchanges, device);
  ExpertsMemory joined;
  JoinTensors(by_tokens, RoutedTensors(joined));
  joined.routing.order = InOrderOfExperts(places, joined.routing.chosen);
  joined.routing.exchange = std::move(exchange.whole);
  joined.routing.losses.shares = JoinShares(routed, of_parts);
  for (at::Tensor ExpertsMemory::*rows :
       {&ExpertsMemory::inputs, &ExpertsMemory::up, &ExpertsMemory::gate, &ExpertsMemory::middle})
    joined.*rows = JoinRows(of_parts, rows, exchange.places);
  return joined;
}

}  // namespace penstock::worker
