#include "planner/core/schedule/pass_replay.h"

#include <algorithm>

namespace penstock::core {
namespace {

// Passes between two looks at the token; a pass takes nanoseconds.
constexpr size_t kUnaskedPasses = 1024;

}  // namespace

PassReplay::PassReplay(absl::Span<const int32_t> position_of_stage, int ranks, StopToken stop)
    : position_of_stage_(position_of_stage.begin(), position_of_stage.end()),
      ranks_(ranks),
      clock_(position_of_stage, ranks),
      stop_(stop) {}

void PassReplay::Reset(const PassTable& table) {
  clock_.Reset(table);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank] = {0, 0, table.available_bytes[rank]};
}

int64_t PassReplay::Run(const PassTable& table, absl::Span<const Pass> order, int64_t give_up_ns) {
  Reset(table);
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % kUnaskedPasses == 0 && stop_.stopped()) return kInfeasibleNs;
    const Pass& pass = order[i];
    bool fits = true;
    switch (pass.kind) {
      case PassKind::kForward:
        fits = Forward(table, pass);
        break;
      case PassKind::kBackward:
      case PassKind::kBackwardInput:
        fits = Backward(table, pass);
        break;
      case PassKind::kBackwardWeight:
        Weight(table, pass);
        break;
    }
    if (!fits) return kInfeasibleNs;
  }
  const int64_t end = clock_.EndOfIteration(table);
  return end > give_up_ns ? kInfeasibleNs : end;
}

bool PassReplay::Forward(const PassTable& table, const Pass& pass) {
  const int stage = pass.stage;
  RankState& rank = ranks_[position_of_stage_[stage]];
  const int32_t at = table.rows[pass.micro_batch] + stage;
  rank.used_bytes += table.held_bytes[at] - table.input_bytes[at];
  const bool fits = rank.used_bytes + table.forward_passing_bytes[at] <= rank.available_bytes;
  rank.free_ns =
      std::max(rank.free_ns, clock_.ActivationNs(table, pass.micro_batch, stage)) + table.forward_ns[at];
  if (stage + 1 < table.stages) {
    clock_.SendActivation(table, pass.micro_batch, stage, rank.free_ns);
    ranks_[position_of_stage_[stage + 1]].used_bytes += table.input_bytes[at + 1];
  }
  return fits;
}

bool PassReplay::Backward(const PassTable& table, const Pass& pass) {
  const int stage = pass.stage;
  RankState& rank = ranks_[position_of_stage_[stage]];
  const int32_t at = table.rows[pass.micro_batch] + stage;
  const bool split = pass.kind == PassKind::kBackwardInput;
  // While it runs. What a split one puts aside grows; the received activation is given back with the pass.
  const int64_t held = split ? table.put_aside_bytes[at] + table.input_bytes[at] : table.held_bytes[at];
  const bool fits =
      rank.used_bytes - table.held_bytes[at] + held + table.passing_bytes[at] <= rank.available_bytes;
  rank.used_bytes += (split ? table.put_aside_bytes[at] : 0) - table.held_bytes[at];
  rank.free_ns = std::max(rank.free_ns, clock_.GradientNs(table, pass.micro_batch, stage)) +
                 table.backward_ns[at] - (split ? table.weight_ns[at] : 0);
  clock_.EndBackward(stage, rank.free_ns);
  if (stage > 0) clock_.SendGradient(table, pass.micro_batch, stage, rank.free_ns);
  return fits;
}

void PassReplay::Weight(const PassTable& table, const Pass& pass) {
  RankState& rank = ranks_[position_of_stage_[pass.stage]];
  const int32_t at = table.rows[pass.micro_batch] + pass.stage;
  rank.free_ns += table.weight_ns[at];
  clock_.EndBackward(pass.stage, rank.free_ns);
  rank.used_bytes -= table.put_aside_bytes[at];
}

}  // namespace penstock::core
