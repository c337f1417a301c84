#include "planner/core/schedule/pass_replay.h"

#include <algorithm>

namespace penstock::core {

PassReplay::PassReplay(absl::Span<const int32_t> rank_of_stage, int ranks)
    : rank_of_stage_(rank_of_stage.begin(), rank_of_stage.end()),
      ranks_(ranks),
      last_pass_ns_(rank_of_stage.size(), 0),
      rank_end_ns_(ranks, 0) {}

void PassReplay::Reset(const PassTable& table) {
  const size_t size = table.rows.size() * table.stages;
  if (activation_ns_.size() < size) {
    activation_ns_.resize(size);
    gradient_ns_.resize(size);
  }
  std::fill(last_pass_ns_.begin(), last_pass_ns_.end(), 0);
  next_links_.assign(ranks_.size(), LinkEnd());
  previous_links_.assign(ranks_.size(), LinkEnd());
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank] = {0, 0, table.available_bytes[rank]};
  // The first stage waits for nothing, nor does the last one for gradients.
  for (size_t m = 0; m < table.rows.size(); ++m) {
    activation_ns_[m * table.stages] = 0;
    gradient_ns_[m * table.stages + table.stages - 1] = 0;
  }
}

int64_t PassReplay::Run(const PassTable& table, absl::Span<const Pass> order, int64_t give_up_ns) {
  Reset(table);
  for (const Pass& pass : order) {
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
  const int64_t end = EndOfIteration(table, rank_of_stage_, last_pass_ns_, absl::MakeSpan(rank_end_ns_));
  return end > give_up_ns ? kInfeasibleNs : end;
}

bool PassReplay::Forward(const PassTable& table, const Pass& pass) {
  const int stage = pass.stage;
  RankState& rank = ranks_[rank_of_stage_[stage]];
  const int32_t at = table.rows[pass.micro_batch] + stage;
  const size_t input = static_cast<size_t>(pass.micro_batch) * table.stages + stage;
  rank.used_bytes += table.held_bytes[at] - table.input_bytes[at];
  rank.free_ns = std::max(rank.free_ns, activation_ns_[input]) + table.forward_ns[at];
  if (stage + 1 < table.stages) {
    activation_ns_[input + 1] =
        BookTransfer(rank.free_ns, table.transfer_ns[stage][at], kActivations,
                     &next_links_[rank_of_stage_[stage]], &previous_links_[rank_of_stage_[stage + 1]]);
    ranks_[rank_of_stage_[stage + 1]].used_bytes += table.input_bytes[at + 1];
  }
  return rank.used_bytes <= rank.available_bytes;
}

bool PassReplay::Backward(const PassTable& table, const Pass& pass) {
  const int stage = pass.stage;
  RankState& rank = ranks_[rank_of_stage_[stage]];
  const int32_t at = table.rows[pass.micro_batch] + stage;
  const size_t input = static_cast<size_t>(pass.micro_batch) * table.stages + stage;
  const bool split = pass.kind == PassKind::kBackwardInput;
  // While it runs. What a split one puts aside grows; the received activation is given back with the pass.
  const int64_t held = split ? table.put_aside_bytes[at] + table.input_bytes[at] : table.held_bytes[at];
  const bool fits =
      rank.used_bytes - table.held_bytes[at] + held + table.passing_bytes[at] <= rank.available_bytes;
  rank.used_bytes += (split ? table.put_aside_bytes[at] : 0) - table.held_bytes[at];
  rank.free_ns =
      std::max(rank.free_ns, gradient_ns_[input]) + table.backward_ns[at] - (split ? table.weight_ns[at] : 0);
  last_pass_ns_[stage] = rank.free_ns;
  if (stage > 0) {
    gradient_ns_[input - 1] =
        BookTransfer(rank.free_ns, table.transfer_ns[stage - 1][at - 1], kGradients,
                     &next_links_[rank_of_stage_[stage - 1]], &previous_links_[rank_of_stage_[stage]]);
  }
  return fits;
}

void PassReplay::Weight(const PassTable& table, const Pass& pass) {
  RankState& rank = ranks_[rank_of_stage_[pass.stage]];
  const int32_t at = table.rows[pass.micro_batch] + pass.stage;
  rank.free_ns += table.weight_ns[at];
  last_pass_ns_[pass.stage] = rank.free_ns;
  rank.used_bytes -= table.put_aside_bytes[at];
}

}  // namespace penstock::core
