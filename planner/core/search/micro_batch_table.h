// The micro-batches of a plan under construction, with what each costs on every stage.
//
// Flat arrays indexed by [slot * stages + stage]; a micro-batch keeps its slot for life. Searches change the
// samples of a slot and call Update.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::core {

class MicroBatchTable {
 public:
  // `costs` and `tokens` (the samples of the batch) must outlive the table.
  MicroBatchTable(const CostModel& costs, absl::Span<const SampleTokens> tokens, RecomputeMode mode)
      : costs_(&costs), tokens_(tokens), mode_(mode) {}

  // Returns the slot. `row`: of the concatenated layout.
  int Add(std::vector<uint32_t> samples, Layout layout, RowLengths row = {});
  // Call after a change of samples(slot).
  void Update(int slot);

  int slots() const { return static_cast<int>(samples_.size()); }
  std::vector<uint32_t>& samples(int slot) { return samples_[slot]; }
  const std::vector<uint32_t>& samples(int slot) const { return samples_[slot]; }
  const TokenSums& sums(int slot) const { return sums_[slot]; }
  Layout layout(int slot) const { return layouts_[slot]; }
  RowLengths row(int slot) const { return rows_[slot]; }
  const LayerCosts& layer_costs(int slot) const { return layer_costs_[slot]; }
  // False when the shape is outside of the profile; its costs are then meaningless.
  bool known(int slot) const { return known_[slot]; }
  // Forward and backward time on the stage that takes longest.
  int64_t work_ns(int slot) const { return work_ns_[slot]; }

  // Values of one slot on all stages, at the recompute that the mode starts from.
  const int64_t* forward_ns(int slot) const { return &forward_ns_[at(slot)]; }
  const int64_t* backward_ns(int slot) const { return &backward_ns_[at(slot)]; }
  // Of the activation that leaves each stage, over a link inside a node and one between nodes; 0 on the last
  // stage.
  const int64_t* near_transfer_ns(int slot) const { return &near_transfer_ns_[at(slot)]; }
  const int64_t* far_transfer_ns(int slot) const { return &far_transfer_ns_[at(slot)]; }
  const StageMemory* memory(int slot) const { return &memory_[at(slot)]; }
  // Bytes held between the passes, and bytes around them, as FitMemory counts them.
  const int64_t* held_bytes(int slot) const { return &held_bytes_[at(slot)]; }
  const int64_t* passing_bytes(int slot) const { return &passing_bytes_[at(slot)]; }

  const CostModel& costs() const { return *costs_; }
  absl::Span<const SampleTokens> tokens() const { return tokens_; }
  RecomputeMode mode() const { return mode_; }

 private:
  size_t at(int slot) const { return static_cast<size_t>(slot) * costs_->stages(); }

  const CostModel* costs_;
  absl::Span<const SampleTokens> tokens_;
  RecomputeMode mode_;
  std::vector<std::vector<uint32_t>> samples_;
  std::vector<Layout> layouts_;
  std::vector<RowLengths> rows_;
  std::vector<TokenSums> sums_;
  std::vector<LayerCosts> layer_costs_;
  std::vector<char> known_;
  std::vector<int64_t> work_ns_;
  std::vector<int64_t> forward_ns_;
  std::vector<int64_t> backward_ns_;
  std::vector<int64_t> near_transfer_ns_;
  std::vector<int64_t> far_transfer_ns_;
  std::vector<StageMemory> memory_;
  std::vector<int64_t> held_bytes_;
  std::vector<int64_t> passing_bytes_;
};

}  // namespace penstock::core
