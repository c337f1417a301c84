// By what the costs of a profile are multiplied so that they foretell what was measured.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "planner/core/cost/profile.h"
#include "planner/core/topology/link.h"

namespace penstock::core {

// Of a backward pass, what each of its two parts takes at least: neither is ever free.
inline constexpr double kLeastShare = 0.02;

struct ForwardFactors {
  double fixed = 1;
  double tokens = 1;
  double squares = 1;
};

struct CostFactors {
  std::array<ForwardFactors, kLayerKinds> forward = {};
  double embedding = 1;
  // Of the backward pass in units of the forward pass.
  std::array<std::array<double, kRecomputeLevels>, kLayerKinds> backward_ratio = {};
  // Of the terms of backward passes that have closed forms of their own, beside those of the forward pass and
  // the ratio without recompute.
  std::array<ForwardFactors, kLayerKinds> backward = {};
  // Of the part of a backward pass without recompute that makes gradients of weights.
  double weight_share = 1;
  // Of the rest of it.
  double input_share = 1;
  double optimizer = 1;
  // Of the time of transfers between ranks, by Link.
  std::array<double, kLinks> links;
  // Of all computing, beyond those above.
  double all = 1;
  // Of that factor, what is waiting that no plan foresees.
  double waiting = 1;
  // What hosts take between passes, of what passes take with it: who measures bubbles calls it waiting.
  double host_share = 0;
  // Those of the profile are replaced by them; nothing: they stay.
  std::optional<std::vector<SlowRank>> slow_ranks;
  std::optional<std::vector<SlowLink>> slow_links;
  // That of the profile is replaced by it; nothing: it stays.
  std::optional<double> pass_noise;
  // That of its number of ranks is replaced by it, or added; nothing: all stay.
  std::optional<ExpertLoad> expert_load;

  CostFactors() {
    for (auto& levels : backward_ratio) levels.fill(1);
    links.fill(1);
  }
};

}  // namespace penstock::core
