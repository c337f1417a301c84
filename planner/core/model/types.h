// The plain values that the planning core works on. Protobuf is converted to and from them in
// planner/core/contract alone.
//
// Units: tokens, bytes, nanoseconds. A decoder-only sample has no source: its input and target together are
// its target, so that one set of formulas serves both architectures.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/core/model/attention_windows.h"
#include "planner/core/model/memory_limits.h"
#include "planner/core/model/share_weights.h"
#include "planner/core/model/token_table.h"
#include "planner/core/topology/topology.h"
#include "planner/core/topology/world.h"

namespace penstock::core {

enum class Architecture : uint8_t { kGpt, kT5 };
enum class Layout : uint8_t { kPadded, kPacked, kConcatenated };
enum class Policy : uint8_t { kPadding, kConcatenated, kPacked, kTokenBudget, kDynamic };
enum class LayoutChoice : uint8_t { kPadded, kPacked, kAuto };
enum class RecomputeMode : uint8_t { kNone, kSelective, kFull, kAuto };
enum class Effort : uint8_t { kFast, kNormal, kThorough };
// kAuto: the best that the job's stages allow. kInterleaved differs from kReadyFirst by its stages alone.
enum class ScheduleFamily : uint8_t {
  kAuto,
  kOneForwardOneBackward,
  kReadyFirst,
  kSplitBackward,
  kInterleaved
};

// What a layer keeps of its forward pass; indexes cost tables.
enum RecomputeLevel : int { kKeepAll = 0, kKeepSelective = 1, kKeepInput = 2, kRecomputeLevels = 3 };

// Lengths of a sample as the model computes them.
struct SampleTokens {
  // T5: encoder tokens. GPT: 0.
  uint32_t source = 0;
  // T5: decoder tokens. GPT: input + target.
  uint32_t target = 0;
  // Positions that the loss counts. GPT: target tokens with a token before them. T5: all target tokens, as
  // the decoder's input begins with a token of its own.
  uint32_t loss = 0;
  // AttentionWindows::LessSquare of `target`.
  double less_square = 0;
};

// Lengths of a row; of the concatenated layout alone.
struct RowLengths {
  int32_t source = 0;
  int32_t target = 0;
  // AttentionWindows::LessSquare of `target`.
  double less_square = 0;
};

struct Batch {
  uint64_t iteration = 0;
  std::vector<SampleTokens> samples;
  // Sum of what the samples weigh in the loss, where one of them has a weight of its own; else 0.
  double loss_weight = 0;
};

// The first `full` layers of a stage keep only their input, the next `selective` recompute attention.
struct StageRecompute {
  int32_t selective = 0;
  int32_t full = 0;

  bool is_none() const { return selective == 0 && full == 0; }
};

// Everything that stays the same for all batches of a job, but the cost profile.
struct Job {
  std::string job_id;
  Architecture architecture = Architecture::kGpt;
  int64_t hidden = 0;
  int64_t bytes_per_element = 0;
  // Of keys and values, and the width of each head.
  int64_t key_value_heads = 0;
  int64_t head_width = 0;
  AttentionWindows windows;
  // Of the gradients of one relative position bias, which all layers of a stack share; 0 where the model has
  // none.
  int64_t shared_table_bytes = 0;
  TokenTable token_table;
  // Of each token, and the parameters of all experts of a layer, bytes; 0 where the model has none.
  int64_t experts_per_token = 0;
  int64_t expert_parameter_bytes = 0;
  // Products for the weights of a layer's experts, and which part they are of those for all its weights.
  int64_t expert_products = 0;
  double expert_product_share = 0;
  // All of a sample decides which rows its experts take.
  bool experts_have_capacity = false;
  // What experts keep between a forward and a backward pass of the rows of one token, bytes.
  int64_t expert_kept_bytes = 0;
  // Adapters alone learn; else these are 0: theirs in each encoder and decoder layer, of one rank.
  bool adapted = false;
  std::array<int64_t, 2> adapter_layer_bytes = {};
  uint32_t max_sequence_length = 0;
  // How many tasks samples may name; 0: they name none.
  int32_t tasks = 0;
  // Replicas, stages and ranks.
  Topology topology;
  World world;
  // Stages are to be balanced by predicted time on `typical_samples`; `topology` has an even split
  // until then.
  bool stage_split_auto = false;
  // Lengths as the batches will have them; empty: unknown.
  std::vector<SampleTokens> typical_samples;
  // Samples of a global batch; 0: as many as there are typical samples.
  int32_t typical_batch_size = 0;
  MemoryLimits memory_limits;
  bool shard_optimizer_state = false;
  // Gradients of so many bytes are summed as one; 0: all of a stage, as far as times go.
  int64_t gradient_bucket_bytes = 0;
  // Parameters and state are in shares, one a rank.
  bool parameter_shares = false;
  ShareWeights share_weights;
  Policy policy = Policy::kDynamic;
  LayoutChoice layout = LayoutChoice::kAuto;
  ScheduleFamily schedule = ScheduleFamily::kAuto;
  RecomputeMode recompute = RecomputeMode::kAuto;
  Effort effort = Effort::kNormal;
  // 0: searched. Of policies whose micro-batches are counted in rows, and in tokens.
  int32_t micro_batch_size = 0;
  int64_t token_cap = 0;
  // Where that is searched: what was foreseen for a large batch (foresee/foreseen_size.h), in samples; 0:
  // nothing was.
  int32_t foreseen_micro_batch_size = 0;
  // The same of a large batch of uneven lengths: how many micro-batches it has at most; 0: any number.
  int64_t most_micro_batches = 0;
  // Where that is searched by the dynamic policy: starts are judged as if rows were divided evenly over the
  // context ranks, and those alone are placed that seem good. A plan of one of several strategies, which
  // share the time of one.
  bool judges_evenly = false;
  // Into which a micro-batch may be cut where ranks divide experts.
  int32_t most_parts = 1;
};

}  // namespace penstock::core
