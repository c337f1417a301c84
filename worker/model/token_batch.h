// What a stage needs of the samples of a micro-batch, as tensors: the tokens that it embeds, what the last
// stage's loss counts, and who attends to whom.
//
//   const TokenNeeds needs = TokenNeedsOf(config, range);
//   PENSTOCK_ASSIGN_OR_RETURN(TokenBatch staged, MakeTokenBatch(shape, tokens, config, needs, device));
//   PENSTOCK_ASSIGN_OR_RETURN(TokenBatch batch, ToDevice(staged, device));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/parameters.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct MicroBatchAttention;

// Tokens that are embedded, [tokens] int64 each, padding included: token ids, 0 in padding, and each one's
// position in its sample.
struct TokenSequence {
  at::Tensor ids;
  // Where the model embeds positions.
  at::Tensor positions;
};

// Loss positions that lie one behind the other, of samples of one task.
struct LossRun {
  // Index into JobSpec.tasks.
  uint32_t task = 0;
  int64_t positions = 0;
  // Sum of what they weigh in the loss.
  double weight = 0;
};

// What a stage does not need is undefined.
struct TokenBatch {
  // T5's encoder.
  TokenSequence source;
  // The decoder's, or a decoder-only model's.
  TokenSequence target;
  // [n] int64: where the loss counts, as indices into the flat target, ascending; and the token that is asked
  // for there. Where positions have weights labels are int32: both together take no more memory than labels
  // alone (execution.md, section 8).
  at::Tensor loss_positions;
  at::Tensor labels;
  // [n] float32: what each position weighs in the loss. Undefined: 1.
  at::Tensor loss_weights;
  // All loss positions in their order, on the host; empty where losses are not told apart by task.
  std::vector<LossRun> loss_runs;
  // Every stage needs it.
  std::shared_ptr<const MicroBatchAttention> attention;
};

struct TokenNeeds {
  bool source = false;
  bool target = false;
  bool loss = false;

  // Whether a LOAD stands on the stage.
  bool any() const { return source || target || loss; }
};

TokenNeeds TokenNeedsOf(const ModelConfig& config, const StageRange& range);

// `tokens[i]` are those of sample i of the micro-batch, input then target; what exceeds input_tokens +
// target_tokens is cut off. A stage that needs none is made a batch without. The tensors lie on the host,
// where they can be copied to the device from without the host waiting, and are no memory of tensors
// (tensor_memory.h). Any thread.
// A decoder-only model computes every token, and the loss counts the target tokens that have a token before
// them: at position p it asks for token p + 1 where input_tokens <= p + 1 < length.
// T5's encoder computes the input; its decoder decoder_start_token and the target but for its last token, and
// at each of them it is asked for the target token of that place.
// Of a stage group with several context ranks: the batch of one of them, whose tokens lie end to end
// (share.h). Of a sample that SamplesOn names for it `tokens` has all, of others it may have none.
// `weights[i]`: what the target tokens of sample i weigh in the loss; without any, each 1. Possible
// errors: INVALID_ARGUMENT (names the sample; its token, too few tokens or weights, or the shape that does
// not fit; the span; a divided sample of T5).
absl::StatusOr<TokenBatch> MakeTokenBatch(const MicroBatch& shape,
                                          const std::vector<std::vector<int32_t>>& tokens,
                                          const ModelConfig& config, const TokenNeeds& needs,
                                          at::Device device, const GroupPlace& place = {},
                                          const std::vector<std::vector<float>>& weights = {});

// Copies in memory of the device, there for what runs on the current stream after them. Possible errors:
// RESOURCE_EXHAUSTED (memory), INTERNAL.
absl::StatusOr<TokenBatch> ToDevice(const TokenBatch& staged, at::Device device);

}  // namespace penstock::worker
