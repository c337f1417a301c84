// Products for the gradients of weights beside exchanges of rows of experts, as Lancet schedules them (Jiang
// et al., MLSys 2024, section 5.1): while gradients of rows travel, a rank makes products that nobody waits
// for. Of what a layer has, its experts' are ready while its own gradients go back to their tokens, and all
// others while those of the layer below go to their experts (execution.md, section 7).
//
// Those of experts are alike, one for each of an expert's matrices; those of all other weights of a layer
// are one more part. As many are put beside an exchange as last no longer than it does: no pass waits for
// them, and what is left of a split backward pass fills the pipeline's bubbles.
#pragma once

#include <cstdint>

namespace penstock::core {

// What a rank's products of one layer take, nanoseconds.
struct LayerProducts {
  double ns = 0;
  // Of all its experts, and how many these are.
  double experts_ns = 0;
  int64_t of_experts = 0;
};

// Of one layer. All 0: passes do one thing after the other.
struct WeightsBeside {
  // Beside the way back of this layer's gradients of rows, and beside the way of the next one's.
  int32_t return_products = 0;
  int32_t arrival_products = 0;
  bool arrival_others = false;
  // What these take, whole nanoseconds that are together at most those of the layer.
  int64_t return_ns = 0;
  int64_t arrival_ns = 0;
  // How much of an exchange goes on while the rank computes, 0 to 1.
  double overlap = 0;

  // Of a stage with experts in so many layers: the lowest of them has none below.
  int64_t TakenNs(int64_t layers) const {
    return layers == 0 ? 0 : layers * return_ns + (layers - 1) * arrival_ns;
  }
  // What a backward pass with these takes less than one after the other does. `kept`: of these layers those
  // that are not recomputed, the upper ones. What products are made of waits in the place of what they have
  // kept; before a layer that runs again products are made at once.
  int64_t HiddenNs(int64_t layers, int64_t kept, int64_t exchange_ns) const;
};

// `exchange_ns`: of gradients of rows, once.
WeightsBeside PutBeside(const LayerProducts& products, int64_t exchange_ns, double overlap);

}  // namespace penstock::core
