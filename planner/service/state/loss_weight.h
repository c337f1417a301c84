// What a batch weighs in the loss (execution.md, section 10).
#pragma once

#include <algorithm>

#include "penstock/v1/plan.pb.h"

namespace penstock {

// Its samples have weights, which add up to 0: nothing is learnt, as of a batch without loss positions.
inline bool WeighsNothing(const v1::Batch& batch, const v1::Plan& plan) {
  return plan.loss_weight() == 0 && std::ranges::any_of(batch.samples(), [](const v1::Sample& sample) {
           return sample.has_loss_weight();
         });
}

}  // namespace penstock
