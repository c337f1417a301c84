// A mixture of experts in place of a feed-forward part (Shazeer et al., "Outrageously large neural networks",
// 2017; as in Mixtral, Jiang et al. 2024): a router gives each token to the `per_token` experts that it finds
// most probable, and the result is their sum, weighted by these probabilities. No token is dropped.
//
// A token's experts and weights depend on the token alone, and its results are added in the order of their
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
  // [rows]: place in `chosen` of each row, counted through.
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

// [own tokens, hidden] to [own tokens, hidden], a tensor of its own.
at::Tensor ExpertsForward(const ExpertsPart& part, const TokenRows& rows, const at::Tensor& input,
                          ExpertsMemory& memory);

// The gradient of the input. Uses `memory` up.
at::Tensor ExpertsBackward(const ExpertsPart& part, const TokenRows& rows, const at::Tensor& input,
                           ExpertsMemory memory, const at::Tensor& output_gradient, WeightProducts& products);

}  // namespace penstock::worker
