// The tokens of a micro-batch as tensors: what the first stage embeds and what the last stage's loss counts.
//
//   PENSTOCK_ASSIGN_OR_RETURN(TokenBatch batch, MakeTokenBatch(shape, tokens, config.vocab, at::kCPU));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/program.h"

namespace penstock::worker {

// All int64.
struct TokenBatch {
  // Padded [rows, length], packed [tokens]: token ids, 0 in padding, and each one's position in its sample.
  at::Tensor inputs;
  at::Tensor positions;
  // [n]: where the loss counts, as indices into the flattened inputs, ascending; and the token that follows
  // there.
  at::Tensor loss_positions;
  at::Tensor labels;
};

// `tokens[i]` are those of sample i of the micro-batch, input then target; what exceeds input_tokens +
// target_tokens is cut off. Every token is computed. The loss counts the target tokens that have a token
// before them: at position p it asks for token p + 1 where input_tokens <= p + 1 < length.
// Possible errors: INVALID_ARGUMENT (names the sample; its token, too few tokens, or the shape that does not
// fit).
absl::StatusOr<TokenBatch> MakeTokenBatch(const MicroBatch& shape,
                                          const std::vector<std::vector<int32_t>>& tokens, int64_t vocab,
                                          at::Device device);

}  // namespace penstock::worker
