#include "planner/core/calibrate/fit_costs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner/core/calibrate/forward_parts.h"
#include "planner/core/calibrate/least_squares.h"
#include "planner/core/cost/level_counts.h"

namespace penstock::core {
namespace {

double SumOf(const std::vector<double>& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

// Of the columns of backward passes, that of the first of the forward pass's parts.
constexpr size_t kFirstTerm = kStackKinds * kRecomputeLevels + 2;

class CostFit {
 public:
  CostFit(const CostModel& costs, absl::Span<const MeasuredPass> passes)
      : costs_(costs), passes_(passes), forward_(costs) {}

  CostFactors Run() {
    FitForward();
    FitBackward();
    FitWeight();
    return factors_;
  }

 private:
  void FitForward() {
    std::vector<FitRow> rows;
    for (const MeasuredPass& pass : passes_) {
      if (pass.kind != MeasuredKind::kForward) continue;
      FitRow row = {.parts = forward_.Of(pass.stage, pass.sums), .measured = pass.duration_ns};
      if (SumOf(row.parts) > 0) rows.push_back(std::move(row));
    }
    fitted_ = FitFactors(rows, forward_.parts().size() + 1);
    for (size_t i = 0; i < forward_.parts().size(); ++i) {
      ForwardFactors& factors = factors_.forward[forward_.parts()[i].kind];
      const ForwardTerm term = forward_.parts()[i].term;
      const bool whole = term == ForwardTerm::kWhole;
      if (whole || term == ForwardTerm::kFixed) factors.fixed = fitted_[i];
      if (whole || term == ForwardTerm::kTokens) factors.tokens = fitted_[i];
      if (whole || term == ForwardTerm::kSquares) factors.squares = fitted_[i];
    }
    factors_.embedding = fitted_.back();
  }

  // As it was fitted, of one layer of each kind; false: outside of the profile.
  bool FittedLayers(const TokenSums& sums, std::array<double, kLayerKinds>* layers) const {
    LayerCosts base;
    if (!costs_.layer_model().Layers(sums, &base)) return false;
    // One stage with one layer of each kind would do; there is none, so parts are divided by their layers.
    layers->fill(0);
    for (int stage = 0; stage < costs_.stages(); ++stage) {
      const std::vector<double> parts = forward_.Of(stage, sums);
      std::array<double, kLayerKinds> here = {};
      for (size_t i = 0; i < forward_.parts().size(); ++i)
        here[forward_.parts()[i].kind] += fitted_[i] * parts[i];
      const Stage& holds = costs_.stage(stage);
      for (const LayerKind kind : kAllKinds) {
        if (holds.has(kind)) (*layers)[kind] = here[kind] / holds.count(kind);
      }
    }
    return true;
  }

  // By kind and level, the head's last, then what the stage embeds, then the forward pass's parts: of kinds
  // that have backward forms of their own these take the place of the level without recompute.
  std::vector<double> BackwardParts(const MeasuredPass& pass) const {
    std::array<double, kLayerKinds> layers;
    LayerCosts base;
    if (!FittedLayers(pass.sums, &layers) || !costs_.layer_model().Layers(pass.sums, &base)) return {};
    const Stage& stage = costs_.stage(pass.stage);
    const LevelCounts levels = CountLevels(stage, pass.recompute);
    // What the backward pass is in units of the forward pass, by tables where there are any.
    const auto ratio = [&](int kind, int level) {
      return base.forward[kind] > 0 ? base.backward[kind][level] / base.forward[kind] : 0.0;
    };
    std::vector<double> parts;
    for (const LayerKind kind : kKindsOfStacks) {
      for (int level = 0; level < kRecomputeLevels; ++level) {
        const bool by_terms = level == kKeepAll && has_backward_forms(kind);
        parts.push_back(by_terms ? 0 : levels.counts[kind][level] * ratio(kind, level) * layers[kind]);
      }
    }
    parts.push_back(stage.last ? ratio(kHead, kKeepAll) * layers[kHead] : 0);
    parts.push_back(fitted_.back() * ((stage.embeds_source ? base.source_embedding : 0) +
                                      (stage.embeds_target ? base.target_embedding : 0)));
    for (size_t i = 0; i < forward_.parts().size(); ++i) {
      const LayerKind kind = forward_.parts()[i].kind;
      // The head is no stack of layers: its column is above.
      const int layers_here = kind == kHead ? 0 : levels.counts[kind][kKeepAll];
      parts.push_back(layers_here * fitted_[i] * forward_.BackwardOf(i, pass.sums).whole_ns);
    }
    return parts;
  }

  void FitBackward() {
    std::vector<FitRow> rows;
    for (const MeasuredPass& pass : passes_) {
      if (pass.kind != MeasuredKind::kBackward) continue;
      FitRow row = {.parts = BackwardParts(pass), .measured = pass.duration_ns};
      if (SumOf(row.parts) > 0) rows.push_back(std::move(row));
    }
    if (rows.empty()) return;
    const std::vector<double> fitted = FitFactors(rows, kFirstTerm + forward_.parts().size());
    const auto is_measured = [&](int column) {
      return std::any_of(rows.begin(), rows.end(), [&](const FitRow& row) { return row.parts[column] > 0; });
    };
    for (const LayerKind kind : kKindsOfStacks) {
      const int first = static_cast<int>(kind) * kRecomputeLevels;
      auto& ratio = factors_.backward_ratio[kind];
      ratio[kKeepAll] = has_backward_forms(kind) ? FitTerms(kind, rows, fitted) : fitted[first];
      for (const RecomputeLevel level : {kKeepSelective, kKeepInput}) {
        // A level that no pass had changes as that without recomputation did.
        ratio[level] = is_measured(first + level) ? fitted[first + level] : ratio[kKeepAll];
      }
    }
    factors_.backward_ratio[kHead].fill(fitted[kFirstTerm - 2]);
  }

  // The factor of all terms of a kind's backward passes together, beside which each has its own.
  double FitTerms(LayerKind kind, const std::vector<FitRow>& rows, const std::vector<double>& fitted) {
    double foreseen = 0;
    double whole = 0;
    for (size_t i = 0; i < forward_.parts().size(); ++i) {
      if (forward_.parts()[i].kind != kind) continue;
      for (const FitRow& row : rows) {
        foreseen += row.parts[kFirstTerm + i];
        whole += fitted[kFirstTerm + i] * row.parts[kFirstTerm + i];
      }
    }
    const double all = foreseen > 0 ? whole / foreseen : fitted[kFirstTerm];
    for (size_t i = 0; i < forward_.parts().size(); ++i) {
      if (forward_.parts()[i].kind != kind) continue;
      ForwardFactors& factors = factors_.backward[kind];
      const double own = foreseen > 0 ? fitted[kFirstTerm + i] / all : 1;
      if (forward_.parts()[i].term == ForwardTerm::kFixed) factors.fixed = own;
      if (forward_.parts()[i].term == ForwardTerm::kTokens) factors.tokens = own;
      if (forward_.parts()[i].term == ForwardTerm::kSquares) factors.squares = own;
    }
    return all;
  }

  double BackwardFactor(const ForwardPart& part) const {
    const ForwardFactors& own = factors_.backward[part.kind];
    const double factor = part.term == ForwardTerm::kFixed    ? own.fixed
                          : part.term == ForwardTerm::kTokens ? own.tokens
                                                              : own.squares;
    return factor * factors_.backward_ratio[part.kind][kKeepAll];
  }

  // Relative to what the factors above make of it. The whole backward pass stays what it is.
  void FitWeight() {
    double foreseen = 0;
    double whole = 0;
    double measured = 0;
    for (const MeasuredPass& pass : passes_) {
      std::array<double, kLayerKinds> layers;
      if (pass.kind != MeasuredKind::kBackwardWeight || !FittedLayers(pass.sums, &layers)) continue;
      LayerCosts base;
      costs_.layer_model().Layers(pass.sums, &base);
      const Stage& stage = costs_.stage(pass.stage);
      for (const LayerKind kind : kKindsOfStacks) {
        if (!stage.has(kind) || has_backward_forms(kind) || base.forward[kind] <= 0) continue;
        const double fitted =
            stage.count(kind) * layers[kind] / base.forward[kind] * factors_.backward_ratio[kind][kKeepAll];
        foreseen += fitted * base.weight[kind];
        whole += fitted * base.backward[kind][kKeepAll];
      }
      for (size_t i = 0; i < forward_.parts().size(); ++i) {
        const ForwardPart& part = forward_.parts()[i];
        if (!forward_.has_backward(i) || !stage.has(part.kind)) continue;
        const double fitted = stage.count(part.kind) * fitted_[i] * BackwardFactor(part);
        const ForwardParts::Backward term = forward_.BackwardOf(i, pass.sums);
        foreseen += fitted * term.weight_ns;
        whole += fitted * term.whole_ns;
      }
      measured += pass.duration_ns;
    }
    if (foreseen <= 0 || whole <= foreseen) return;
    const double weight = std::clamp(measured, kLeastShare * whole, (1 - kLeastShare) * whole);
    factors_.weight_share = weight / foreseen;
    factors_.input_share = (whole - weight) / (whole - foreseen);
  }

  bool has_backward_forms(LayerKind kind) const {
    return costs_.profile().layers[kind].backward_forms.has_value();
  }

  const CostModel& costs_;
  const absl::Span<const MeasuredPass> passes_;
  const ForwardParts forward_;
  // Of the forward parts.
  std::vector<double> fitted_;
  CostFactors factors_;
};

}  // namespace

CostFactors FitCosts(const CostModel& costs, absl::Span<const MeasuredPass> passes) {
  return CostFit(costs, passes).Run();
}

}  // namespace penstock::core
