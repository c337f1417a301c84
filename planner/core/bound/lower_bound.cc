#include "planner/core/bound/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace penstock::core {
namespace {

// The form without efficiency and fixed time.
double Linear(const LayerTime& form, const TokenSums& sums) {
  return form.target_token_ns * sums.target + form.target_square_ns * sums.target_square +
         form.cross_ns * sums.cross + form.source_token_ns * sums.source +
         form.source_square_ns * sums.source_square;
}

// What a micro-batch pays once, whatever its size.
double Overhead(const LayerTime& form, const TokenSums& each) {
  double overhead = form.fixed_ns;
  if (each.target > 0) overhead += form.target_token_ns * form.half_efficiency_tokens;
  if (each.source > 0) overhead += form.source_token_ns * form.half_efficiency_tokens;
  return overhead;
}

// Smallest quotient of a table and a form over the points of the grid. Between the points the interpolated
// table is not below the interpolated form, which is not below the form: its terms are linear along each
// axis, or convex.
double SmallestRatio(const Grid& grid, TableAxes axes, const std::vector<double>& table,
                     const LayerTime& form) {
  static const std::vector<double>& none = *new std::vector<double>{0};
  double ratio = std::numeric_limits<double>::infinity();
  size_t index = 0;
  for (const double rows : grid.rows) {
    for (const double source : axes == TableAxes::kTarget ? none : grid.source_length) {
      for (const double target : axes == TableAxes::kSource ? none : grid.target_length) {
        const TokenSums sums = PaddedSums(static_cast<int32_t>(rows), static_cast<int32_t>(source),
                                          static_cast<int32_t>(target));
        const double value = table[index++];
        if (!std::isnan(value)) ratio = std::min(ratio, value / form(sums));
      }
    }
  }
  return ratio;
}

std::vector<RecomputeLevel> AllowedLevels(LayerKind kind, RecomputeMode mode, bool has_selective) {
  if (kind == kHead || mode == RecomputeMode::kNone) return {kKeepAll};
  if (mode == RecomputeMode::kSelective) return {kKeepSelective};
  if (mode == RecomputeMode::kFull) return {kKeepInput};
  if (has_selective) return {kKeepAll, kKeepSelective, kKeepInput};
  return {kKeepAll, kKeepInput};
}

}  // namespace

LowerBound::LayerBound LowerBound::BoundLayer(const CostModel& costs, LayerKind kind, RecomputeMode mode) {
  const LayerProfile& layer = costs.profile().layers[kind];
  const Grid& grid = costs.profile().grid;
  LayerBound bound;
  if (!layer.present) return bound;
  bound.form = layer.forward;
  bound.loss_tokens_only = layer.loss_tokens_only;
  bound.forward_scale = 1;
  if (!layer.has_closed_form) {
    // One nanosecond a token, scaled by the table.
    bound.form = LayerTime();
    (layer.axes == TableAxes::kSource ? bound.form.source_token_ns : bound.form.target_token_ns) = 1;
    bound.forward_scale = std::numeric_limits<double>::infinity();
  }
  if (!layer.forward_table_ns.empty()) {
    bound.forward_scale =
        std::min(bound.forward_scale, SmallestRatio(grid, layer.axes, layer.forward_table_ns, bound.form));
  }
  bound.backward_scale = std::numeric_limits<double>::infinity();
  for (const RecomputeLevel level : AllowedLevels(kind, mode, layer.has_selective)) {
    const std::vector<double>& table = layer.backward_table_ns[level];
    if (!table.empty()) {
      bound.backward_scale =
          std::min(bound.backward_scale, SmallestRatio(grid, layer.axes, table, bound.form));
    }
    if (layer.backward_ratio[level] > 0) {
      bound.backward_scale =
          std::min(bound.backward_scale, layer.backward_ratio[level] * bound.forward_scale);
    }
  }
  return bound;
}

LowerBound::LowerBound(const CostModel& costs, const Job& job) : costs_(costs), replicas_(job.replicas) {
  for (const LayerKind kind : {kEncoder, kDecoder, kHead}) {
    layers_[kind] = BoundLayer(costs, kind, job.recompute);
  }
}

double LowerBound::StagesNs(int first, int last, Pass pass, const TokenSums& sums,
                            const TokenSums& each) const {
  double time = 0;
  for (int index = first; index < last; ++index) {
    const Stage& stage = costs_.stage(index);
    const int counts[kLayerKinds] = {stage.encoder_layers, stage.decoder_layers, stage.last ? 1 : 0};
    for (int kind = 0; kind < kLayerKinds; ++kind) {
      if (counts[kind] == 0) continue;
      const LayerBound& layer = layers_[kind];
      const double scale = pass == Pass::kForward ? layer.forward_scale : layer.backward_scale;
      const double once = layer.loss_tokens_only ? Overhead(layer.form, LossPositions(each)) +
                                                       Linear(layer.form, LossPositions(sums))
                                                 : Overhead(layer.form, each) + Linear(layer.form, sums);
      time += counts[kind] * scale * once;
    }
    const LayerTime& embedding = costs_.profile().embedding_forward;
    if (stage.first) time += Overhead(embedding, each) + Linear(embedding, sums);
  }
  return time;
}

double LowerBound::TransfersNs(int stages, const TokenSums& sums) const {
  double time = 0;
  for (int stage = 0; stage < stages; ++stage) {
    int64_t fastest = std::numeric_limits<int64_t>::max();
    for (int replica = 0; replica < replicas_; ++replica) {
      const int rank = replica * costs_.stages() + stage;
      fastest = std::min(fastest, costs_.TransferNs(costs_.BoundaryBytes(stage, sums), rank, rank + 1));
    }
    time += 2.0 * static_cast<double>(fastest);
  }
  return time;
}

int64_t LowerBound::operator()(absl::Span<const SampleTokens> samples) const {
  if (samples.empty()) return 0;
  const int stages = costs_.stages();
  SampleTokens least = samples[0];
  for (const SampleTokens& sample : samples) {
    least.source = std::min(least.source, sample.source);
    least.target = std::min(least.target, sample.target);
    least.loss = std::min(least.loss, sample.loss);
  }
  TokenSums each;
  AddPacked(least, &each);
  TokenSums all;
  double longest_path = 0;
  for (const SampleTokens& sample : samples) {
    AddPacked(sample, &all);
    TokenSums one;
    AddPacked(sample, &one);
    longest_path = std::max(longest_path, StagesNs(0, stages, Pass::kForward, one, each) +
                                              StagesNs(0, stages, Pass::kBackward, one, each) +
                                              TransfersNs(stages - 1, one));
  }
  // The share of one replica, if all had the same.
  const double share = 1.0 / std::min<double>(replicas_, static_cast<double>(samples.size()));
  for (double* sum :
       {&all.source, &all.target, &all.source_square, &all.target_square, &all.cross, &all.loss}) {
    *sum *= share;
  }

  double bound = longest_path;
  for (int stage = 0; stage < stages; ++stage) {
    const double work = StagesNs(stage, stage + 1, Pass::kForward, all, each) +
                        StagesNs(stage, stage + 1, Pass::kBackward, all, each);
    const double fill_and_drain = StagesNs(0, stage, Pass::kForward, each, each) +
                                  StagesNs(0, stage, Pass::kBackward, each, each) + TransfersNs(stage, each);
    bound = std::max(bound, work + fill_and_drain);
  }
  // Times are rounded once for each pass: by at most half a nanosecond.
  bound -= static_cast<double>(samples.size()) + 2.0 * stages;
  const int64_t end =
      costs_.AllReduceNs(costs_.ParameterBytes(0), 0, stages, replicas_) + costs_.OptimizerNs(0);
  return std::max<int64_t>(0, static_cast<int64_t>(bound)) + end;
}

}  // namespace penstock::core
