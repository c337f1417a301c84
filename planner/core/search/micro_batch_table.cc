#include "planner/core/search/micro_batch_table.h"

#include <algorithm>
#include <utility>

#include "planner/core/schedule/recompute_ladder.h"

namespace penstock::core {

MicroBatchTable::MicroBatchTable(const CostModel& costs, absl::Span<const SampleTokens> tokens,
                                 std::vector<int32_t> levels, TransferBuffers buffers)
    : costs_(&costs),
      tokens_(tokens),
      initial_levels_(std::move(levels)),
      buffers_(buffers),
      rank_work_(costs.ranks()) {}

int MicroBatchTable::Add(std::vector<uint32_t> samples, Layout layout, RowLengths row) {
  const int slot = slots();
  samples_.push_back(std::move(samples));
  levels_.insert(levels_.end(), initial_levels_.begin(), initial_levels_.end());
  layouts_.push_back(layout);
  rows_.push_back(row);
  known_.push_back(0);
  work_ns_.push_back(0);
  layer_costs_.emplace_back();
  figures_.resize(offset(slot + 1));
  return slot;
}

void MicroBatchTable::Update(int slot) {
  const TokenSums sums = Sums(slot);
  LayerCosts& layers = layer_costs_[slot];
  known_[slot] = costs_->Layers(sums, &layers) ? 1 : 0;
  std::fill(rank_work_.begin(), rank_work_.end(), 0);
  const int stages = costs_->stages();
  for (int stage = 0; stage < stages; ++stage) {
    const StageRecompute recompute =
        RecomputeAtLevel(costs_->stage(stage), levels(slot)[stage], costs_->has_selective());
    const StageMemory memory = costs_->Memory(stage, sums);
    const int64_t forward = costs_->ForwardNs(stage, layers);
    at(slot, kForwardNs)[stage] = forward;
    at(slot, kBackwardNs)[stage] = costs_->BackwardNs(stage, layers, recompute);
    at(slot, kWeightNs)[stage] = costs_->WeightNs(stage, layers);
    const bool sends = stage + 1 < stages && costs_->rank_of(stage) != costs_->rank_of(stage + 1);
    at(slot, kNearTransferNs)[stage] = sends ? costs_->LinkNs(memory.output, Link::kInsideNode) : 0;
    at(slot, kFarTransferNs)[stage] = sends ? costs_->LinkNs(memory.output, Link::kBetweenNodes) : 0;
    at(slot, kInputBytes)[stage] = memory.input;
    at(slot, kHeldBytes)[stage] = HeldBytes(*costs_, stage, memory, recompute);
    at(slot, kPutAsideBytes)[stage] = costs_->PutAsideBytes(stage, memory) + memory.tokens;
    at(slot, kPassingBytes)[stage] = PassingBytes(memory, buffers_);
    rank_work_[costs_->rank_of(stage)] += forward + costs_->BackwardNs(stage, layers, StageRecompute());
  }
  work_ns_[slot] = *std::max_element(rank_work_.begin(), rank_work_.end());
}

void MicroBatchTable::UpdateLevel(int slot, int stage, int32_t level) {
  levels(slot)[stage] = level;
  const StageRecompute recompute = RecomputeAtLevel(costs_->stage(stage), level, costs_->has_selective());
  at(slot, kBackwardNs)[stage] = costs_->BackwardNs(stage, layer_costs_[slot], recompute);
  at(slot, kHeldBytes)[stage] = HeldBytes(*costs_, stage, costs_->Memory(stage, Sums(slot)), recompute);
}

void MicroBatchTable::Save(int slot, Saved* saved) const {
  saved->slot = slot;
  saved->samples = samples_[slot];
  const absl::Span<const int32_t> kept = levels(slot);
  saved->levels.assign(kept.begin(), kept.end());
  const auto begin = figures_.begin() + offset(slot);
  saved->figures.assign(begin, begin + offset(1));
  saved->layer_costs = layer_costs_[slot];
  saved->work_ns = work_ns_[slot];
  saved->known = known_[slot] != 0;
}

void MicroBatchTable::Restore(const Saved& saved) {
  samples_[saved.slot] = saved.samples;
  std::copy(saved.levels.begin(), saved.levels.end(), levels(saved.slot).begin());
  std::copy(saved.figures.begin(), saved.figures.end(), figures_.begin() + offset(saved.slot));
  work_ns_[saved.slot] = saved.work_ns;
  known_[saved.slot] = saved.known ? 1 : 0;
  layer_costs_[saved.slot] = saved.layer_costs;
}

}  // namespace penstock::core
