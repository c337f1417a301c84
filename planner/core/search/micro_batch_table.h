// The micro-batches of a plan under construction, with what each costs on every stage.
//
// A micro-batch has a slot; its figures lie together as [field][stage], so that a scheduler can use them in
// place and a search can put them aside and back with one copy. Searches change the samples of a slot and
// call Update, which places them on the context ranks of the stage groups anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/share.h"
#include "planner/core/placement/placer.h"
#include "planner/core/placement/row_parts.h"
#include "planner/core/schedule/stage_bytes.h"

namespace penstock::core {

// Context ranks of different speed.
struct SlowContexts {
  // By replica (ContextSlowness of replica_speeds.h).
  std::vector<std::vector<double>> of_replicas = {};
  // Else slots are placed as though they were alike, until PlaceThoroughly.
  bool places_by_speed = true;
};

class MicroBatchTable {
 public:
  enum Field : int {
    kForwardNs,
    // The whole backward pass at the recompute of the slot, and the part of it that may be delayed.
    kBackwardNs,
    kWeightNs,
    // Of the activation that leaves the stage, over a link inside a node and one between nodes; 0 where the
    // next stage is on the same rank, and on the last.
    kNearTransferNs,
    kFarTransferNs,
    // Bytes of the activation that is received.
    kInputBytes,
    // Bytes held between the passes, bytes put aside for the weight gradient, bytes around the forward pass,
    // bytes around the backward pass.
    kHeldBytes,
    kPutAsideBytes,
    kForwardPassingBytes,
    kPassingBytes,
    kFields
  };
  // Of a slot that no replica has yet.
  static constexpr int32_t kNoReplica = -1;
  // All that depends on the samples of a slot, for taking a change back.
  struct Saved {
    int slot = 0;
    std::vector<uint32_t> samples;
    std::vector<int32_t> levels;
    std::vector<int64_t> figures;
    std::vector<LayerCosts> layer_costs;
    std::vector<Span> spans;
    std::vector<Share> shares;
    PartOfRow part_of_row;
    int32_t replica = kNoReplica;
    char whole_backward = 0;
    int64_t work_ns = 0;
    bool known = true;
  };

  // kEven: rows are nowhere, and the table is as of one context rank that has the mean of all of them: a
  // rough answer for next to nothing.
  enum class Rows : uint8_t { kPlaced, kEven };

  // `costs` and `tokens` (the samples of the batch) must outlive the table. `levels`: recompute of each stage
  // (recompute_ladder.h) that micro-batches begin with. `room`: of a context rank for one micro-batch, where
  // it can be helped. `slow`: for placing the slots of a replica.
  MicroBatchTable(const CostModel& costs, absl::Span<const SampleTokens> tokens, std::vector<int32_t> levels,
                  TransferBuffers buffers, TokenRoom room = {}, Rows rows = Rows::kPlaced,
                  SlowContexts slow = {});

  // Room for as many more slots, so that nothing is copied while they are added.
  void Reserve(size_t slots);
  // Returns the slot. `row`: of the concatenated layout. Call Update before its figures are used.
  int Add(std::vector<uint32_t> samples, Layout layout, RowLengths row = {});
  // Call after a change of samples(slot), or of many levels.
  void Update(int slot);
  // Says which replica runs the slot: Update places it anew where that one's context ranks are slow, or those
  // of the one before were.
  void SetReplica(int slot, int32_t replica);
  // Whether the replica's context ranks differ in speed, so that placements of its slots are its own.
  bool IsUneven(int replica) const { return !SlownessOf(replica).empty(); }
  // Places a slot again with all care, and updates it. `power`: of how slow context ranks are; 0: as though
  // none were.
  void PlaceThoroughly(int slot, double power = 1);
  // Puts the only row of a slot on the first so many context ranks. Call Update before its figures are used.
  void PlaceRow(int slot, int32_t ranks);
  // Whether parts may begin inside of rows: layers then keep keys of one part for the next.
  enum class CutRows : uint8_t { kNone, kAllowed };
  // Cuts a slot into as many parts as make its passes shortest, backward passes too or not, and updates it.
  void CutIntoParts(int slot, CutRows cut_rows);
  // Work of placing so far, in passes of a list schedule.
  int64_t placing_passes() const;
  // Changes the recompute of one stage.
  void UpdateLevel(int slot, int stage, int32_t level);

  void Save(int slot, Saved* saved) const;
  void Restore(const Saved& saved);

  int slots() const { return static_cast<int>(samples_.size()); }
  // For a change: Update places them anew.
  std::vector<uint32_t>& samples(int slot) {
    stale_[slot] = 1;
    return samples_[slot];
  }
  const std::vector<uint32_t>& samples(int slot) const { return samples_[slot]; }
  // Recompute of each stage.
  absl::Span<int32_t> levels(int slot) { return {&levels_[at_stage(slot)], initial_levels_.size()}; }
  absl::Span<const int32_t> levels(int slot) const {
    return {&levels_[at_stage(slot)], initial_levels_.size()};
  }
  Layout layout(int slot) const { return layouts_[slot]; }
  RowLengths row(int slot) const { return rows_[slot]; }
  // Of all ranks of a stage group together.
  TokenSums Sums(int slot) const { return SumsOf(samples_[slot], tokens_, layouts_[slot], rows_[slot]); }
  // The placement of its rows; empty where stage groups have one context rank.
  const std::vector<Span>& spans(int slot) const { return spans_[slot]; }
  // The part of each row; empty: it is one.
  const PartOfRow& part_of_row(int slot) const { return part_of_row_[slot]; }
  // Whether forward passes alone go in them.
  bool whole_backward(int slot) const { return whole_backward_[slot] != 0; }
  // Makes passes in the slot's figures those of slow ranks of the replica: as long as on the last context
  // rank.
  void SlowDown(int slot, int replica, absl::Span<int64_t> figures) const;
  // What each context rank has of it, and what that costs in a layer.
  absl::Span<const Share> Shares(int slot) const { return {&shares_[at_context(slot)], contexts()}; }
  absl::Span<const LayerCosts> layer_costs(int slot) const {
    return {&layer_costs_[at_context(slot)], contexts()};
  }
  // On a stage, of the fullest rank: element by element the largest.
  StageMemory Memory(int slot, int stage) const { return LargestMemory(*costs_, stage, Shares(slot)); }
  // False when the shape is outside of the profile; its costs are then meaningless.
  bool known(int slot) const { return known_[slot] != 0; }
  // Forward and backward time, without recompute, of all stages of the rank that has most.
  int64_t work_ns(int slot) const { return work_ns_[slot]; }

  // [offset(slot) + stage] of field(f).
  int32_t offset(int slot) const { return static_cast<int32_t>(slot * kFields * costs_->stages()); }
  const int64_t* field(Field field) const {
    return figures_.empty() ? nullptr : figures_.data() + static_cast<ptrdiff_t>(field * costs_->stages());
  }
  // All figures of a slot, [field * stages + stage].
  absl::Span<const int64_t> figures(int slot) const {
    return {figures_.data() + offset(slot), static_cast<size_t>(offset(1))};
  }

  const CostModel& costs() const { return *costs_; }
  absl::Span<const SampleTokens> tokens() const { return tokens_; }

 private:
  size_t at_stage(int slot) const { return static_cast<size_t>(slot) * initial_levels_.size(); }
  size_t contexts() const { return contexts_; }
  size_t at_context(int slot) const { return static_cast<size_t>(slot) * contexts(); }
  int64_t* at(int slot, Field field) { return &figures_[offset(slot) + field * costs_->stages()]; }

  // Empty: they are alike.
  absl::Span<const double> SlownessOf(int replica) const {
    if (slow_.of_replicas.empty() || replica == kNoReplica) return {};
    return slow_.of_replicas[replica];
  }
  // The same of the replica of the slot, as searches place it.
  absl::Span<const double> PlacingOf(int slot) const {
    return slow_.places_by_speed ? SlownessOf(replica_of_slot_[slot]) : absl::Span<const double>();
  }
  // Divides the slot over the context ranks.
  void Place(int slot) { Place(slot, Placer::Care::kQuick, PlacingOf(slot)); }
  void Place(int slot, Placer::Care care, absl::Span<const double> slowness);
  // Gives context ranks what the spans say.
  void ShareOut(int slot, absl::Span<const Row> rows);
  std::vector<Row> RowsIn(int slot) const {
    return RowsOf(samples_[slot], tokens_, layouts_[slot], rows_[slot]);
  }
  // [context rank][part]; empty where there is one part.
  using SharesOfParts = std::vector<std::vector<Share>>;
  // Where each row is; with one context rank, all on it.
  std::vector<Span> SpansOfRows(int slot, size_t rows) const;
  SharesOfParts PartShares(int slot, const PartOfRow& part_of_row) const;
  // Looks at so many parts, with so many rows that are cut. Takes them where passes are shorter than
  // `least_ns`, which is then what they take.
  void TryParts(int slot, int parts, int cut_rows, int64_t* least_ns);
  // Lets the shares know which of their rows are cut.
  void NoteCutRows(int slot);
  // Whether no rank has too much of a part.
  bool AreEven(int slot, const SharesOfParts& parts) const;
  // Of context ranks that go through the slot in these parts. False where the shape is outside of the
  // profile.
  bool CostLayers(int slot, const SharesOfParts& parts, bool whole_backward,
                  absl::Span<LayerCosts> costs) const;
  // Forward and backward pass of all stages.
  int64_t PassesNs(int slot, absl::Span<const LayerCosts> costs) const;
  // Of the slowest context rank.
  template <typename PassNs>
  static int64_t Slowest(absl::Span<const LayerCosts> costs, const PassNs& pass_ns) {
    int64_t longest = pass_ns(costs.front());
    for (const LayerCosts& layers : costs.subspan(1)) longest = std::max(longest, pass_ns(layers));
    return longest;
  }
  int64_t ForwardNs(absl::Span<const LayerCosts> costs, int stage) const {
    return Slowest(costs, [&](const LayerCosts& layers) { return costs_->ForwardNs(stage, layers); });
  }
  int64_t BackwardNs(absl::Span<const LayerCosts> costs, int stage, const StageRecompute& recompute) const {
    return Slowest(costs,
                   [&](const LayerCosts& layers) { return costs_->BackwardNs(stage, layers, recompute); });
  }
  int64_t WeightNs(absl::Span<const LayerCosts> costs, int stage) const {
    return Slowest(costs, [&](const LayerCosts& layers) { return costs_->WeightNs(stage, layers); });
  }

  const CostModel* costs_;
  SlowContexts slow_;
  // Whose shares it has.
  size_t contexts_;
  Placer placer_;
  RowParts row_parts_;
  absl::Span<const SampleTokens> tokens_;
  std::vector<int32_t> initial_levels_;
  TransferBuffers buffers_;
  std::vector<std::vector<uint32_t>> samples_;
  // [slot * stages + stage].
  std::vector<int32_t> levels_;
  std::vector<Layout> layouts_;
  std::vector<RowLengths> rows_;
  std::vector<char> known_;
  std::vector<int64_t> work_ns_;
  // [slot * context ranks + context rank].
  std::vector<LayerCosts> layer_costs_;
  std::vector<Share> shares_;
  std::vector<std::vector<Span>> spans_;
  std::vector<PartOfRow> part_of_row_;
  std::vector<char> whole_backward_;
  std::vector<int32_t> replica_of_slot_;
  // Whether the samples have changed since they were placed.
  std::vector<char> stale_;
  std::vector<int64_t> figures_;
  std::vector<int64_t> rank_work_;
  // Of the slot that is placed; and by stage of the one that is updated.
  std::vector<Share> placed_;
  std::vector<StageMemory> memory_;
};

}  // namespace penstock::core
