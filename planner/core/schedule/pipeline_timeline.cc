#include "planner/core/schedule/pipeline_timeline.h"

#include <limits>

namespace penstock::core {

const std::vector<PipelineEvent>& PipelineTimeline::Run(const PipelineCosts& costs, const PassOrder& order) {
  events_.clear();
  stages_.assign(costs.stages, StageState());
  for (int stage = 0; stage < costs.stages; ++stage) StartPass(costs, order, stage, 0);
  while (true) {
    // The next end: of the earliest; of equal ones the lowest stage, its pass before its link.
    int64_t now = std::numeric_limits<int64_t>::max();
    int stage = -1;
    bool pass = false;
    for (int i = 0; i < costs.stages; ++i) {
      if (stages_[i].pass.active && stages_[i].pass.end_ns < now) {
        now = stages_[i].pass.end_ns;
        stage = i;
        pass = true;
      }
      if (stages_[i].transfer.active && stages_[i].transfer.end_ns < now) {
        now = stages_[i].transfer.end_ns;
        stage = i;
        pass = false;
      }
    }
    if (stage < 0) return events_;
    if (pass) {
      EndPass(costs, stage);
      if (stage > 0) StartTransfer(costs, stage - 1, now);
      StartTransfer(costs, stage, now);
      StartPass(costs, order, stage, now);
    } else {
      EndTransfer(stage);
      StartTransfer(costs, stage, now);
      StartPass(costs, order, stage, now);
      StartPass(costs, order, stage + 1, now);
    }
  }
}

void PipelineTimeline::Emit(EventKind kind, const Running& running, int stage, int64_t time_ns) {
  events_.push_back({kind, running.backward, stage, running.micro_batch, time_ns});
}

void PipelineTimeline::StartPass(const PipelineCosts& costs, const PassOrder& order, int stage,
                                 int64_t now_ns) {
  StageState& state = stages_[stage];
  if (state.pass.active || state.backwards == costs.micro_batches) return;
  const size_t row = static_cast<size_t>(stage) * costs.micro_batches;
  const bool forward = state.forwards < order.forwards_before[row + state.backwards];
  if (forward && stage > 0 && state.activations <= state.forwards) return;
  if (!forward && stage + 1 < costs.stages && state.gradients <= state.backwards) return;
  const int32_t micro_batch = forward ? state.forwards : state.backwards;
  const size_t at = costs.at(micro_batch, stage);
  const int64_t duration = forward ? costs.forward_ns[at] : costs.backward_ns[at];
  state.pass = {true, !forward, micro_batch, now_ns + duration};
  Emit(EventKind::kPassStart, state.pass, stage, now_ns);
}

void PipelineTimeline::StartTransfer(const PipelineCosts& costs, int stage, int64_t now_ns) {
  StageState& state = stages_[stage];
  if (state.transfer.active || state.queue_head == state.queue.size()) return;
  state.transfer = state.queue[state.queue_head++];
  state.transfer.active = true;
  state.transfer.end_ns = now_ns + costs.transfer_ns[costs.at(state.transfer.micro_batch, stage)];
  Emit(EventKind::kTransferStart, state.transfer, stage, now_ns);
}

void PipelineTimeline::EndPass(const PipelineCosts& costs, int stage) {
  StageState& state = stages_[stage];
  Emit(EventKind::kPassEnd, state.pass, stage, state.pass.end_ns);
  state.pass.active = false;
  if (state.pass.backward) {
    ++state.backwards;
    if (stage > 0) stages_[stage - 1].queue.push_back(state.pass);
  } else {
    ++state.forwards;
    if (stage + 1 < costs.stages) state.queue.push_back(state.pass);
  }
}

void PipelineTimeline::EndTransfer(int stage) {
  StageState& state = stages_[stage];
  Emit(EventKind::kTransferEnd, state.transfer, stage, state.transfer.end_ns);
  state.transfer.active = false;
  if (state.transfer.backward) {
    ++state.gradients;
  } else {
    ++stages_[stage + 1].activations;
  }
}

}  // namespace penstock::core
