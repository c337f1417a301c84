#include "planner/core/bound/layer_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/core/bound/infinity.h"

namespace penstock::core {
namespace {

// What a time may be at one point of the grid.
struct Range {
  double low = kInfinity;
  double high = -kInfinity;

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// Levels that the backward pass of a layer may have, the one without which nothing is kept less first.
std::vector<RecomputeLevel> AllowedLevels(LayerKind kind, RecomputeMode mode, bool has_selective) {
  if (kind == kHead || mode == RecomputeMode::kNone) return {kKeepAll};
  if (mode == RecomputeMode::kSelective) return {kKeepSelective};
  if (mode == RecomputeMode::kFull) return {kKeepInput};
  if (has_selective) return {kKeepAll, kKeepSelective, kKeepInput};
  return {kKeepAll, kKeepInput};
}

// Walks over all that a layer's costs can be made of: the points of its tables, and its closed form.
class LayerWalk {
 public:
  LayerWalk(const CostModel& costs, LayerKind kind, const LayerTime& form)
      : grid_(costs.profile().grid),
        windows_(costs.profile().windows),
        layer_(costs.profile().layers[kind]),
        form_(form),
        form_divisor_(costs.layer_model().form_divisor(kind)),
        table_divisor_(costs.layer_model().table_divisor(kind)) {
    for (int level = 0; level < kRecomputeLevels; ++level) {
      const std::vector<double>& table = layer_.backward_table_ns[level];
      may_miss_[level] =
          table.empty() || std::any_of(table.begin(), table.end(), [](double v) { return std::isnan(v); });
    }
  }

  // Smallest quotient of `value`(forward, ranges of backward by level) and the form. Between the points of a
  // grid the interpolated table is not below the interpolated form, which is not below the form: its terms
  // are linear along each axis, or convex. Beyond a grid times are only raised.
  template <typename Value>
  double SmallestRatio(Value value) const {
    return Smallest(
        [&](double form, double forward, const auto& backward) { return value(forward, backward) / form; });
  }

  // Smallest backward time of a level in units of that without recompute.
  double SmallestRelation(RecomputeLevel level) const {
    return Smallest([&](double /*form*/, double /*forward*/, const auto& backward) {
      return backward[level].low / backward[kKeepAll].high;
    });
  }

 private:
  using Ranges = std::array<Range, kRecomputeLevels>;

  template <typename Value>
  double Smallest(Value value) const {
    double ratio = kInfinity;
    if (layer_.has_closed_form) {
      const double forward = 1.0 / form_divisor_;
      ratio = value(1.0, forward, Backward(forward, 0, /*closed=*/true));
    }
    static const std::vector<double>& none = *new std::vector<double>{0};
    const bool has_source = layer_.axes != TableAxes::kTarget;
    const bool has_target = layer_.axes != TableAxes::kSource;
    if (layer_.forward_table_ns.empty()) return ratio;
    size_t index = 0;
    for (const double rows : grid_.rows) {
      for (const double source : has_source ? grid_.source_length : none) {
        for (const double target : has_target ? grid_.target_length : none) {
          const double forward = layer_.forward_table_ns[index] / table_divisor_;
          const TokenSums sums =
              PaddedSums(static_cast<int32_t>(rows), static_cast<int32_t>(source),
                         static_cast<int32_t>(target), 0, windows_.LessSquare(static_cast<int64_t>(target)));
          if (!std::isnan(forward)) {
            ratio = std::min(ratio, value(form_(sums), forward, Backward(forward, index, false)));
          }
          ++index;
        }
      }
    }
    return ratio;
  }

  Ranges Backward(double forward, size_t index, bool closed) const {
    Ranges ranges;
    for (int level = 0; level < kRecomputeLevels; ++level) {
      if (closed || may_miss_[level]) ranges[level].Add(forward * layer_.backward_ratio[level]);
      if (closed || layer_.backward_table_ns[level].empty()) continue;
      const double measured = layer_.backward_table_ns[level][index] / table_divisor_;
      if (!std::isnan(measured)) ranges[level].Add(measured);
    }
    return ranges;
  }

  const Grid& grid_;
  const AttentionWindows& windows_;
  const LayerProfile& layer_;
  const LayerTime& form_;
  const double form_divisor_;
  const double table_divisor_;
  // A backward table has no value somewhere, so that the ratio may stand in anywhere.
  std::array<bool, kRecomputeLevels> may_miss_ = {};
};

// Of a rank of a stage group, on average.
PerToken Rates(const LayerBytes& bytes, double ranks) {
  return {bytes.source_token_bytes / ranks, bytes.target_token_bytes / ranks};
}

double LeastForward(const LayerWalk& walk) {
  return walk.SmallestRatio([](double forward, const auto&) { return forward; });
}

double LeastBackward(const LayerWalk& walk, RecomputeLevel level) {
  return walk.SmallestRatio([&](double /*forward*/, const auto& backward) { return backward[level].low; });
}

// Backward time of a level above that without recompute, in units of the form, from below.
double ExtraOfLevel(const LayerProfile& layer, const LayerWalk& walk, RecomputeLevel level) {
  // Forward passes that the level adds to closed forms of the backward pass.
  if (layer.backward_forms.has_value())
    return (layer.backward_ratio[level] - layer.backward_ratio[kKeepAll]) * LeastForward(walk);
  return std::max(0.0, LeastBackward(walk, level) * (1 - 1 / walk.SmallestRelation(level)));
}

// Backward time of a level above that without recompute for each byte that it saves, from below.
double PriceOfLevel(double extra, const LayerBound& bound, const PerToken& kept) {
  double price = kInfinity;
  const PerToken rate = bound.Rate();
  const double sides[2][2] = {{rate.source, bound.kept.source - kept.source},
                              {rate.target, bound.kept.target - kept.target}};
  for (const auto& [time, saved] : sides) {
    if (saved > 0) price = std::min(price, extra * time / saved);
  }
  return price;
}

// Of a head that tensor ranks divide, without what it gathers (execution.md, section 8).
LayerBytes LeastDividedHead(const LayerProfile& head) {
  const LayerBytes& kept = head.stored[kKeepAll];
  return {2 * std::max(0.0, head.peak.source_token_bytes - 3 * kept.source_token_bytes) / 3,
          2 * std::max(0.0, head.peak.target_token_bytes - 3 * kept.target_token_bytes) / 3};
}

// What a layer takes at least while it runs, beside what it keeps. A head is never made again; other layers
// take all of the peak only where each of them is.
LayerBytes LeastPeak(const LayerProfile& layer, LayerKind kind, const std::vector<RecomputeLevel>& levels,
                     int tensors) {
  if (kind == kHead) return tensors > 1 ? LeastDividedHead(layer) : layer.peak;
  if (levels.size() == 1 && levels.front() == kKeepInput) return layer.peak;
  const LayerBytes& kept = layer.stored[kKeepAll];
  if (layer.peak_has_gradients()) {
    const LayerBytes& input = layer.stored[kKeepInput];
    return {layer.peak.source_token_bytes - kept.source_token_bytes + input.source_token_bytes,
            layer.peak.target_token_bytes - kept.target_token_bytes + input.target_token_bytes};
  }
  return {std::min(layer.peak.source_token_bytes, kept.source_token_bytes),
          std::min(layer.peak.target_token_bytes, kept.target_token_bytes)};
}

void BoundMemory(const LayerProfile& layer, LayerKind kind, const std::vector<RecomputeLevel>& levels,
                 const LayerWalk& walk, const GroupShape& group, LayerBound* bound) {
  const double ranks = group.ranks();
  bound->peak = Rates(LeastPeak(layer, kind, levels, group.tensor), ranks);
  bound->kept = Rates(layer.stored[levels.front()], ranks);
  bound->least_kept = bound->kept;
  bound->price_ns_per_byte = kInfinity;
  bound->levels = {{bound->kept, 0}};
  for (const RecomputeLevel level : levels) {
    if (level == levels.front()) continue;
    const PerToken kept = Rates(layer.stored[level], ranks);
    const double extra = ExtraOfLevel(layer, walk, level);
    bound->levels.push_back({kept, extra});
    bound->least_kept.source = std::min(bound->least_kept.source, kept.source);
    bound->least_kept.target = std::min(bound->least_kept.target, kept.target);
    bound->price_ns_per_byte = std::min(bound->price_ns_per_byte, PriceOfLevel(extra, *bound, kept));
  }
}

// Scales of backward passes that are multiples of the forward pass, or tables.
void BoundBackward(const LayerProfile& layer, LayerKind kind, const std::vector<RecomputeLevel>& levels,
                   const LayerWalk& walk, LayerBound* bound) {
  const double weight_share = kind == kHead ? 0 : 1 - layer.backward_input_share;
  const auto scale = [&](BoundPass pass) -> double& { return bound->scale[static_cast<int>(pass)]; };
  scale(BoundPass::kWhole) = kInfinity;
  scale(BoundPass::kInput) = kInfinity;
  for (const RecomputeLevel level : levels) {
    const double whole = LeastBackward(walk, level);
    // What is put off is a share of the time without recompute.
    const double input = whole * (1 - weight_share / walk.SmallestRelation(level));
    scale(BoundPass::kWhole) = std::min(scale(BoundPass::kWhole), whole);
    scale(BoundPass::kInput) = std::min(scale(BoundPass::kInput), input);
  }
  scale(BoundPass::kWeight) = weight_share * LeastBackward(walk, kKeepAll);
}

// Of those with closed forms of their own, to which a level adds forward passes.
void BoundBackwardForms(const CostModel& costs, LayerKind kind, const std::vector<RecomputeLevel>& levels,
                        const LayerWalk& walk, LayerBound* bound) {
  const LayerProfile& layer = costs.profile().layers[kind];
  double extra = kInfinity;
  for (const RecomputeLevel level : levels) extra = std::min(extra, ExtraOfLevel(layer, walk, level));
  const double each = 1 / costs.layer_model().table_divisor(kind);
  bound->has_backward_forms = true;
  bound->backward_forms = {layer.backward_forms->input.AtBestEfficiency(),
                           layer.backward_forms->weight.AtBestEfficiency()};
  for (const BoundPass pass : {BoundPass::kWhole, BoundPass::kInput, BoundPass::kWeight}) {
    const auto at = static_cast<size_t>(pass);
    bound->scale[at] = pass == BoundPass::kWeight ? 0 : extra;
    bound->input_scale[at] = pass == BoundPass::kWeight ? 0 : each;
    bound->weight_scale[at] = pass == BoundPass::kInput ? 0 : each;
  }
}

}  // namespace

// Without `divided_row_ns`: all rows may be whole.
double LinearNs(const LayerTime& form, const TokenSums& sums) {
  return form.target_token_ns * sums.target + form.target_square_ns * sums.target_square +
         form.cross_ns * sums.cross + form.source_token_ns * sums.source +
         form.source_square_ns * sums.source_square + form.packed_row_ns * sums.packed_rows() +
         form.target_call_square_ns * sums.target_call_square() +
         form.source_call_square_ns * sums.source_call_square();
}

double OverheadNs(const LayerTime& form, const TokenSums& each, double contexts) {
  double overhead = form.fixed_ns;
  if (each.target > 0) overhead += form.target_token_ns * form.half_efficiency_tokens / contexts;
  if (each.source > 0) overhead += form.source_token_ns * form.half_efficiency_tokens / contexts;
  return overhead;
}

double LayerBound::Linear(const LayerTime& backward, const TokenSums& sums) const {
  return LinearNs(backward, sums) / contexts;
}

double LayerBound::Overhead(const LayerTime& backward, const TokenSums& each) const {
  return OverheadNs(backward, each, contexts);
}

double LayerBound::Linear(const TokenSums& sums) const {
  return LinearNs(form, loss_tokens_only ? LossPositions(sums) : sums) / contexts;
}

double LayerBound::Overhead(const TokenSums& each) const {
  return OverheadNs(form, loss_tokens_only ? LossPositions(each) : each, contexts);
}

PerToken LayerBound::Rate() const {
  if (loss_tokens_only) return {};
  return {form.source_token_ns / contexts, form.target_token_ns / contexts};
}

LayerBound BoundLayer(const CostModel& costs, LayerKind kind, RecomputeMode mode, bool packed) {
  const LayerProfile& layer = costs.profile().layers[kind];
  LayerBound bound;
  bound.contexts = costs.group().context;
  bound.present = layer.present;
  if (!layer.present) return bound;
  bound.loss_tokens_only = layer.loss_tokens_only;
  if (layer.has_closed_form) {
    // Samples may lie among any number of tokens.
    bound.form = costs.layer_model().form(kind).AtBestEfficiency();
  } else {
    (layer.axes == TableAxes::kSource ? bound.form.source_token_ns : bound.form.target_token_ns) = 1;
  }
  const std::vector<RecomputeLevel> levels = AllowedLevels(kind, mode, layer.has_selective);
  const LayerWalk walk(costs, kind, bound.form);
  bound.scale[static_cast<int>(BoundPass::kForward)] = LeastForward(walk);
  if (layer.backward_forms.has_value()) {
    BoundBackwardForms(costs, kind, levels, walk, &bound);
  } else {
    BoundBackward(layer, kind, levels, walk, &bound);
  }
  if (!packed) {
    // Rows of a rectangle are one call.
    for (LayerTime* form : {&bound.form, &bound.backward_forms.input, &bound.backward_forms.weight})
      form->packed_row_ns = form->target_call_square_ns = form->source_call_square_ns = 0;
  }
  for (double& value : bound.scale) value = std::isfinite(value) ? std::max(0.0, value) : 0;
  BoundMemory(layer, kind, levels, walk, costs.group(), &bound);
  return bound;
}

}  // namespace penstock::core
