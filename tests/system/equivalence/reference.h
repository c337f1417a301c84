// Training written a second time, in the plainest way, on one device and in one process: row by row, with
// tensor operations of LibTorch, in float64. Written from the contract (job.proto, plan.proto) and the
// papers; shares nothing with worker/ but the initial values of the parameters.
//
// Plain values only, so that this header goes together with protobuf.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "tests/system/equivalence/plain_tensor.h"
#include "worker/program/job.h"

namespace penstock::testing {

// What of a model is not said by the shapes of its parameters; fields as in v1::ModelSpec, with every default
// filled in.
struct ReferenceModel {
  enum class FeedForward : uint8_t { kRelu, kGelu, kGatedGelu, kGatedSilu };

  // T5, otherwise GPT.
  bool encoder_decoder = false;
  // GPT.
  int64_t layers = 0;
  // T5.
  int64_t encoder_layers = 0;
  int64_t decoder_layers = 0;
  int64_t decoder_start_token = 0;
  int64_t relative_position_buckets = 0;
  int64_t relative_position_max_distance = 0;
  FeedForward feed_forward = FeedForward::kGelu;
  int64_t heads = 0;
  // GPT: RMS norm in place of layer norm.
  bool rms_norm = false;
  int64_t key_value_heads = 0;
  // GPT: RMS norms of queries and keys, head by head.
  bool head_norms = false;
  // GPT: the same over all heads together; what queries, keys and values are clipped to, 0: they stay.
  bool joint_head_norms = false;
  double query_key_value_clip = 0;
  // GPT: experts in place of a dense part; 0: none. The weights of a token's experts sum to 1.
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  // Counted from 1: layers with a dense part.
  std::vector<int64_t> dense_layers = {};
  // Or are the router's.
  bool normalised_experts = true;
  // Beside them one that all tokens share, gated; 0: none.
  int64_t shared_expert_ffn = 0;
  // Weights of losses that are learnt beside the loss.
  double router_balance_loss = 0;
  double router_z_loss = 0;
  // Of a sample's rows an expert takes so many times an even share; 0: all.
  double expert_capacity_factor = 0;
  // GPT: with rotary positions; 0: with learned ones. `rotary_factor`: of the linear scaling.
  double rotary_theta = 0;
  double rotary_factor = 1;
  bool tied_head = false;
  bool tied_embeddings = false;
};

struct ReferenceSample {
  std::vector<int32_t> input;
  std::vector<int32_t> target;
  // What each token of the target weighs in the loss; empty: 1.
  std::vector<float> weights = {};
  auto operator<=>(const ReferenceSample&) const = default;
};

// Samples whose tokens see each other: one, or those of a row of LAYOUT_CONCATENATED, end to end.
using ReferenceRow = std::vector<ReferenceSample>;

struct ReferenceIteration {
  // Of the whole global batch: cross entropy summed over its loss positions, each times its weight, divided
  // by the sum of their weights.
  double loss = 0;
  // Before clipping.
  double gradient_norm = 0;
  // By parameter, before clipping.
  NamedTensors gradients;
};

// Trains on the global batches from iteration 0 on. `job` is that of the workers, for its training and for
// the initial values, rounded to its type.
std::vector<ReferenceIteration> TrainReference(const worker::JobConfig& job, const ReferenceModel& model,
                                               const std::vector<std::vector<ReferenceRow>>& batches);

}  // namespace penstock::testing
