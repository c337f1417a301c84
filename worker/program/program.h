// The program of a rank as the executor sees it: flat arrays of plain values, without protobuf and without
// LibTorch.
//
// Converted from the contract in one place, worker/program/from_proto.h. Units and shapes are those of
// proto/penstock/v1/plan.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/program/adapter_config.h"

namespace penstock::worker {

enum class DataType : uint8_t { kFloat64, kFloat32, kBFloat16 };

enum class Architecture : uint8_t { kGpt, kT5 };

// job.proto, FeedForward.
enum class FeedForward : uint8_t { kRelu, kGelu, kGatedGelu, kGatedSilu };

// job.proto, Position, Norm and Biases.
enum class Position : uint8_t { kLearned, kRotary, kRelativeBias };
enum class Norm : uint8_t { kLayer, kRms };
enum class Biases : uint8_t { kNone, kAll, kQueryKeyValue };

enum class RotaryScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongRope };
enum class NormPlacement : uint8_t { kBefore, kAfter, kBoth };

// job.proto, RotaryPosition.
struct RotaryConfig {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1;
  double low_frequency_factor = 0;
  double high_frequency_factor = 0;
  int64_t original_max_sequence_length = 0;
  double beta_fast = 0;
  double beta_slow = 0;
  bool truncated = false;
  // Of cosines and sines.
  double attention_factor = 1;
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};
  // 0: the width of a head.
  int64_t width = 0;
};

// job.proto, Multipliers.
struct Multipliers {
  double embedding = 1;
  double residual = 1;
  // 0: 1 / sqrt(width of a head).
  double attention = 0;
  double logits = 1;
};

struct ModelConfig {
  // All of them; T5: encoder layers, then decoder layers.
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t attention_inner = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t max_sequence_length = 0;
  DataType dtype = DataType::kFloat32;
  Architecture architecture = Architecture::kGpt;
  FeedForward feed_forward = FeedForward::kGelu;
  // Empty, and an epsilon of 0: as the architecture has it (worker/model/architecture.h).
  std::optional<Position> position = {};
  std::optional<Norm> norm = {};
  double norm_epsilon = 0;
  std::optional<Biases> attention_biases = {};
  std::optional<Biases> feed_forward_biases = {};
  RotaryConfig rotary = {};
  // 0: as many as heads.
  int64_t key_value_heads = 0;
  // Queries and keys are normalised head by head.
  bool head_norms = false;
  // 0: feed-forward parts are dense. Else `ffn` is that of one expert, of all layers but `dense_layers` (from
  // 0, ascending), whose dense part has the width `dense_ffn`, or `ffn` where that is 0.
  int64_t experts = 0;
  std::vector<int64_t> dense_layers = {};
  int64_t dense_ffn = 0;
  int64_t experts_per_token = 0;
  bool normalised_experts = false;
  // 0: there is none. Inner width of an expert that every token goes through; `gated`: times a sigmoid.
  int64_t shared_expert_ffn = 0;
  bool gated_shared_expert = false;
  // Weights of losses that are added; 0: there is none.
  double router_balance_loss = 0;
  double router_z_loss = 0;
  // Of a sample's rows an expert takes so many times an even share; 0: all.
  double expert_capacity_factor = 0;
  // Whether a router counts something of each sample.
  bool counts_routed_samples() const {
    return router_balance_loss > 0 || router_z_loss > 0 || expert_capacity_factor > 0;
  }
  // The head's matrix is the token embedding (of a T5, the decoder's).
  bool tied_head = false;
  Multipliers multipliers = {};
  // Every so-many-th layer has no rotary positions; 0: all have.
  int64_t positionless_interval = 0;
  // A token sees itself and the attention_window - 1 tokens before it, but in every windowless_interval-th
  // layer, or those named (counted from 0, ascending); 0: all before it. Layers with a window turn by
  // window_rotary_theta, where that is not 0.
  int64_t attention_window = 0;
  int64_t windowless_interval = 0;
  std::vector<int64_t> windowless_layers = {};
  double window_rotary_theta = 0;
  // Scores, and logits, x become cap * tanh(x / cap); 0: they stay.
  double score_cap = 0;
  double logit_cap = 0;
  NormPlacement norm_placement = NormPlacement::kBefore;
  // RMS norms multiply by 1 + weight.
  bool offset_norms = false;
  // Queries and keys are normalised over all heads together.
  bool joint_head_norms = false;
  // Queries, keys and values are clipped to this magnitude before they are turned; 0: they stay.
  double query_key_value_clip = 0;
  // T5 with a tied head: what the head reads is not divided by the root of `hidden`.
  bool unscaled_head = false;
  // T5: encoder and decoder have one token embedding.
  bool tied_embeddings = false;
  // Where there are some, they alone learn.
  AdapterConfig adapters = {};
  // T5.
  int64_t encoder_layers = 0;
  int32_t decoder_start_token = 0;
  int64_t relative_position_buckets = 32;
  int64_t relative_position_max_distance = 128;
};

enum class Layout : uint8_t { kPadded, kPacked, kConcatenated };

// Of the layers of a stage: the first `full` keep only their input, the next `selective` recompute attention,
// the rest keep everything.
struct LayerRecompute {
  int32_t selective = 0;
  int32_t full = 0;
};

// The context ranks of a stage group that a row is divided over: first, first + 1, ..., `ranks` of them.
struct Span {
  uint32_t first = 0;
  uint32_t ranks = 1;
};

struct MicroBatch {
  // Dataset index and tokens (input, target, after any cut) of each sample, in the order in which they lie in
  // memory.
  std::vector<uint64_t> sample_ids;
  std::vector<uint32_t> input_tokens;
  std::vector<uint32_t> target_tokens;
  // Of each sample what its tokens weigh in the loss together; nothing: each position 1. Empty: no sample of
  // the micro-batch has weights.
  std::vector<std::optional<double>> loss_weights = {};
  // Of each sample the index of its task among the job's; empty: losses are not told apart.
  std::vector<uint32_t> tasks = {};
  Layout layout = Layout::kPadded;
  // Padded and concatenated: [rows, target_length], and for the encoder [rows, source_length]. A decoder-only
  // model has no source: input and target together are its target.
  int64_t rows = 0;
  int64_t source_length = 0;
  int64_t target_length = 0;
  // Packed: cumulative lengths, samples + 1 of them.
  std::vector<int32_t> source_cu_seqlens = {};
  std::vector<int32_t> target_cu_seqlens = {};
  // Concatenated: cumulative numbers of samples in the rows, rows + 1 of them.
  std::vector<int32_t> row_samples = {};
  // One for each row (packed: for each sample); empty where a stage group has one context rank.
  std::vector<Span> spans = {};
  // The parts in which passes go through it (parts.h): cumulative numbers of rows (packed: of samples), one
  // more than there are parts; empty: one part.
  std::vector<uint32_t> part_rows = {};
  // Forward passes alone go in parts: backward passes are those of the whole micro-batch.
  bool whole_backward = false;
  // Of each of part_rows, the chunk of the row that a part begins with, or the last one ends before
  // (share.h); empty: parts are whole rows.
  std::vector<uint32_t> part_chunks = {};
  // Of a part (parts.h): its first row begins with this chunk, and its last row ends before that one; 0: with
  // its end.
  uint32_t first_chunk = 0;
  uint32_t end_chunk = 0;
  // Of the whole global batch, by which losses of routers are divided; 0: no loss of a router is asked for.
  uint64_t batch_tokens = 0;
  int64_t computed_tokens = 0;
  // For each stage of the pipeline.
  std::vector<LayerRecompute> recompute;
};

// Products for the gradients of weights that a backward pass makes while rows of experts travel: the
// first ones of a layer's experts while its own gradients of rows go back, those that follow, and those of
// all its other weights, while those of the next layer with experts below go to them, or before one between
// them runs again.
struct ProductsBeside {
  uint32_t products_on_return = 0;
  uint32_t products_on_arrival = 0;
  bool others_on_arrival = false;

  bool any() const { return products_on_return > 0 || products_on_arrival > 0 || others_on_arrival; }
};

enum class Op : uint8_t {
  kLoad,
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kSend,
  kRecv,
  kWait,
  kFree,
  kReduceGradients,
  kReshard,
  kOptimizerStep,
};

// Where an instruction runs; streams run side by side.
enum class Stream : uint8_t { kCompute, kPrevious, kNext, kCollective };
inline constexpr size_t kStreamCount = static_cast<size_t>(Stream::kCollective) + 1;

enum class TransferKind : uint8_t { kActivation, kGradient };

// `part` of a WAIT, of a FREE and of a RESHARD (plan.proto, Instruction.part).
enum class WaitPart : uint8_t { kReceivedActivation, kReceivedGradient, kSentActivation, kSentGradient };
enum class FreePart : uint8_t { kOutputActivation, kInputGradient, kLoadedTokens };
enum class ReshardPart : uint8_t { kParameters, kGradients };

struct Transfer {
  uint32_t peer = 0;
  TransferKind kind = TransferKind::kActivation;
  std::vector<int64_t> shape = {};
  DataType dtype = DataType::kFloat32;
  uint64_t bytes = 0;
  uint32_t sequence = 0;
};

struct Instruction {
  uint32_t id = 0;
  Op op = Op::kLoad;
  Stream stream = Stream::kCompute;
  uint32_t micro_batch = 0;
  uint32_t stage = 0;
  uint32_t part = 0;
  // SEND, RECV: index into Program.transfers. WAIT: id of the SEND or RECV.
  uint32_t transfer = 0;
  // REDUCE_GRADIENTS, RESHARD, OPTIMIZER_STEP, and passes that are joint: index into Program.groups.
  uint32_t group = 0;
  // A pass that all ranks of a stage group start together, which then takes the same time on all of them.
  bool joint = false;
  // BACKWARD and BACKWARD_INPUT.
  ProductsBeside beside = {};
  // Ids of earlier instructions that must have ended.
  std::vector<uint32_t> deps = {};
  // What the plan expects it to take; not negative. Of a joint pass: on the slowest rank, and on this one.
  int64_t expected_duration_ns = 0;
  int64_t own_duration_ns = 0;
  // Of a joint pass: how much of own_duration_ns it waits for what it exchanges with its group.
  int64_t exchange_ns = 0;
  // Of simulated jobs: what it takes on this rank alone by the profile that the job came with; -1: what is
  // expected.
  int64_t profile_duration_ns = -1;
  // What the plan says it takes when it starts and gives back when it ends; not negative.
  int64_t memory_acquired_bytes = 0;
  int64_t memory_released_bytes = 0;
};

// job.h.
struct StrategyConfig;

struct Program {
  uint64_t iteration = 0;
  // Which of the job's (JobConfig::Of).
  uint32_t strategy = 0;
  // That one, where the job has got it since this worker was registered; null: it knows it.
  std::shared_ptr<const StrategyConfig> added_strategy = {};
  uint32_t rank = 0;
  uint32_t replica = 0;
  std::vector<uint32_t> stages;
  std::vector<uint32_t> layers_per_stage;
  std::vector<Instruction> instructions;
  std::vector<Transfer> transfers;
  std::vector<MicroBatch> micro_batches;
  std::vector<std::vector<uint32_t>> groups;
  // Of the whole global batch: every micro-batch's summed loss is divided by it. 0: nothing is learnt, and no
  // parameter changes.
  uint64_t loss_tokens = 0;
  // What is divided by instead, where samples of the global batch have weights; else 0.
  double loss_weight = 0;
  // Of the rank, whatever runs.
  int64_t static_memory_bytes = 0;
  // Passes are FORWARD alone: nothing is learnt and no parameter changes.
  bool forward_only = false;
  // What the rank runs when this has ended, forward only; null: nothing. Has none itself.
  std::shared_ptr<const Program> validation = {};
};

}  // namespace penstock::worker
