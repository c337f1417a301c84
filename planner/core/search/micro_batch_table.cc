#include "planner/core/search/micro_batch_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/core/cost/rounding.h"
#include "planner/core/schedule/recompute_ladder.h"

namespace penstock::core {
namespace {

// Context ranks that are looked at in the time of a pass of a list schedule.
constexpr int64_t kLooksInAPass = 40;
// What a rank has of a part, at most, of what the fullest rank has of the micro-batch: nearly all of it in
// one part would take more memory than passes that go through it whole.
constexpr double kMostOfPart = 0.75;

}  // namespace

MicroBatchTable::MicroBatchTable(const CostModel& costs, absl::Span<const SampleTokens> tokens,
                                 std::vector<int32_t> levels, TransferBuffers buffers, TokenRoom room,
                                 Rows rows, SlowContexts slow)
    : costs_(&costs),
      slow_(std::move(slow)),
      contexts_(rows == Rows::kEven ? 1 : static_cast<size_t>(costs.group().context)),
      placer_(costs, room),
      row_parts_(costs),
      tokens_(tokens),
      initial_levels_(std::move(levels)),
      buffers_(buffers),
      rank_work_(costs.positions()) {}

void MicroBatchTable::Reserve(size_t slots) {
  const size_t all = samples_.size() + slots;
  samples_.reserve(all);
  levels_.reserve(all * initial_levels_.size());
  layouts_.reserve(all);
  rows_.reserve(all);
  known_.reserve(all);
  work_ns_.reserve(all);
  layer_costs_.reserve(all * contexts());
  shares_.reserve(all * contexts());
  spans_.reserve(all);
  part_of_row_.reserve(all);
  whole_backward_.reserve(all);
  replica_of_slot_.reserve(all);
  stale_.reserve(all);
  figures_.reserve(all * offset(1));
}

int MicroBatchTable::Add(std::vector<uint32_t> samples, Layout layout, RowLengths row) {
  const int slot = slots();
  samples_.push_back(std::move(samples));
  levels_.insert(levels_.end(), initial_levels_.begin(), initial_levels_.end());
  layouts_.push_back(layout);
  rows_.push_back(row);
  known_.push_back(0);
  work_ns_.push_back(0);
  layer_costs_.resize(at_context(slot + 1));
  shares_.resize(at_context(slot + 1));
  spans_.emplace_back();
  part_of_row_.emplace_back();
  whole_backward_.push_back(0);
  replica_of_slot_.push_back(kNoReplica);
  stale_.push_back(0);
  figures_.resize(offset(slot + 1));
  Place(slot);
  return slot;
}

void MicroBatchTable::SetReplica(int slot, int32_t replica) {
  if (slow_.of_replicas.empty()) return;
  const absl::Span<const double> before = PlacingOf(slot);
  replica_of_slot_[slot] = replica;
  if (!std::ranges::equal(before, PlacingOf(slot))) stale_[slot] = 1;
}

void MicroBatchTable::Place(int slot, Placer::Care care, absl::Span<const double> slowness) {
  stale_[slot] = 0;
  part_of_row_[slot].clear();
  whole_backward_[slot] = 0;
  if (contexts() == 1) {
    shares_[slot] = WholeShare(costs_->EvenShare(Sums(slot)));
    return;
  }
  const std::vector<Row> rows = RowsIn(slot);
  placer_.Place(rows, tokens_, care, slowness, &spans_[slot]);
  ShareOut(slot, rows);
}

void MicroBatchTable::ShareOut(int slot, absl::Span<const Row> rows) {
  SharesOf(rows, tokens_, spans_[slot], costs_->nodes(), costs_->group().context, &placed_);
  std::copy(placed_.begin(), placed_.end(), shares_.begin() + static_cast<ptrdiff_t>(at_context(slot)));
}

void MicroBatchTable::PlaceRow(int slot, int32_t ranks) {
  spans_[slot].assign(1, Span{0, ranks});
  ShareOut(slot, RowsIn(slot));
}

void MicroBatchTable::PlaceThoroughly(int slot, double power) {
  if (costs_->group().context == 1) return;
  std::vector<double> slowness;
  for (const double slow : SlownessOf(replica_of_slot_[slot])) slowness.push_back(std::pow(slow, power));
  Place(slot, Placer::Care::kThorough, slowness);
  Update(slot);
}

int64_t MicroBatchTable::placing_passes() const { return placer_.looked_at() / kLooksInAPass; }

std::vector<Span> MicroBatchTable::SpansOfRows(int slot, size_t rows) const {
  return contexts() == 1 ? std::vector<Span>(rows) : spans_[slot];
}

MicroBatchTable::SharesOfParts MicroBatchTable::PartShares(int slot, const PartOfRow& part_of_row) const {
  if (part_of_row.empty()) return {};
  SharesOfParts parts(contexts());
  const std::vector<Row> rows = RowsIn(slot);
  const std::vector<Span> spans = SpansOfRows(slot, rows.size());
  std::vector<Share> shares;
  for (int part = 0; part < PartsIn(part_of_row); ++part) {
    SharesOfPart(rows, tokens_, spans, part_of_row, part, costs_->nodes(), costs_->group().context, &shares);
    for (size_t context = 0; context < contexts(); ++context) parts[context].push_back(shares[context]);
  }
  return parts;
}

bool MicroBatchTable::CostLayers(int slot, const SharesOfParts& parts, bool whole_backward,
                                 absl::Span<LayerCosts> costs) const {
  bool known = true;
  for (size_t context = 0; context < contexts(); ++context) {
    const absl::Span<const Share> of_rank = parts.empty() ? absl::Span<const Share>() : parts[context];
    known = costs_->Layers(Shares(slot)[context], of_rank, whole_backward, &costs[context]) && known;
  }
  return known;
}

bool MicroBatchTable::AreEven(int slot, const SharesOfParts& parts) const {
  double fullest = 0;
  double of_part = 0;
  for (size_t context = 0; context < contexts(); ++context) {
    fullest = std::max(fullest, Shares(slot)[context].sums.target);
    for (const Share& share : parts[context]) of_part = std::max(of_part, share.sums.target);
  }
  return of_part <= kMostOfPart * fullest;
}

int64_t MicroBatchTable::PassesNs(int slot, absl::Span<const LayerCosts> costs) const {
  int64_t passes_ns = 0;
  for (int stage = 0; stage < costs_->stages(); ++stage) {
    const StageRecompute recompute =
        RecomputeAtLevel(costs_->stage(stage), levels(slot)[stage], costs_->has_selective());
    passes_ns += ForwardNs(costs, stage) + BackwardNs(costs, stage, recompute);
  }
  return passes_ns;
}

void MicroBatchTable::TryParts(int slot, int parts, int cut_rows, int64_t* least_ns) {
  const std::vector<Row> rows = RowsIn(slot);
  PartOfRow part_of_row = row_parts_.Divide(rows, SpansOfRows(slot, rows.size()), parts, cut_rows);
  if (part_of_row.empty()) return;
  const SharesOfParts shares = PartShares(slot, part_of_row);
  if (!AreEven(slot, shares)) return;
  std::vector<LayerCosts> costs(contexts());
  for (const bool whole_backward : {false, true}) {
    if (whole_backward ? !costs_->has_whole_backward() : cut_rows > 0) continue;
    if (!CostLayers(slot, shares, whole_backward, absl::MakeSpan(costs))) continue;
    const int64_t passes_ns = PassesNs(slot, costs);
    if (passes_ns >= *least_ns) continue;
    *least_ns = passes_ns;
    part_of_row_[slot] = part_of_row;
    whole_backward_[slot] = whole_backward ? 1 : 0;
  }
}

void MicroBatchTable::NoteCutRows(int slot) {
  const PartOfRow& part_of_row = part_of_row_[slot];
  const std::vector<Row> rows = RowsIn(slot);
  // Slots may be cut again.
  for (size_t context = 0; context < contexts(); ++context)
    shares_[at_context(slot) + context].cut_tokens = 0;
  for (size_t row = 0; row < part_of_row.size(); ++row) {
    if (!part_of_row[row].cut) continue;
    const Span& span = spans_[slot][row];
    for (int context = span.first; context < span.first + span.ranks; ++context)
      shares_[at_context(slot) + context].cut_tokens += rows[row].length;
  }
}

// Of the concatenated layout none: its rows are filled in the order of the samples.
void MicroBatchTable::CutIntoParts(int slot, CutRows cut_rows) {
  if (!known(slot) || layouts_[slot] == Layout::kConcatenated) return;
  const bool may_cut = cut_rows == CutRows::kAllowed && costs_->may_cut_rows() &&
                       std::ranges::any_of(spans_[slot], [](const Span& span) { return span.ranks > 1; });
  int64_t least_ns = PassesNs(slot, layer_costs(slot));
  for (int parts = 2; parts <= costs_->most_parts(); ++parts) {
    for (int cut = 0; cut < (may_cut ? parts : 1); ++cut) TryParts(slot, parts, cut, &least_ns);
  }
  if (part_of_row_[slot].empty()) return;
  NoteCutRows(slot);
  Update(slot);
}

void MicroBatchTable::Update(int slot) {
  if (stale_[slot] != 0) Place(slot);
  const absl::Span<LayerCosts> costs = absl::MakeSpan(layer_costs_).subspan(at_context(slot), contexts());
  known_[slot] = CostLayers(slot, PartShares(slot, part_of_row_[slot]), whole_backward(slot), costs) ? 1 : 0;
  std::fill(rank_work_.begin(), rank_work_.end(), 0);
  LargestMemories(*costs_, Shares(slot), &memory_);
  const int stages = costs_->stages();
  const bool has_selective = costs_->has_selective();
  const absl::Span<const int32_t> recomputed = levels(slot);
  int64_t* const figures = at(slot, Field());
  for (int stage = 0; stage < stages; ++stage) {
    const auto set = [&](Field field, int64_t value) { figures[field * stages + stage] = value; };
    const StageRecompute recompute = RecomputeAtLevel(costs_->stage(stage), recomputed[stage], has_selective);
    const StageMemory& memory = memory_[stage];
    const int64_t forward = ForwardNs(costs, stage);
    const int64_t backward = BackwardNs(costs, stage, recompute);
    set(kForwardNs, forward);
    set(kBackwardNs, backward);
    set(kWeightNs, WeightNs(costs, stage));
    const bool sends = stage + 1 < stages && costs_->position_of(stage) != costs_->position_of(stage + 1);
    set(kNearTransferNs, sends ? costs_->LinkNs(memory.output, Link::kInsideNode) : 0);
    set(kFarTransferNs, sends ? costs_->LinkNs(memory.output, Link::kBetweenNodes) : 0);
    set(kInputBytes, memory.input);
    set(kHeldBytes, HeldBytes(*costs_, stage, memory, recompute));
    set(kPutAsideBytes, costs_->PutAsideBytes(stage, memory) + memory.tokens);
    set(kForwardPassingBytes, ForwardPassingBytes(memory, buffers_));
    set(kPassingBytes, PassingBytes(memory, buffers_));
    rank_work_[costs_->position_of(stage)] +=
        forward + (recompute.is_none() ? backward : BackwardNs(costs, stage, StageRecompute()));
  }
  work_ns_[slot] = *std::max_element(rank_work_.begin(), rank_work_.end());
}

void MicroBatchTable::SlowDown(int slot, int replica, absl::Span<int64_t> figures) const {
  const SlowGroups& slow = costs_->slow_groups();
  const int stages = costs_->stages();
  const absl::Span<const LayerCosts> costs = layer_costs(slot);
  for (int stage = 0; stage < stages; ++stage) {
    const int position = costs_->position_of(stage);
    const auto set = [&](Field field, const auto& ns_of) {
      int64_t& ns = figures[field * stages + stage];
      if (!slow.IsUneven(replica)) {
        ns = slow.Slowed(ns, replica, position, 0);
      } else if (costs.size() < static_cast<size_t>(costs_->group().context)) {
        ns = RoundToInteger(static_cast<double>(ns) / slow.SpeedOf(replica, position));
      } else {
        ns = 0;
        for (size_t context = 0; context < costs.size(); ++context)
          ns = std::max(ns, slow.Slowed(ns_of(costs[context]), replica, position, static_cast<int>(context)));
      }
    };
    const StageRecompute recompute =
        RecomputeAtLevel(costs_->stage(stage), levels(slot)[stage], costs_->has_selective());
    set(kForwardNs, [&](const LayerCosts& of) { return costs_->ForwardNs(stage, of); });
    set(kBackwardNs, [&](const LayerCosts& of) { return costs_->BackwardNs(stage, of, recompute); });
    set(kWeightNs, [&](const LayerCosts& of) { return costs_->WeightNs(stage, of); });
  }
}

void MicroBatchTable::UpdateLevel(int slot, int stage, int32_t level) {
  levels(slot)[stage] = level;
  const StageRecompute recompute = RecomputeAtLevel(costs_->stage(stage), level, costs_->has_selective());
  at(slot, kBackwardNs)[stage] = BackwardNs(layer_costs(slot), stage, recompute);
  at(slot, kHeldBytes)[stage] = HeldBytes(*costs_, stage, Memory(slot, stage), recompute);
}

void MicroBatchTable::Save(int slot, Saved* saved) const {
  saved->slot = slot;
  saved->samples = samples_[slot];
  const absl::Span<const int32_t> kept = levels(slot);
  saved->levels.assign(kept.begin(), kept.end());
  const auto begin = figures_.begin() + offset(slot);
  saved->figures.assign(begin, begin + offset(1));
  const absl::Span<const LayerCosts> layers = layer_costs(slot);
  saved->layer_costs.assign(layers.begin(), layers.end());
  saved->spans = spans_[slot];
  const absl::Span<const Share> shares = Shares(slot);
  saved->shares.assign(shares.begin(), shares.end());
  saved->part_of_row = part_of_row_[slot];
  saved->replica = replica_of_slot_[slot];
  saved->whole_backward = whole_backward_[slot];
  saved->work_ns = work_ns_[slot];
  saved->known = known_[slot] != 0;
}

void MicroBatchTable::Restore(const Saved& saved) {
  samples_[saved.slot] = saved.samples;
  std::copy(saved.levels.begin(), saved.levels.end(), levels(saved.slot).begin());
  std::copy(saved.figures.begin(), saved.figures.end(), figures_.begin() + offset(saved.slot));
  work_ns_[saved.slot] = saved.work_ns;
  known_[saved.slot] = saved.known ? 1 : 0;
  const auto first = static_cast<ptrdiff_t>(at_context(saved.slot));
  std::copy(saved.layer_costs.begin(), saved.layer_costs.end(), layer_costs_.begin() + first);
  spans_[saved.slot] = saved.spans;
  std::copy(saved.shares.begin(), saved.shares.end(), shares_.begin() + first);
  part_of_row_[saved.slot] = saved.part_of_row;
  replica_of_slot_[saved.slot] = saved.replica;
  whole_backward_[saved.slot] = saved.whole_backward;
  stale_[saved.slot] = 0;
}

}  // namespace penstock::core
