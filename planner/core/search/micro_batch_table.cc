#include "planner/core/search/micro_batch_table.h"

#include <algorithm>
#include <utility>

#include "planner/core/schedule/memory_fit.h"

namespace penstock::core {

int MicroBatchTable::Add(std::vector<uint32_t> samples, Layout layout, RowLengths row) {
  const int slot = slots();
  samples_.push_back(std::move(samples));
  layouts_.push_back(layout);
  rows_.push_back(row);
  sums_.emplace_back();
  layer_costs_.emplace_back();
  known_.push_back(false);
  work_ns_.push_back(0);
  const size_t size = at(slot + 1);
  forward_ns_.resize(size);
  backward_ns_.resize(size);
  near_transfer_ns_.resize(size);
  far_transfer_ns_.resize(size);
  memory_.resize(size);
  held_bytes_.resize(size);
  passing_bytes_.resize(size);
  Update(slot);
  return slot;
}

void MicroBatchTable::Update(int slot) {
  sums_[slot] = SumsOf(samples_[slot], tokens_, layouts_[slot], rows_[slot]);
  known_[slot] = costs_->Layers(sums_[slot], &layer_costs_[slot]);
  work_ns_[slot] = 0;
  for (int stage = 0; stage < costs_->stages(); ++stage) {
    const size_t i = at(slot) + stage;
    const StageRecompute recompute = InitialRecompute(costs_->stage(stage), mode_);
    forward_ns_[i] = costs_->ForwardNs(stage, layer_costs_[slot]);
    backward_ns_[i] = costs_->BackwardNs(stage, layer_costs_[slot], recompute);
    memory_[i] = costs_->Memory(stage, sums_[slot]);
    if (stage + 1 < costs_->stages()) {
      near_transfer_ns_[i] = costs_->LinkNs(memory_[i].output, Link::kInsideNode);
      far_transfer_ns_[i] = costs_->LinkNs(memory_[i].output, Link::kBetweenNodes);
    }
    held_bytes_[i] = HeldBytes(*costs_, stage, memory_[i], recompute);
    passing_bytes_[i] = PassingBytes(memory_[i]);
    work_ns_[slot] = std::max(work_ns_[slot], forward_ns_[i] + backward_ns_[i]);
  }
}

}  // namespace penstock::core
