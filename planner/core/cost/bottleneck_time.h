// The time of a micro-batch on the rank that takes longest, for searches that ask about very many shapes.
//
// A rank's time is a sum of layer times with whole numbers of layers as factors; ranks that have no more of
// anything than another one are left out, which leaves two or three.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "planner/core/cost/cost_model.h"

namespace penstock::core {

class BottleneckTime {
 public:
  // With what the mode recomputes when memory asks for nothing. `costs` must outlive this object.
  BottleneckTime(const CostModel& costs, RecomputeMode mode);

  // Forward and backward, nanoseconds, not rounded; infinite when the shape is outside of the profile.
  // `whole`: of all ranks of a stage group together, which divide it evenly.
  double operator()(const TokenSums& whole) const {
    const TokenSums sums = costs_->EvenShare(whole);
    double passes[kLayerKinds] = {};
    for (const LayerKind kind : kinds_) {
      passes[kind] = costs_->PassesNs(kind, kind == kHead ? kKeepAll : level_, sums);
      if (std::isinf(passes[kind])) return passes[kind];
    }
    const double source_embedding = embeds_source_ ? 2 * costs_->SourceEmbeddingNs(sums) : 0;
    const double target_embedding = 2 * costs_->TargetEmbeddingNs(sums);
    double longest = 0;
    for (const RankCounts& rank : ranks_) {
      double time = 0;
      for (const LayerKind kind : kinds_) time += rank.layers[kind] * passes[kind];
      time += rank.source_embeddings * source_embedding;
      time += rank.target_embeddings * target_embedding;
      longest = time > longest ? time : longest;
    }
    return longest;
  }

 private:
  struct RankCounts {
    // The head is one.
    std::array<double, kLayerKinds> layers = {};
    double source_embeddings = 0;
    double target_embeddings = 0;
  };
  // Whether `a` has at least as much of everything as `b`.
  static bool Covers(const RankCounts& a, const RankCounts& b);

  const CostModel* costs_;
  RecomputeLevel level_;
  // Those that the model has.
  std::vector<LayerKind> kinds_;
  std::vector<RankCounts> ranks_;
  // Whether any rank does.
  bool embeds_source_ = false;
};

}  // namespace penstock::core
