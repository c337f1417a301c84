// Low-rank adapters of a model (Hu et al. 2021, "LoRA", section 4.1), as plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::worker {

// A linear layer of a Transformer's layer. Of a T5's decoder queries, keys, values and outputs are those of
// both attentions.
enum class LinearLayer : uint8_t { kQuery, kKey, kValue, kOutput, kGate, kUp, kDown };

struct AdapterConfig {
  // 0: there are none, and all parameters learn. Else the adapters alone do.
  int64_t rank = 0;
  // Of what an adapter adds.
  double scale = 1;
  // Each once.
  std::vector<LinearLayer> targets = {};

  bool any() const { return rank > 0; }
  bool Has(LinearLayer layer) const { return std::ranges::count(targets, layer) > 0; }
};

}  // namespace penstock::worker
