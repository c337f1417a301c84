// A micro-batch as the brute force sees it: what its passes take and hold on every stage, whatever order they
// run in; and all ways to place its rows on context ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/types.h"
#include "tests/unit/core/brute_force_schedule.h"

namespace penstock::core {

// A set of samples: bit i is sample i.
using SampleMask = uint32_t;

// A micro-batch with everything that a schedule depends on.
struct SmallMicroBatch {
  SampleMask samples = 0;
  Layout layout = Layout::kPacked;
  std::vector<Span> spans;
  std::vector<SmallPass> passes;
};

// Nothing when the shape is outside of the profile. Passes take as long as the slowest context rank; memory
// is that of the fullest one, element by element. `spans`: of its rows; empty where there is one context
// rank.
std::optional<SmallMicroBatch> MakeMicroBatch(const CostModel& costs, const Job& job,
                                              absl::Span<const SampleTokens> tokens,
                                              const std::vector<uint32_t>& list, Layout layout, int replica,
                                              const std::vector<Span>& spans = {});

// All placements of so many rows of these lengths; one, without spans, where there is one context rank.
void ForEachPlacement(int contexts, absl::Span<const Row> rows, std::vector<Span>* spans,
                      const std::function<void()>& visit);

// Whether no pass without recompute and no transfer of `a` is slower: all that counts where memory is plenty.
bool NoSlower(const SmallMicroBatch& a, const SmallMicroBatch& b);

// True when `a` can stand for `b` everywhere.
bool NoWorse(const SmallMicroBatch& a, const SmallMicroBatch& b);

}  // namespace penstock::core
