#include "planner/core/cost/part_costs.h"

#include <algorithm>
#include <vector>

#include "planner/core/cost/level_counts.h"
#include "planner/core/steps/parts_in_turn.h"

namespace penstock::core {
namespace {

// Rows go to their experts, and come back.
void AddForward(const PartCosts& part, int64_t context_ns, LayerSteps* steps) {
  const int64_t experts = std::min(part.experts_ns, part.with_experts.forward_ns);
  steps->Add(
      {.before = part.with_experts.forward_ns - experts + part.with_experts.tensor_forward_ns + context_ns,
       .ns = part.rows_ns});
  steps->Add({.before = experts, .ns = part.rows_ns});
}

LayerSteps ForwardSteps(const PartCosts& part, LayerKind kind) {
  LayerSteps steps;
  if (kind == kDense) {
    steps.rest = part.dense.forward_ns + part.dense.tensor_forward_ns + part.context_forward_ns;
  } else {
    AddForward(part, part.context_forward_ns, &steps);
  }
  return steps;
}

// Gradients of rows go to their experts and come back; while they do the experts' weights get theirs.
LayerSteps BackwardSteps(const PartCosts& part, LayerKind kind, RecomputeLevel level) {
  LayerSteps steps;
  const PartCosts::Layer& layer = kind == kDense ? part.dense : part.with_experts;
  int64_t counted = layer.weights_ns;
  if (kind != kDense) {
    const bool again = level == kKeepInput;
    if (again) AddForward(part, /*context_ns=*/0, &steps);
    steps.Add({.ns = part.row_gradients_ns});
    steps.Add({.before = part.experts_ns, .ns = part.row_gradients_ns, .after = part.experts_ns});
    counted += part.experts_ns + (again ? layer.forward_ns : 0);
  }
  steps.rest = std::max<int64_t>(0, layer.backward_ns[level] - counted) + layer.tensor_backward_ns +
               part.context_backward_ns[level];
  return steps;
}

}  // namespace

int64_t ForwardWaitingNs(const Stage& stage, absl::Span<const PartCosts> parts) {
  PartsInTurn turns(parts.size());
  for (const LayerRun& run : RunsOf(stage, {})) {
    std::vector<LayerSteps> steps;
    for (const PartCosts& part : parts) steps.push_back(ForwardSteps(part, run.kind));
    turns.Run(run.layers, steps);
  }
  return turns.End();
}

int64_t BackwardWaitingNs(const Stage& stage, const StageRecompute& recompute,
                          absl::Span<const PartCosts> parts) {
  std::vector<LayerRun> runs = RunsOf(stage, recompute);
  std::reverse(runs.begin(), runs.end());
  PartsInTurn turns(parts.size());
  for (const LayerRun& run : runs) {
    std::vector<LayerSteps> steps;
    for (const PartCosts& part : parts) steps.push_back(BackwardSteps(part, run.kind, run.level));
    turns.Run(run.layers, steps);
  }
  return turns.End();
}

}  // namespace penstock::core
