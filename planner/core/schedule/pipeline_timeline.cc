#include "planner/core/schedule/pipeline_timeline.h"

#include <algorithm>

namespace penstock::core {
namespace {

// Bits of `reached_`.
constexpr uint8_t kActivation = 1;
constexpr uint8_t kForwardRun = 2;
constexpr uint8_t kGradient = 4;
constexpr uint8_t kInputRun = 8;
constexpr uint8_t kWeightRun = 16;
constexpr uint8_t kForwardBegun = 32;

// What a pass needs, and what it makes true.
struct PassBits {
  uint8_t needed;
  uint8_t made;
};
constexpr PassBits kPassBits[] = {
    // kForward, kBackward, kBackwardInput, kBackwardWeight.
    {kActivation, kForwardRun},
    {kForwardRun | kGradient, kInputRun | kWeightRun},
    {kForwardRun | kGradient, kInputRun},
    {kInputRun, kWeightRun},
};

const PassBits& BitsOf(PassKind kind) { return kPassBits[static_cast<size_t>(kind)]; }

int64_t DurationOf(const PipelineCosts& costs, const Pass& pass) {
  const size_t at = costs.at(pass.micro_batch, pass.stage);
  switch (pass.kind) {
    case PassKind::kForward:
      return costs.forward_ns[at];
    case PassKind::kBackward:
      return costs.backward_ns[at];
    case PassKind::kBackwardInput:
      return costs.backward_ns[at] - costs.weight_ns[at];
    case PassKind::kBackwardWeight:
      return costs.weight_ns[at];
  }
  return 0;
}

}  // namespace

bool PipelineTimeline::Run(const PipelineCosts& costs, const RankPasses& passes, StopToken stop) {
  costs_ = &costs;
  passes_ = &passes;
  Reset();
  for (int rank = 0; rank < costs.positions; ++rank) StartPass(rank, 0);
  while (!ends_.empty() && !stop.stopped()) {
    const End end = PopEnd();
    if (end.actor < costs.positions) {
      EndPass(end.actor, end.time_ns);
    } else {
      EndTransfer(end.actor - costs.positions, end.time_ns);
    }
  }
  for (int rank = 0; rank < costs.positions && blocked_rank_ < 0; ++rank) {
    if (ranks_[rank].next < ranks_[rank].end) blocked_rank_ = rank;
  }
  return blocked_rank_ < 0;
}

void PipelineTimeline::Reset() {
  const int stages = costs_->stages;
  events_.clear();
  ends_.clear();
  blocked_rank_ = -1;
  request_count_ = 0;
  next_link_busy_.assign(costs_->positions, 0);
  previous_link_busy_.assign(costs_->positions, 0);
  ranks_.assign(costs_->positions, RankState());
  for (int rank = 0; rank < costs_->positions; ++rank) {
    ranks_[rank].next = passes_->rank_begin[rank];
    ranks_[rank].end = passes_->rank_begin[rank + 1];
  }
  reached_.assign(static_cast<size_t>(stages) * costs_->micro_batches, 0);
  for (int m = 0; m < costs_->micro_batches; ++m) {
    reached_[costs_->at(m, 0)] |= kActivation;
    reached_[costs_->at(m, stages - 1)] |= kGradient;
  }
  const int boundaries = std::max(0, stages - 1);
  boundaries_.assign(boundaries, Boundary());
  requests_.resize(static_cast<size_t>(boundaries) * 2 * costs_->micro_batches);
  for (int i = 0; i < boundaries; ++i) {
    Boundary& boundary = boundaries_[i];
    boundary.lower_rank = costs_->position_of_stage[i];
    boundary.upper_rank = costs_->position_of_stage[i + 1];
    boundary.crosses = boundary.lower_rank != boundary.upper_rank;
    boundary.head = boundary.tail = i * 2 * costs_->micro_batches;
  }
  stages_begin_.assign(costs_->positions + 2, 0);
  stages_.resize(stages);
  for (int stage = 0; stage < stages; ++stage) ++stages_begin_[costs_->position_of_stage[stage] + 2];
  for (int rank = 0; rank < costs_->positions; ++rank) stages_begin_[rank + 2] += stages_begin_[rank + 1];
  for (int stage = 0; stage < stages; ++stage) {
    stages_[stages_begin_[costs_->position_of_stage[stage] + 1]++] = stage;
  }
}

void PipelineTimeline::PushEnd(int64_t time_ns, int32_t actor) {
  ends_.push_back({time_ns, actor});
  std::push_heap(ends_.begin(), ends_.end(), Later());
}

PipelineTimeline::End PipelineTimeline::PopEnd() {
  std::pop_heap(ends_.begin(), ends_.end(), Later());
  const End end = ends_.back();
  ends_.pop_back();
  return end;
}

bool PipelineTimeline::CanStart(int rank, const Pass& pass) const {
  if (costs_->position_of_stage[pass.stage] != rank) return false;
  const uint8_t reached = reached_[costs_->at(pass.micro_batch, pass.stage)];
  const PassBits& bits = BitsOf(pass.kind);
  if (costs_->forward_ahead > 0 && !HasRoomAbove(pass)) return false;
  return (reached & bits.needed) == bits.needed && (reached & bits.made) == 0;
}

bool PipelineTimeline::HasRoomAbove(const Pass& forward) const {
  const int32_t before = forward.micro_batch - costs_->forward_ahead;
  if (before < 0 || forward.stage + 1 == costs_->stages) return true;
  return (reached_[costs_->at(before, forward.stage + 1)] & kForwardBegun) != 0;
}

void PipelineTimeline::StartPass(int rank, int64_t now_ns) {
  RankState& state = ranks_[rank];
  if (state.busy || state.next == state.end) return;
  state.pass = passes_->passes[state.next];
  if (!CanStart(rank, state.pass)) return;
  state.busy = true;
  events_.push_back(
      {EventKind::kPassStart, state.pass.kind, false, state.pass.stage, state.pass.micro_batch, now_ns});
  PushEnd(now_ns + DurationOf(*costs_, state.pass), rank);
  if (costs_->forward_ahead == 0) return;
  const int stage = state.pass.stage;
  reached_[costs_->at(state.pass.micro_batch, stage)] |= kForwardBegun;
  if (stage > 0) StartPass(costs_->position_of_stage[stage - 1], now_ns);
}

void PipelineTimeline::EndPass(int rank, int64_t now_ns) {
  RankState& state = ranks_[rank];
  const Pass pass = state.pass;
  events_.push_back({EventKind::kPassEnd, pass.kind, false, pass.stage, pass.micro_batch, now_ns});
  state.busy = false;
  ++state.next;
  reached_[costs_->at(pass.micro_batch, pass.stage)] |= BitsOf(pass.kind).made;
  const bool forward = pass.kind == PassKind::kForward;
  if (forward && pass.stage + 1 < costs_->stages) {
    Deliver(pass.stage, pass.micro_batch, /*gradient=*/false, now_ns);
  }
  if (!forward && pass.kind != PassKind::kBackwardWeight && pass.stage > 0) {
    Deliver(pass.stage - 1, pass.micro_batch, /*gradient=*/true, now_ns);
  }
  StartPass(rank, now_ns);
}

void PipelineTimeline::Deliver(int boundary, int32_t micro_batch, bool gradient, int64_t now_ns) {
  Boundary& way = boundaries_[boundary];
  if (!way.crosses) return Arrive(boundary, micro_batch, gradient);
  requests_[way.tail++] = {request_count_++, micro_batch, gradient};
  if (CanStartTransfer(boundary)) StartTransfer(boundary, now_ns);
}

void PipelineTimeline::Arrive(int boundary, int32_t micro_batch, bool gradient) {
  const int stage = gradient ? boundary : boundary + 1;
  reached_[costs_->at(micro_batch, stage)] |= gradient ? kGradient : kActivation;
}

bool PipelineTimeline::CanStartTransfer(int boundary) const {
  const Boundary& way = boundaries_[boundary];
  return way.head < way.tail && next_link_busy_[way.lower_rank] == 0 &&
         previous_link_busy_[way.upper_rank] == 0;
}

void PipelineTimeline::StartTransfer(int boundary, int64_t now_ns) {
  Boundary& way = boundaries_[boundary];
  const Request& request = requests_[way.head++];
  next_link_busy_[way.lower_rank] = 1;
  previous_link_busy_[way.upper_rank] = 1;
  events_.push_back({EventKind::kTransferStart, PassKind::kForward, request.gradient, boundary,
                     request.micro_batch, now_ns});
  PushEnd(now_ns + costs_->TransferNs(request.micro_batch, boundary, request.gradient),
          costs_->positions + boundary);
}

void PipelineTimeline::EndTransfer(int boundary, int64_t now_ns) {
  const Boundary& way = boundaries_[boundary];
  const Request& request = requests_[way.head - 1];
  next_link_busy_[way.lower_rank] = 0;
  previous_link_busy_[way.upper_rank] = 0;
  events_.push_back(
      {EventKind::kTransferEnd, PassKind::kForward, request.gradient, boundary, request.micro_batch, now_ns});
  Arrive(boundary, request.micro_batch, request.gradient);
  StartWaiting(boundary, now_ns);
  StartPass(request.gradient ? way.lower_rank : way.upper_rank, now_ns);
}

void PipelineTimeline::StartWaiting(int boundary, int64_t now_ns) {
  const Boundary& way = boundaries_[boundary];
  while (true) {
    int oldest = -1;
    const auto consider = [&](int other) {
      if (other < 0 || other + 1 >= costs_->stages || !CanStartTransfer(other)) return;
      if (oldest >= 0 &&
          requests_[boundaries_[oldest].head].number <= requests_[boundaries_[other].head].number) {
        return;
      }
      oldest = other;
    };
    for (int32_t i = stages_begin_[way.lower_rank]; i < stages_begin_[way.lower_rank + 1]; ++i) {
      consider(stages_[i]);
    }
    for (int32_t i = stages_begin_[way.upper_rank]; i < stages_begin_[way.upper_rank + 1]; ++i) {
      consider(stages_[i] - 1);
    }
    if (oldest < 0) return;
    StartTransfer(oldest, now_ns);
  }
}

}  // namespace penstock::core
