// How many gathers and sums over tensor ranks a layer makes, of source and of target tokens.
//
// A GPT's layers and T5's encoder layers have two parts that are divided, attention and feed-forward, with a
// gather before and a sum behind each (Korthikanti et al. 2022, "Reducing activation recomputation in large
// Transformer models", section 4.2); T5's decoder layers have three, and gather the encoder's output too.
// Backward each part has both again, and gathers its input once more for the gradients of its weights; a
// layer that is run again makes those of its forward pass, too. Where ranks divide the experts, each has its
// own tokens' experts, which then gather and sum nothing, unless there is one for all tokens beside them
// (GroupShape::feeds_own_tokens).
#pragma once

#include <cstdint>

#include "planner/core/cost/profile.h"
#include "planner/core/topology/stage.h"

namespace penstock::core {

struct HalfCounts {
  int64_t source = 0;
  int64_t target = 0;
};

// The head, of target tokens and in its forward pass, where its gradients are made too
// (worker/model/loss_head.h).
inline constexpr int64_t kHeadHalves = 2;

// `kind`: of a layer. `crosses`: its decoder layers see an encoder's output.
inline HalfCounts ForwardHalves(int kind, bool crosses, bool feeds_own_tokens) {
  if (kind == kEncoder) return {4, 0};
  if (feeds_own_tokens && kind == kDecoder) return {0, 2};
  return crosses ? HalfCounts{1, 6} : HalfCounts{0, 4};
}

inline HalfCounts BackwardHalves(int kind, bool crosses, bool feeds_own_tokens, RecomputeLevel level) {
  HalfCounts halves{6, 0};
  if (kind == kDecoder) halves = crosses ? HalfCounts{2, 9} : HalfCounts{0, feeds_own_tokens ? 3 : 6};
  if (kind == kDense) halves = {0, 6};
  if (level != kKeepInput) return halves;
  const HalfCounts again = ForwardHalves(kind, crosses, feeds_own_tokens);
  return {halves.source + again.source, halves.target + again.target};
}

// How often rows go to other ranks' experts or come back, in a layer whose experts ranks divide: to them and
// back; and their gradients the same way, with a number for each row.
inline constexpr int64_t kRowExchanges = 2;

}  // namespace penstock::core
