#include "tests/unit/core/brute_force_micro_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/core/model/share.h"
#include "planner/core/schedule/stage_bytes.h"

namespace penstock::core {
namespace {

// Of the slowest context rank of a replica's stage group. `ns_of`: of the LayerCosts of one that is not slow.
template <typename NsOf>
int64_t SlowestNs(const CostModel& costs, int replica, int stage, absl::Span<const LayerCosts> layers,
                  const NsOf& ns_of) {
  int64_t slowest = 0;
  for (size_t context = 0; context < layers.size(); ++context)
    slowest =
        std::max(slowest, costs.slow_groups().Slowed(ns_of(layers[context]), replica,
                                                     costs.position_of(stage), static_cast<int>(context)));
  return slowest;
}

// Every (selective, full) that the job allows for a stage, but for those that cost more and keep no less.
std::vector<PassChoice> Choices(const CostModel& costs, const Job& job, int replica, int stage,
                                absl::Span<const LayerCosts> layers, const StageMemory& memory,
                                int64_t kept_besides) {
  const int count = costs.stage(stage).layers();
  std::vector<StageRecompute> allowed;
  for (int full = 0; full <= count; ++full) {
    for (int selective = 0; full + selective <= count; ++selective) {
      const bool none = full == 0 && selective == 0;
      if (job.recompute == RecomputeMode::kNone && !none) continue;
      if (job.recompute == RecomputeMode::kSelective && selective != count) continue;
      if (job.recompute == RecomputeMode::kFull && full != count) continue;
      if (job.recompute == RecomputeMode::kAuto && selective > 0 && !costs.has_selective()) continue;
      allowed.push_back({selective, full});
    }
  }
  std::vector<PassChoice> all;
  all.reserve(allowed.size());
  for (const StageRecompute& recompute : allowed) {
    const int64_t slowest = SlowestNs(costs, replica, stage, layers, [&](const LayerCosts& share) {
      return costs.BackwardNs(stage, share, recompute);
    });
    all.push_back({slowest, costs.StoredBytes(stage, memory, recompute) + kept_besides, recompute});
  }
  std::sort(all.begin(), all.end(), [](const PassChoice& a, const PassChoice& b) {
    return std::pair(a.backward_ns, a.kept_bytes) < std::pair(b.backward_ns, b.kept_bytes);
  });
  std::vector<PassChoice> useful;
  for (const PassChoice& choice : all) {
    if (useful.empty() || choice.kept_bytes < useful.back().kept_bytes) useful.push_back(choice);
  }
  return useful;
}

// What each context rank has of a micro-batch. `spans`: of its rows; empty where there is one context rank.
std::vector<Share> SharesWith(const CostModel& costs, absl::Span<const SampleTokens> tokens,
                              const std::vector<uint32_t>& list, Layout layout,
                              const std::vector<Span>& spans) {
  if (spans.empty()) return {WholeShare(SumsOf(list, tokens, layout))};
  std::vector<Share> shares;
  SharesOf(RowsOf(list, tokens, layout, {}), tokens, spans, costs.nodes(), costs.group().context, &shares);
  return shares;
}

// Until every rank of the next group has what its like sends it, and until the first has.
void SetTransfer(const CostModel& costs, const std::vector<Share>& shares, int replica, int stage,
                 SmallPass* pass) {
  const int tensors = costs.group().tensor;
  pass->link_ns = std::numeric_limits<int64_t>::max();
  for (int place = 0; place < costs.group().ranks(); ++place) {
    const int64_t bytes = costs.BoundaryBytes(stage, shares[place / tensors].sums, place % tensors);
    const int from = costs.topology().RankOf(replica, stage, place);
    const int64_t ns = costs.TransferNs(bytes, from, costs.topology().RankOf(replica, stage + 1, place));
    pass->transfer_ns = std::max(pass->transfer_ns, ns);
    pass->link_ns = std::min(pass->link_ns, ns);
  }
}

}  // namespace

std::optional<SmallMicroBatch> MakeMicroBatch(const CostModel& costs, const Job& job,
                                              absl::Span<const SampleTokens> tokens,
                                              const std::vector<uint32_t>& list, Layout layout, int replica,
                                              const std::vector<Span>& spans) {
  const std::vector<Share> shares = SharesWith(costs, tokens, list, layout, spans);
  std::vector<LayerCosts> layers(shares.size());
  for (size_t context = 0; context < shares.size(); ++context) {
    if (!costs.Layers(shares[context], &layers[context])) return std::nullopt;
  }
  SmallMicroBatch result;
  result.layout = layout;
  result.spans = spans;
  for (int s = 0; s < costs.stages(); ++s) {
    const StageMemory memory = LargestMemory(costs, s, shares);
    const bool receives = s > 0 && costs.position_of(s) != costs.position_of(s - 1);
    const bool sends = s + 1 < costs.stages() && costs.position_of(s) != costs.position_of(s + 1);
    const int64_t input = receives ? memory.input : 0;
    const int64_t output = sends ? memory.output : 0;
    SmallPass pass;
    const auto slowest = [&](const auto& ns_of) { return SlowestNs(costs, replica, s, layers, ns_of); };
    pass.forward_ns = slowest([&](const LayerCosts& share) { return costs.ForwardNs(s, share); });
    pass.weight_ns = slowest([&](const LayerCosts& share) { return costs.WeightNs(s, share); });
    pass.choices = Choices(costs, job, replica, s, layers, memory, input + memory.tokens);
    pass.forward_bytes = output + memory.forward_peak();
    pass.backward_bytes = memory.backward_peak() + input + output;
    pass.put_aside_bytes = costs.PutAsideBytes(s, memory) + memory.tokens;
    pass.received_bytes = input;
    pass.memory = memory;
    if (sends) SetTransfer(costs, shares, replica, s, &pass);
    result.passes.push_back(std::move(pass));
  }
  return result;
}

void ForEachPlacement(int contexts, absl::Span<const Row> rows, std::vector<Span>* spans,
                      const std::function<void()>& visit) {
  if (contexts == 1 || spans->size() == rows.size()) return visit();
  const int64_t length = rows[spans->size()].length;
  for (int ranks = 1; ranks <= contexts && (ranks == 1 || length >= 2 * ranks); ranks *= 2) {
    for (int first = 0; first < contexts; first += ranks) {
      spans->push_back({first, ranks});
      ForEachPlacement(contexts, rows, spans, visit);
      spans->pop_back();
    }
  }
}

bool NoSlower(const SmallMicroBatch& a, const SmallMicroBatch& b) {
  for (size_t s = 0; s < a.passes.size(); ++s) {
    const SmallPass& x = a.passes[s];
    const SmallPass& y = b.passes[s];
    const int64_t x_input = x.choices.front().backward_ns - x.weight_ns;
    const int64_t y_input = y.choices.front().backward_ns - y.weight_ns;
    if (x.forward_ns > y.forward_ns || x.transfer_ns > y.transfer_ns || x.link_ns > y.link_ns ||
        x.weight_ns > y.weight_ns || x.choices.front().backward_ns > y.choices.front().backward_ns ||
        x_input > y_input) {
      return false;
    }
  }
  return true;
}

bool NoWorse(const SmallMicroBatch& a, const SmallMicroBatch& b) {
  for (size_t s = 0; s < a.passes.size(); ++s) {
    const SmallPass& x = a.passes[s];
    const SmallPass& y = b.passes[s];
    const bool worse = x.forward_ns > y.forward_ns || x.transfer_ns > y.transfer_ns ||
                       x.link_ns > y.link_ns || x.forward_bytes > y.forward_bytes ||
                       x.backward_bytes > y.backward_bytes || x.put_aside_bytes > y.put_aside_bytes ||
                       x.weight_ns > y.weight_ns;
    const bool larger = x.memory.peak > y.memory.peak || x.memory.input > y.memory.input ||
                        x.memory.output > y.memory.output || x.memory.tokens > y.memory.tokens;
    if (worse || larger || x.choices.size() != y.choices.size()) return false;
    for (size_t c = 0; c < x.choices.size(); ++c) {
      if (x.choices[c].backward_ns > y.choices[c].backward_ns) return false;
      if (x.choices[c].backward_ns - x.weight_ns > y.choices[c].backward_ns - y.weight_ns) return false;
      if (x.choices[c].kept_bytes > y.choices[c].kept_bytes) return false;
    }
  }
  return true;
}

}  // namespace penstock::core
