// What a rank exchanges with its stage group inside a pass: so many times what it exchanges in one layer.
#pragma once

#include <cstdint>

#include "planner/core/cost/layer_costs.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/stage.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// What a rank exchanges with its stage group inside a pass.
struct PassExchange {
  int64_t tensor_bytes = 0;
  int64_t tensor_ns = 0;
  int64_t context_sent_bytes = 0;
  int64_t context_received_bytes = 0;
  int64_t context_ns = 0;
  int64_t context_exposed_ns = 0;
  int64_t expert_bytes = 0;
  int64_t expert_ns = 0;
  int64_t expert_exposed_ns = 0;
  // See WeightsBeside.
  int32_t products_beside_return = 0;
  int32_t products_beside_arrival = 0;
  bool others_beside_arrival = false;

  bool is_empty() const {
    return tensor_bytes + tensor_ns + context_sent_bytes + context_received_bytes + context_ns +
               expert_bytes + expert_ns ==
           0;
  }
  // What it adds to the pass.
  int64_t ns() const { return tensor_ns + context_exposed_ns + expert_exposed_ns; }
};

PassExchange ForwardExchange(const Stage& stage, const GroupShape& group, const ExchangeCosts& each);
// Of a whole backward pass, or of BACKWARD_INPUT.
PassExchange BackwardExchange(const Stage& stage, const StageRecompute& recompute, const GroupShape& group,
                              const ExchangeCosts& each);

}  // namespace penstock::core
