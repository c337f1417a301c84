#include "planner/core/schedule/pipeline_estimate.h"

#include <algorithm>

namespace penstock::core {

int64_t PipelineEstimate::Run(const PipelineCosts& costs, const PassOrder& order) {
  stages_.assign(costs.stages, StageState());
  const size_t size = costs.forward_ns.size();
  if (activation_ns_.size() < size) {
    activation_ns_.resize(size);
    gradient_ns_.resize(size);
  }
  // Every sweep runs at least one pass, because no stage is ahead of the one before it.
  while (stages_[0].backwards < costs.micro_batches) {
    for (int stage = 0; stage < costs.stages; ++stage) Advance(costs, order, stage);
    for (int stage = costs.stages - 2; stage >= 0; --stage) Advance(costs, order, stage);
  }
  int64_t makespan = 0;
  for (const StageState& stage : stages_) makespan = std::max(makespan, stage.free_ns);
  return makespan;
}

void PipelineEstimate::Advance(const PipelineCosts& costs, const PassOrder& order, int stage) {
  StageState& state = stages_[stage];
  const int last = costs.stages - 1;
  const int32_t* forwards_before = &order.forwards_before[static_cast<size_t>(stage) * costs.micro_batches];
  const int32_t forwards_ready = stage == 0 ? costs.micro_batches : stages_[stage - 1].forwards;
  const int32_t backwards_ready = stage == last ? costs.micro_batches : stages_[stage + 1].backwards;
  while (state.backwards < costs.micro_batches) {
    if (state.forwards < forwards_before[state.backwards]) {
      if (state.forwards >= forwards_ready) return;
      const size_t at = costs.at(state.forwards, stage);
      const int64_t ready = stage == 0 ? 0 : activation_ns_[at];
      state.free_ns = std::max(state.free_ns, ready) + costs.forward_ns[at];
      if (stage < last) {
        state.activation_link_ns = std::max(state.activation_link_ns, state.free_ns) + costs.transfer_ns[at];
        activation_ns_[at + 1] = state.activation_link_ns;
      }
      ++state.forwards;
      continue;
    }
    if (state.backwards >= backwards_ready) return;
    const size_t at = costs.at(state.backwards, stage);
    const int64_t ready = stage == last ? 0 : gradient_ns_[at];
    state.free_ns = std::max(state.free_ns, ready) + costs.backward_ns[at];
    if (stage > 0) {
      StageState& before = stages_[stage - 1];
      before.gradient_link_ns = std::max(before.gradient_link_ns, state.free_ns) + costs.transfer_ns[at - 1];
      gradient_ns_[at - 1] = before.gradient_link_ns;
    }
    ++state.backwards;
  }
}

}  // namespace penstock::core
