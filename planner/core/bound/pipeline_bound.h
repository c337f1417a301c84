// One pipeline from below: each stage's passes, transfers, memory and end as coefficients of sums over
// samples, so that a bound takes a few products for each sample.
#pragma once

#include <array>
#include <vector>

#include "planner/core/bound/layer_bound.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// A transfer over a boundary: a latency and a time for each token.
struct TransferBound {
  double latency_ns = 0;
  PerToken ns;
};

struct StageBound {
  // By BoundPass: coefficients of the layers' times.
  std::array<LayerVector, kBoundPasses> passes = {};
  // To the next stage, over the fastest link that any replica has there; nothing on the last stage, and where
  // the next stage is on the same rank.
  TransferBound transfer;
  double reduce_ns = 0;
  // One for each choice of a level for the layers of each kind. Any other choice lies between them.
  struct Option {
    PerToken kept;
    // Backward time above that of the level that costs least.
    LayerVector extra = {};
  };
  std::vector<Option> options;

  const LayerVector& pass(BoundPass kind) const { return passes[static_cast<int>(kind)]; }
};

struct RankBound {
  // In stage order.
  std::vector<int> stages;
  // Bytes for micro-batches.
  double available_bytes = 0;
  // What a micro-batch keeps on all stages of the rank; what else exists while the last of them runs
  // backward, by kind of layer.
  PerToken kept;
  PerToken least_kept;
  std::array<PerToken, kLayerKinds> peak;
  double price_ns_per_byte = 0;
};

struct PipelineBound {
  PipelineBound(const CostModel& costs, const Job& job);

  // Unscaled times of one layer of each kind.
  LayerVector Linear(const TokenSums& sums) const;
  LayerVector Overhead(const TokenSums& each) const;

  std::array<LayerBound, kLayerKinds> layers;
  LayerTime embedding;
  double contexts = 1;
  // Of one gather or sum over tensor ranks: for each token of a context rank, and once.
  double exchange_token_ns = 0;
  double exchange_ns = 0;
  std::vector<StageBound> stages;
  std::vector<RankBound> ranks;
  // The longest optimizer step of a rank. All wait for the slowest reduction of gradients before it.
  double optimizer_ns = 0;
  // Whether a micro-batch's backward pass may be split, so that its gradient leaves a stage earlier.
  bool split = false;
};

}  // namespace penstock::core
