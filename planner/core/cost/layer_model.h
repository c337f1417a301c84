// What one layer of each kind computes, from the profile alone: a function of a rank's share of tokens and of
// the number of tensor ranks that divide the layer. Knows nothing of stages, nor of what ranks exchange.
//
//   LayerModel model(profile, group);
//   LayerCosts layers;
//   if (model.Layers(sums, &layers)) { double time = layers.forward[kDecoder]; }
#pragma once

#include <array>
#include <cstdint>

#include "planner/core/cost/layer_costs.h"
#include "planner/core/cost/profile.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

class LayerModel {
 public:
  // The profile has figures for the tensor ranks of the group, or there is one.
  LayerModel(const Profile& profile, const GroupShape& group);

  // False when the shape is outside of the profile: not on the grid, and no closed form.
  bool Layers(const TokenSums& sums, LayerCosts* costs) const;

  // Forward and backward pass of one layer of this kind, not rounded; infinite when the shape is outside of
  // the profile. The fast way where one recompute level is all that is asked for.
  double PassesNs(LayerKind kind, RecomputeLevel level, const TokenSums& sums) const;
  double SourceEmbeddingNs(const TokenSums& sums) const {
    return profile_.embedding_forward(SourceSide(sums));
  }
  double TargetEmbeddingNs(const TokenSums& sums) const {
    return profile_.embedding_forward(TargetSide(sums));
  }
  // What attention to its own kind of tokens takes of a decoder layer's forward pass for so many squared
  // tokens among `tokens`; of a layer of any kind of a GPT.
  double AttentionNs(double squares, double tokens) const;
  double backward_ratio(LayerKind kind, RecomputeLevel level) const {
    return profile_.layers[kind].backward_ratio[level];
  }
  // What gradients of a decoder layer's weights take for each token, of many.
  double WeightTokenNs() const;

  // Of one rank's part, as bounds need it: the closed form, and what times are divided by.
  const LayerTime& form(LayerKind kind) const { return form_[kind]; }
  double form_divisor(LayerKind kind) const { return form_divisor_[kind]; }
  double table_divisor(LayerKind kind) const { return table_divisor_[kind]; }

 private:
  // What closed forms of a backward pass without recompute say, and what a level makes of it for a forward
  // pass of `forward`.
  struct BackwardParts {
    double input = 0;
    double weight = 0;
  };
  BackwardParts PartsOfBackward(LayerKind kind, const TokenSums& sums) const;
  double AtLevel(LayerKind kind, RecomputeLevel level, const BackwardParts& parts, double forward) const {
    const auto& ratio = profile_.layers[kind].backward_ratio;
    return parts.input + parts.weight + forward * (ratio[level] - ratio[kKeepAll]);
  }

  bool LayerOfKind(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const;
  // Where the backward pass has no closed forms of its own: tables, or multiples of the forward pass.
  bool PassesOfKind(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const;
  void RaiseToBorder(LayerKind kind, const TokenSums& sums, LayerCosts* costs) const;
  // Time of the closed form.
  double FormNs(LayerKind kind, const TokenSums& sums) const {
    return form_[kind](profile_.layers[kind].loss_tokens_only ? LossPositions(sums) : sums) /
           form_divisor_[kind];
  }

  const Profile& profile_;
  std::array<LayerTime, kLayerKinds> form_;
  std::array<double, kLayerKinds> form_divisor_;
  std::array<double, kLayerKinds> table_divisor_;
};

}  // namespace penstock::core
