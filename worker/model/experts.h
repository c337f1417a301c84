// A mixture of experts in place of a feed-forward part (Shazeer et al., "Outrageously large neural networks",
// 2017; as in Mixtral, Jiang et al. 2024): a router gives each token to the `per_token` experts that it finds
// most probable, and the result is their sum, weighted by these probabilities. Experts take all rows, or so
// many of each sample (expert_capacity.h).
//
// A token's experts and weights depend on its sample alone, and its results are added in the order of their
// probability: so they are the same in whichever micro-batch, and on whichever rank, the token is.
//
// Where ranks divide the experts (GroupPlace::experts), each routes its own tokens and their rows go to the
// ranks that have their experts, whole, and back (expert_exchange.h). Otherwise each tensor rank has a part
// of every expert (its outputs of `up` and `gate`, its inputs of `down`), as of a dense part. All ranks have
// the whole router. What a rank finds for its gradient is the part that its share of the experts, or its
// tokens, make: the sum over the tensor ranks is all of it (whole_gradients.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/model/expert_exchange.h"
#include "worker/model/expert_load.h"
#include "worker/model/feed_forward.h"
#include "worker/model/linear.h"
#include "worker/model/router_losses.h"
#include "worker/model/shared_expert.h"
#include "worker/model/token_rows.h"

namespace penstock::worker {

struct ExpertsPart {
  // [experts, hidden], without bias.
  LinearPart router;
  // Those of this rank; without biases, all of one shape.
  std::vector<FeedForwardPart> experts;
  // Of the model.
  int64_t count = 0;
  int64_t per_token = 1;
  // The weights of a token's experts sum to 1.
  bool normalised = true;
  // Of all tokens, added to their experts' sum.
  std::optional<SharedExpertPart> shared = {};
  RouterLossWeights losses = {};
  // Count what comes; null: nobody does.
  std::shared_ptr<ExpertLoad> load;
  std::shared_ptr<RouterLossSums> loss_sums = {};
};

// What a token's way is. A row is a token at one of its experts; rows are in the order of the model's
// experts.
struct Routing {
  // [tokens, experts], in the type of sums.
  at::Tensor probabilities;
  // [tokens, per_token]: the experts of a token, the most probable first.
  at::Tensor chosen;
  // [rows that are taken]: place in `chosen` of each row, counted through.
  at::Tensor order;
  ExpertExchange exchange;
  RouterLossMemory losses;
};

struct ExpertsMemory {
  Routing routing;
  // [rows of own experts, hidden]. Kept where they came from other ranks.
  at::Tensor inputs;
  // [rows of own experts, own ffn], as of FeedForwardMemory.
  at::Tensor up;
  at::Tensor gate;
  at::Tensor middle;
  SharedExpertMemory shared;
};

// Both passes are made in steps that end where rows have begun to travel, so that whoever runs them computes
// something else before the next step:
//
//   ExpertsForward experts(part, rows, memory);
//   experts.Send(input);
//   ...
//   experts.Compute();
//   ...
//   at::Tensor output = experts.Finish();

// [own tokens, hidden] to [own tokens, hidden], a tensor of its own. `part` and `memory` outlive it.
class ExpertsForward {
 public:
  ExpertsForward(const ExpertsPart& part, const TokenRows& rows, ExpertsMemory& memory);

  // Rows of the tokens begin to travel to their experts.
  void Send(const at::Tensor& input);
  // What the experts make of them begins to travel back.
  void Compute();
  // The weighted sum of each token's rows.
  at::Tensor Finish();

 private:
  const ExpertsPart& part_;
  const TokenRows rows_;
  const TokenRows routed_;
  ExpertsMemory& memory_;
  TravellingRows travelling_;
  // What the expert that all tokens share makes of them, [tokens, hidden].
  at::Tensor shared_;
};

// The gradient of the input. `part` and `products` outlive it.
class ExpertsBackward {
 public:
  // `input`: of the forward pass, whose `memory` it uses up.
  ExpertsBackward(const ExpertsPart& part, const TokenRows& rows, const at::Tensor& input,
                  ExpertsMemory memory, WeightProducts& products);

  // The gradients of the tokens' rows begin to travel to their experts.
  void Send(const at::Tensor& output_gradient);
  // Those of what the experts read begin to travel back.
  void Compute();
  at::Tensor Finish();

 private:
  const ExpertsPart& part_;
  const TokenRows rows_;
  const TokenRows routed_;
  const at::ScalarType type_;
  ExpertsMemory memory_;
  WeightProducts& products_;
  // All that are routed, [tokens, hidden], and of each row which it is.
  const at::Tensor tokens_;
  const at::Tensor token_of_row_;
  // [tokens, per_token], in the type of sums.
  const at::Tensor weights_;
  TravellingNumberedRows travelling_;
  // Of all that are routed; where an expert is shared.
  at::Tensor outer_gradient_;
};

}  // namespace penstock::worker
