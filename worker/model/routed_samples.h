// Whose the tokens are that are routed to experts: for what a router counts of each sample (router_losses.h,
// expert_capacity.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// The tokens of all context ranks.
struct TokensOfAllRanks {
  // [all tokens] int64: the sample of each, in the order of the micro-batch.
  at::Tensor sample_of_token;
  // [all tokens] int64: its place in that order of each token of context rank 0, then of 1, ...
  at::Tensor places;
  // Tokens of each context rank.
  std::vector<int64_t> of_ranks;
};

// Whose the tokens of a context rank are. Tensors as of AttentionShape.
struct RoutedSamples {
  // Of a part of a micro-batch: the place of its first sample in that.
  int64_t first_sample = 0;
  // [tokens] int64: the sample of each, by its place in the micro-batch; padding has the one behind the last.
  at::Tensor sample_of_token;
  // [samples + 1] int64: tokens of each, wherever they are; padding has 0.
  at::Tensor tokens;
  // Real tokens of the whole global batch.
  double batch_tokens = 0;
  // Whether a sample of the micro-batch, on this rank or not, is divided over context ranks.
  bool divided = false;
  // With a capacity: [samples + 1] int64, how many rows of each sample an expert takes; of padding, all.
  // Undefined: it takes all.
  at::Tensor capacities = {};
  // With a capacity, where `divided`.
  std::optional<TokensOfAllRanks> all = {};

  int64_t samples() const { return tokens.size(0) - 1; }
};

// Empty where the model has neither losses of routers nor a capacity of experts, or the micro-batch is none
// of a batch that is learnt. Any thread; throws what LibTorch throws.
std::optional<RoutedSamples> MakeRoutedSamples(const MicroBatch& shape, const ModelConfig& config,
                                               at::Device device, const GroupPlace& place);

}  // namespace penstock::worker
