// One layer of each kind from below: what it takes for any micro-batch, in any layout, at any recompute that
// a job allows.
//
// The time of a layer is at least scale * (overhead + linear part), where the overhead is paid once for each
// micro-batch and the linear part is a sum over its samples. So bounds of many micro-batches add up without
// knowing how samples are grouped. Of a stage group the slowest rank takes at least what its ranks take on
// average, as though every sample were divided evenly over all of them and nothing but what tensor ranks
// exchange came on top. docs/planning.md, "Lower bound", has the proofs.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// Nanoseconds of one layer of each kind, of the embeddings of source and target tokens, and of what tensor
// ranks exchange, before scaling: a point, or the coefficients of a sum over layers.
using LayerVector = std::array<double, kLayerKinds + 4 + 2 * kStackKinds>;
inline constexpr int kSourceEmbedding = kLayerKinds;
inline constexpr int kTargetEmbedding = kLayerKinds + 1;
// One gather or sum over tensor ranks, of source and of target tokens.
inline constexpr int kSourceExchange = kLayerKinds + 2;
inline constexpr int kTargetExchange = kLayerKinds + 3;
// Of layers of each kind, but the head, whose backward pass has closed forms of its own.
inline constexpr int kInputGradients = kLayerKinds + 4;
inline constexpr int kWeightGradients = kInputGradients + kStackKinds;

inline double Dot(const LayerVector& a, const LayerVector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Passes as the bound tells them apart. kInput and kWeight are the two parts of kWhole.
enum class BoundPass : int { kForward, kWhole, kInput, kWeight };
inline constexpr int kBoundPasses = 4;

// A value for each side of a sample.
struct PerToken {
  double source = 0;
  double target = 0;

  double operator()(const TokenSums& sums) const { return source * sums.source + target * sums.target; }
};

// What a layer may do: bytes kept, and backward time above the level that costs least, in units of the form.
struct LevelBound {
  PerToken kept;
  double extra = 0;
};

struct LayerBound {
  bool present = false;
  bool loss_tokens_only = false;
  // Shape of the time: a closed form, or one nanosecond a token where the profile has tables alone.
  LayerTime form;
  // Context ranks, which a stage group's slowest rank has at least the mean of.
  double contexts = 1;
  // By BoundPass: of the form, and of the closed forms of a backward pass where there are some.
  std::array<double, kBoundPasses> scale = {};
  bool has_backward_forms = false;
  BackwardForms backward_forms;
  std::array<double, kBoundPasses> input_scale = {};
  std::array<double, kBoundPasses> weight_scale = {};
  // Bytes kept at the level that costs least time, and at the level that keeps least.
  PerToken kept;
  PerToken least_kept;
  PerToken peak;
  std::vector<LevelBound> levels;
  // Least backward time for each byte that recompute saves; infinite when nothing can be saved.
  double price_ns_per_byte = 0;

  // The sum over samples, and what a micro-batch pays once if it has tokens on each side of `each`.
  double Linear(const TokenSums& sums) const;
  double Overhead(const TokenSums& each) const;
  // The same of a closed form of the backward pass.
  double Linear(const LayerTime& backward, const TokenSums& sums) const;
  double Overhead(const LayerTime& backward, const TokenSums& each) const;
  // What Linear() at least grows by with a token.
  PerToken Rate() const;
};

// The same for the embeddings, which have no scale. Of a stage group's `contexts` ranks each has the fixed
// part, and one of them at least has tokens.
double LinearNs(const LayerTime& form, const TokenSums& sums);
double OverheadNs(const LayerTime& form, const TokenSums& each, double contexts);

// `packed`: all micro-batches are, so that each row takes what packed ones do.
LayerBound BoundLayer(const CostModel& costs, LayerKind kind, RecomputeMode mode, bool packed);

}  // namespace penstock::core
