// When the inputs of a replica's passes arrive, and when its iteration ends: what a schedule in the making
// and the replay of one have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/schedule/pass_table.h"

namespace penstock::core {

// When a link is busy.
struct Interval {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// A rank's link to the rank of a next stage, or to that of a previous one: one transfer at a time. Its last
// transfers of activations and of gradients.
struct LinkEnd {
  Interval last[2];
};
enum TransferDirection : int { kActivations = 0, kGradients = 1 };

// Books a transfer at both its ends: after the last ones in the same direction, and not during the last ones
// in the other. Returns when it ends.
inline int64_t BookTransfer(int64_t ready_ns, int64_t duration_ns, TransferDirection direction,
                            LinkEnd* lower, LinkEnd* upper) {
  if (duration_ns == 0) return ready_ns;
  int64_t start = std::max({ready_ns, lower->last[direction].end_ns, upper->last[direction].end_ns});
  const int other = 1 - direction;
  // Moving behind one of the two may run into the other.
  for (const LinkEnd* end : {lower, upper, lower}) {
    const Interval& busy = end->last[other];
    if (start < busy.end_ns && start + duration_ns > busy.start_ns) start = busy.end_ns;
  }
  lower->last[direction] = upper->last[direction] = {start, start + duration_ns};
  return start + duration_ns;
}

// Keeps its arrays between runs.
class PassClock {
 public:
  PassClock(absl::Span<const int32_t> position_of_stage, int ranks)
      : position_of_stage_(position_of_stage.begin(), position_of_stage.end()),
        next_links_(ranks),
        previous_links_(ranks),
        last_pass_ns_(position_of_stage.size(), 0),
        rank_end_ns_(ranks, 0) {}

  // Before the passes of another table.
  void Reset(const PassTable& table) {
    const size_t size = table.rows.size() * table.stages;
    if (activation_ns_.size() < size) {
      activation_ns_.resize(size);
      gradient_ns_.resize(size);
    }
    std::fill(next_links_.begin(), next_links_.end(), LinkEnd());
    std::fill(previous_links_.begin(), previous_links_.end(), LinkEnd());
    std::fill(last_pass_ns_.begin(), last_pass_ns_.end(), 0);
    // The first stage waits for nothing, nor does the last one for gradients.
    for (size_t m = 0; m < table.rows.size(); ++m) {
      activation_ns_[m * table.stages] = 0;
      gradient_ns_[m * table.stages + table.stages - 1] = 0;
    }
  }

  // When the input of a pass is there; known once the pass that makes it has ended.
  int64_t ActivationNs(const PassTable& table, int32_t micro_batch, int stage) const {
    return activation_ns_[At(table, micro_batch, stage)];
  }
  int64_t GradientNs(const PassTable& table, int32_t micro_batch, int stage) const {
    return gradient_ns_[At(table, micro_batch, stage)];
  }

  // The output of a stage that is not the last has been made at `end_ns`. Returns when it arrives.
  int64_t SendActivation(const PassTable& table, int32_t micro_batch, int stage, int64_t end_ns) {
    const int64_t transfer = table.transfer_ns[stage][table.rows[micro_batch] + stage];
    const int64_t arrival =
        BookTransfer(end_ns, transfer, kActivations, &next_links_[position_of_stage_[stage]],
                     &previous_links_[position_of_stage_[stage + 1]]);
    activation_ns_[At(table, micro_batch, stage + 1)] = arrival;
    return arrival;
  }
  // The gradient of the input of a stage that is not the first has been made. Returns when it arrives.
  int64_t SendGradient(const PassTable& table, int32_t micro_batch, int stage, int64_t end_ns) {
    const int64_t transfer = table.gradient_transfer_ns[stage - 1][table.rows[micro_batch] + stage - 1];
    const int64_t arrival =
        BookTransfer(end_ns, transfer, kGradients, &next_links_[position_of_stage_[stage - 1]],
                     &previous_links_[position_of_stage_[stage]]);
    gradient_ns_[At(table, micro_batch, stage - 1)] = arrival;
    return arrival;
  }
  // A backward pass, or a part of one, has ended.
  void EndBackward(int stage, int64_t end_ns) { last_pass_ns_[stage] = end_ns; }

  // End of the iteration on all ranks, as far as it depends on no other replica: gradients of a stage are
  // reduced after its last pass, those of one rank one after the other, the last stage first; then comes the
  // optimizer step.
  int64_t EndOfIteration(const PassTable& table) {
    std::fill(rank_end_ns_.begin(), rank_end_ns_.end(), 0);
    for (int stage = table.stages - 1; stage >= 0; --stage) {
      int64_t& end = rank_end_ns_[position_of_stage_[stage]];
      end = std::max(end, last_pass_ns_[stage]) + table.reduce_ns[stage];
    }
    int64_t all = 0;
    for (size_t rank = 0; rank < rank_end_ns_.size(); ++rank) {
      all = std::max(all, rank_end_ns_[rank] + table.optimizer_ns[rank]);
    }
    return all;
  }

 private:
  static size_t At(const PassTable& table, int32_t micro_batch, int stage) {
    return static_cast<size_t>(micro_batch) * table.stages + stage;
  }

  std::vector<int32_t> position_of_stage_;
  // For each rank: towards next stages, and towards previous ones.
  std::vector<LinkEnd> next_links_;
  std::vector<LinkEnd> previous_links_;
  // [micro_batch * stages + stage].
  std::vector<int64_t> activation_ns_;
  std::vector<int64_t> gradient_ns_;
  // End of the last pass of each stage, and of each rank's iteration.
  std::vector<int64_t> last_pass_ns_;
  std::vector<int64_t> rank_end_ns_;
};

}  // namespace penstock::core
