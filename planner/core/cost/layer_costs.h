// What a rank's share of a micro-batch costs in one layer of each kind.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/core/cost/part_costs.h"
#include "planner/core/cost/profile.h"
#include "planner/core/cost/weights_beside.h"

namespace penstock::core {

// What one rank exchanges with its stage group in one layer. All 0 where it holds its stage alone.
struct ExchangeCosts {
  // One gather, or one sum, of a side's tokens over the tensor ranks: bytes that the rank sends, and time.
  struct Half {
    int64_t bytes = 0;
    int64_t ns = 0;
  };
  Half source;
  Half target;
  // Once to experts on other ranks, or back from them: rows, and gradients of rows.
  Half rows;
  Half row_gradients;
  // Products that are made while the latter travel.
  WeightsBeside beside;
  // Keys and values of divided rows, forward; backward it is twice the time, and all of both in both
  // directions.
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t context_ns = 0;
  // The part of it that attention of the divided rows does not hide, in a forward pass and in a backward
  // pass.
  int64_t exposed_forward_ns = 0;
  std::array<int64_t, kRecomputeLevels> exposed_backward_ns = {};
  // Of a micro-batch in parts; all else above is then the sum over them.
  std::vector<PartCosts> parts;
  // How much of an exchange of rows goes on while the rank computes, 0 to 1.
  double overlap = 0;
};

// Time of one layer of each kind for one micro-batch, nanoseconds: what it computes.
struct LayerCosts {
  std::array<double, kLayerKinds> forward = {};
  std::array<std::array<double, kRecomputeLevels>, kLayerKinds> backward = {};
  // What of a backward pass makes gradients of weights, at every recompute level.
  std::array<double, kLayerKinds> weight = {};
  // Of source tokens, and of target tokens.
  double source_embedding = 0;
  double target_embedding = 0;
  ExchangeCosts exchange;
  // Where the forward pass alone goes in parts: of the backward pass, which is whole. Its times above then
  // have what joining takes.
  std::optional<ExchangeCosts> whole_backward;

  const ExchangeCosts& backward_exchange() const {
    return whole_backward.has_value() ? *whole_backward : exchange;
  }
  // What is left is what the rank computes.
  void DropExchanges() {
    exchange = {};
    whole_backward.reset();
  }
};

}  // namespace penstock::core
