#include "planner/core/cost/part_costs.h"

#include <algorithm>
#include <vector>

#include "planner/core/cost/level_counts.h"
#include "planner/core/steps/parts_in_turn.h"

namespace penstock::core {
namespace {

// Rows go to their experts, and come back.
void AddForward(const PartCosts& part, int64_t context_ns, LayerSteps* steps) {
  const int64_t experts = std::min(part.experts_ns, part.forward_ns);
  steps->Add({.before = part.forward_ns - experts + part.tensor_forward_ns + context_ns, .ns = part.rows_ns});
  steps->Add({.before = experts, .ns = part.rows_ns});
}

LayerSteps ForwardSteps(const PartCosts& part) {
  LayerSteps steps;
  AddForward(part, part.context_forward_ns, &steps);
  return steps;
}

// Gradients of rows go to their experts and come back; while they do the experts' weights get theirs.
LayerSteps BackwardSteps(const PartCosts& part, RecomputeLevel level) {
  LayerSteps steps;
  const bool again = level == kKeepInput;
  if (again) AddForward(part, /*context_ns=*/0, &steps);
  steps.Add({.ns = part.row_gradients_ns});
  steps.Add({.before = part.experts_ns, .ns = part.row_gradients_ns, .after = part.experts_ns});
  const int64_t counted = part.weights_ns + part.experts_ns + (again ? part.forward_ns : 0);
  steps.rest = std::max<int64_t>(0, part.backward_ns[level] - counted) + part.tensor_backward_ns +
               part.context_backward_ns[level];
  return steps;
}

}  // namespace

int64_t ForwardWaitingNs(const Stage& stage, absl::Span<const PartCosts> parts) {
  std::vector<LayerSteps> steps;
  for (const PartCosts& part : parts) steps.push_back(ForwardSteps(part));
  PartsInTurn turns(parts.size());
  turns.Run(stage.decoder_layers, steps);
  return turns.End();
}

int64_t BackwardWaitingNs(const Stage& stage, const StageRecompute& recompute,
                          absl::Span<const PartCosts> parts) {
  const LevelCounts levels = CountLevels(stage, recompute);
  PartsInTurn turns(parts.size());
  // From the uppermost layer down.
  for (const RecomputeLevel level : {kKeepAll, kKeepSelective, kKeepInput}) {
    std::vector<LayerSteps> steps;
    for (const PartCosts& part : parts) steps.push_back(BackwardSteps(part, level));
    turns.Run(levels.counts[kDecoder][level], steps);
  }
  return turns.End();
}

}  // namespace penstock::core
