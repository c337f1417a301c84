#include "planner/core/cost/pass_exchange.h"

#include <cmath>

#include "planner/core/cost/half_counts.h"
#include "planner/core/cost/level_counts.h"

namespace penstock::core {
namespace {

void Add(int64_t times, const ExchangeCosts::Half& half, PassExchange* exchange) {
  exchange->tensor_bytes += times * half.bytes;
  exchange->tensor_ns += times * half.ns;
}

void AddLayers(int64_t layers, const HalfCounts& halves, const ExchangeCosts& each, PassExchange* exchange) {
  Add(layers * halves.source, each.source, exchange);
  Add(layers * halves.target, each.target, exchange);
}

void AddRows(int64_t times, const ExchangeCosts::Half& rows, PassExchange* exchange) {
  exchange->expert_bytes += times * rows.bytes;
  exchange->expert_ns += times * rows.ns;
}

// Of a micro-batch in parts, of which the rank would wait so long if nothing slowed it down.
int64_t Exposed(int64_t expert_ns, int64_t waiting_ns, double overlap) {
  return expert_ns - static_cast<int64_t>(std::floor(overlap * static_cast<double>(expert_ns - waiting_ns)));
}

// An embedding sums in either direction.
void AddEmbeddings(const Stage& stage, const ExchangeCosts& each, PassExchange* exchange) {
  if (stage.embeds_source) Add(1, each.source, exchange);
  if (stage.embeds_target) Add(1, each.target, exchange);
}

}  // namespace

PassExchange ForwardExchange(const Stage& stage, const GroupShape& group, const ExchangeCosts& each) {
  PassExchange exchange;
  if (group.tensor > 1) {
    const bool divided = group.feeds_own_tokens();
    for (const LayerKind kind : kKindsOfStacks)
      AddLayers(stage.count(kind), ForwardHalves(kind, stage.crosses, divided), each, &exchange);
    AddEmbeddings(stage, each, &exchange);
    if (stage.last) Add(kHeadHalves, each.target, &exchange);
  }
  AddRows(stage.count(kDecoder) * kRowExchanges, each.rows, &exchange);
  exchange.expert_exposed_ns = exchange.expert_ns;
  if (!each.parts.empty())
    exchange.expert_exposed_ns =
        Exposed(exchange.expert_ns, ForwardWaitingNs(stage, each.parts), each.overlap);
  const int64_t layers = stage.layers();
  exchange.context_sent_bytes = layers * each.sent_bytes;
  exchange.context_received_bytes = layers * each.received_bytes;
  exchange.context_ns = layers * each.context_ns;
  exchange.context_exposed_ns = layers * each.exposed_forward_ns;
  return exchange;
}

PassExchange BackwardExchange(const Stage& stage, const StageRecompute& recompute, const GroupShape& group,
                              const ExchangeCosts& each) {
  PassExchange exchange;
  const LevelCounts levels = CountLevels(stage, recompute);
  for (const LayerKind kind : kKindsOfStacks) {
    for (int level = 0; level < kRecomputeLevels; ++level) {
      const int64_t layers = levels.counts[kind][level];
      if (layers == 0) continue;
      exchange.context_exposed_ns += layers * each.exposed_backward_ns[level];
      const int64_t exchanges = kind == kDecoder ? layers * kRowExchanges : 0;
      AddRows(exchanges, each.row_gradients, &exchange);
      if (level == kKeepInput) AddRows(exchanges, each.rows, &exchange);
      if (group.tensor == 1) continue;
      AddLayers(
          layers,
          BackwardHalves(kind, stage.crosses, group.feeds_own_tokens(), static_cast<RecomputeLevel>(level)),
          each, &exchange);
    }
  }
  if (group.tensor > 1) AddEmbeddings(stage, each, &exchange);
  const int64_t layers = stage.layers();
  const WeightsBeside& beside = each.beside;
  exchange.expert_exposed_ns =
      each.parts.empty()
          ? exchange.expert_ns - beside.HiddenNs(stage.count(kDecoder), levels.counts[kDecoder][kKeepAll],
                                                 each.row_gradients.ns)
          : Exposed(exchange.expert_ns, BackwardWaitingNs(stage, recompute, each.parts), each.overlap);
  if (stage.has(kDecoder)) {
    exchange.products_beside_return = beside.return_products;
    exchange.products_beside_arrival = beside.arrival_products;
    exchange.others_beside_arrival = beside.arrival_others;
  }
  // Keys and values come again, and their gradients go back.
  exchange.context_sent_bytes = layers * (each.sent_bytes + each.received_bytes);
  exchange.context_received_bytes = exchange.context_sent_bytes;
  exchange.context_ns = 2 * layers * each.context_ns;
  return exchange;
}

}  // namespace penstock::core
