// Losses of a router that are added to the loss, so that experts are used evenly and scores stay small
// (execution.md, section 11).
//
// The balance loss is each sample's (Fedus et al. 2022, "Switch Transformers", section 2.2, by sample), the z
// loss each token's (Zoph et al. 2022, "ST-MoE", section 2.2), and both are divided by the tokens of the
// whole batch: so neither depends on micro-batches, stages or ranks. Padding does not count.
//
//   routing.losses = RememberRouterLosses(part.losses, rows, scores, chosen, experts);
//   ...
//   AddBalanceGradient(part.losses, rows, memory, probabilities, gradient);
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/routed_samples.h"
#include "worker/model/token_rows.h"

namespace penstock::worker {

// The weighted losses that backward passes of a layer have seen. Not thread-safe.
class RouterLossSums {
 public:
  struct Values {
    double balance = 0;
    double z = 0;
  };

  // Scalars, on the device: nobody waits for them.
  void Add(const at::Tensor& balance, const at::Tensor& z);
  // Since the last call; the host waits.
  Values Take();

 private:
  // [2] float64: balance, z. Undefined: there were none.
  at::Tensor sums_;
};

struct RouterLossWeights {
  double balance = 0;
  double z = 0;

  bool any() const { return balance > 0 || z > 0; }
};

// What a layer keeps for them.
struct RouterLossMemory {
  // [samples + 1, experts], in the type of sums: the share of each sample's rows that each expert has;
  // padding has 0. Undefined without a balance loss.
  at::Tensor shares;
  // [tokens, 1], in the type of sums: the logarithm of the sum of the exponentials of a token's scores, 0 of
  // padding. Undefined without a z loss.
  at::Tensor log_sums;

  // Of this rank's tokens; else another rank has the losses of the same ones.
  bool any() const { return shares.defined() || log_sums.defined(); }
};

// `scores`: [tokens, experts] of the tokens that this rank routes, `chosen`: [tokens, per_token]. All ranks
// of the stage group call it: counts of samples that they divide are summed.
RouterLossMemory RememberRouterLosses(const RouterLossWeights& weights, const TokenRows& rows,
                                      const at::Tensor& scores, const at::Tensor& chosen);

// Adds the balance loss's gradient of the probabilities, [tokens, experts], to `gradient`; gives the loss.
at::Tensor AddBalanceGradient(const RouterLossWeights& weights, const TokenRows& rows,
                              const RouterLossMemory& memory, const at::Tensor& probabilities,
                              at::Tensor& gradient);
// The same of the z loss and the scores.
at::Tensor AddZGradient(const RouterLossWeights& weights, const TokenRows& rows,
                        const RouterLossMemory& memory, const at::Tensor& probabilities,
                        at::Tensor& gradient);

}  // namespace penstock::worker
