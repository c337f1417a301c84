#include "tests/unit/core/event_memory.h"

#include <algorithm>

namespace penstock::core {
namespace {

LayerKind KindOf(const Stage& stage, int layer) {
  if (layer < stage.encoder_layers) return kEncoder;
  return std::ranges::count(stage.dense, layer) > 0 ? kDense : kDecoder;
}

// What layers keep: the first `full` at their input, the next `selective` without attention, the others all;
// encoder layers first.
int64_t Stored(const Stage& stage, const StageMemory& memory, const StageRecompute& recompute) {
  int64_t bytes = 0;
  for (int layer = 0; layer < stage.layers(); ++layer) {
    const auto& stored = memory.stored_layer[KindOf(stage, layer)];
    const bool full = layer < recompute.full;
    const bool selective = !full && layer < recompute.full + recompute.selective;
    bytes += stored[full ? kKeepInput : selective ? kKeepSelective : kKeepAll];
  }
  return bytes;
}

class Account {
 public:
  Account(const CostModel& costs, const ReplicaPipeline& replica)
      : costs_(costs), replica_(replica), ranks_(costs.positions()) {}

  void See(const PipelineEvent& event) {
    switch (event.kind) {
      case EventKind::kPassStart:
        return StartPass(event);
      case EventKind::kPassEnd:
        return EndPass(event);
      case EventKind::kTransferStart:
        return Take(event.gradient ? event.stage : event.stage + 1, MemoryOf(event).output);
      case EventKind::kTransferEnd:
        At(event.gradient ? event.stage + 1 : event.stage).sent += MemoryOf(event).output;
    }
  }

  std::vector<int64_t> Peaks() const {
    std::vector<int64_t> peaks;
    for (const Rank& rank : ranks_) peaks.push_back(rank.peak);
    return peaks;
  }

 private:
  struct Rank {
    int64_t bytes = 0;
    int64_t peak = 0;
    // Buffers whose transfer has ended.
    int64_t sent = 0;
  };

  Rank& At(int stage) { return ranks_[costs_.position_of(stage)]; }
  const StageMemory& MemoryOf(const PipelineEvent& event) const {
    return replica_.memory[replica_.costs.at(event.micro_batch, event.stage)];
  }
  int64_t StoredOf(const PipelineEvent& event) const {
    return Stored(costs_.stage(event.stage), MemoryOf(event),
                  replica_.recompute[replica_.costs.at(event.micro_batch, event.stage)]);
  }
  int64_t KeptOf(const PipelineEvent& event) const {
    return Stored(costs_.stage(event.stage), MemoryOf(event), {});
  }

  void Take(int stage, int64_t bytes) {
    Rank& rank = At(stage);
    rank.bytes += bytes;
    rank.peak = std::max(rank.peak, rank.bytes);
  }

  void StartPass(const PipelineEvent& event) {
    Rank& rank = At(event.stage);
    rank.bytes -= rank.sent;
    rank.sent = 0;
    const StageMemory& memory = MemoryOf(event);
    switch (event.pass) {
      case PassKind::kForward:
        return Take(event.stage, memory.tokens + StoredOf(event) + memory.output);
      case PassKind::kBackward:
        return Take(event.stage, memory.peak + memory.input);
      case PassKind::kBackwardInput:
        return Take(event.stage,
                    memory.peak + memory.input + std::max<int64_t>(0, KeptOf(event) - StoredOf(event)));
      case PassKind::kBackwardWeight:
        return;
    }
  }

  void EndPass(const PipelineEvent& event) {
    Rank& rank = At(event.stage);
    const StageMemory& memory = MemoryOf(event);
    // The activation that came, and the gradient that came or, on one rank, lies where the output was.
    const int64_t received = memory.input + memory.output;
    switch (event.pass) {
      case PassKind::kForward:
        return;
      case PassKind::kBackward:
        rank.bytes -= memory.peak + StoredOf(event) + received + memory.tokens;
        return;
      case PassKind::kBackwardInput:
        rank.bytes -= memory.peak + std::max<int64_t>(0, StoredOf(event) - KeptOf(event)) + received;
        return;
      case PassKind::kBackwardWeight:
        rank.bytes -= KeptOf(event) + memory.tokens;
    }
  }

  const CostModel& costs_;
  const ReplicaPipeline& replica_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::vector<int64_t> PeakBytes(const CostModel& costs, const ReplicaPipeline& replica,
                               absl::Span<const PipelineEvent> events) {
  Account account(costs, replica);
  for (const PipelineEvent& event : events) account.See(event);
  return account.Peaks();
}

}  // namespace penstock::core
