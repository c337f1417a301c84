#include "worker/profile/memory.h"

#include <algorithm>

#include "worker/model/architecture.h"
#include "worker/model/head_chunk.h"
#include "worker/model/score_chunk.h"

namespace penstock::worker {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kIndexBytes = 8;
constexpr double kPositionBytes = 4;

double Width(int64_t value) { return static_cast<double>(value); }

// The model's widths, and bytes of an element as it is stored and as it is summed.
struct Widths {
  explicit Widths(const ModelConfig& config, int64_t scores = 0)
      : element(ElementBytes(config.dtype)),
        wide(std::max(element, kFloatBytes)),
        hidden(Width(config.hidden)),
        inner(Width(AttentionInner(config))),
        key_value(Width(KeyValueInner(config))),
        ffn(Width(config.ffn)),
        heads(Width(config.heads)),
        scores_per_chunk(Width(scores)) {}

  double element;
  double wide;
  double hidden;
  // Of all query heads, and of all key heads, which is that of the value heads.
  double inner;
  double key_value;
  double ffn;
  double heads;
  double scores_per_chunk;
};

bool IsT5(const ModelConfig& config) { return config.architecture == Architecture::kT5; }

// Elements of the feed-forward part that are kept, in units of ffn.
double FeedForwardParts(FeedForward kind) {
  switch (kind) {
    case FeedForward::kRelu:
      return 1;
    case FeedForward::kGelu:
      return 2;
    case FeedForward::kGatedGelu:
    case FeedForward::kGatedSilu:
      return 3;
  }
  return 0;
}

// The same of a split backward pass. A ReLU's gradient is put aside too; where the others' is, what they keep
// before the activation is gone.
double PutAsideParts(FeedForward kind) { return FeedForwardParts(kind) > 2 ? 3 : 2; }

// Of a norm, for each token: layer norm has a mean too.
double StatisticsBytes(const ModelConfig& config, const Widths& widths) {
  return widths.wide * (ArchitectureOf(config).norm == NormKind::kRms ? 1 : 2);
}

// For each query token of attention with a relative bias, while it runs: the scores of a chunk, their
// gradients, and the bias and its gradient, which have a place for each diagonal, twice as many as scores; in
// concatenated rows one for each score, but buckets and distances too. A longest sample alone has them all.
double ScoreBytes(const ModelConfig& config, const Widths& widths) {
  if (!IsT5(config)) return 0;
  const double longest = Width(config.max_sequence_length);
  const double scores =
      std::min(widths.heads * longest, std::max(widths.scores_per_chunk / longest, longest));
  return widths.wide * 4 * scores + std::max(widths.wide * 2 * scores, 2 * kIndexBytes * longest);
}

// For each token of grouped attention, while it runs: a group's gradients as the kernel gives them, with a
// key and a value for each query head.
double GroupBytes(const ModelConfig& config, const Widths& widths) {
  if (KeyValueHeads(config) == config.heads) return 0;
  return 3 * widths.element * widths.inner / Width(KeyValueHeads(config));
}

// For each token of attention with a window or capped scores, while it runs: scores, probabilities, their
// gradients and a cap's slope for a chunk of them, and operands and gradients in the type of sums.
double ProductBytes(const ModelConfig& config, const Widths& widths) {
  if (config.attention_window == 0 && config.score_cap == 0) return 0;
  const double chunk = std::max(widths.scores_per_chunk, widths.heads * Width(config.max_sequence_length));
  const double copies = widths.wide > widths.element ? 2 : 1;
  return widths.wide *
         (4 * chunk / Width(config.max_sequence_length) + copies * (widths.inner + 2 * widths.key_value));
}

bool IsRotary(const ModelConfig& config) { return ArchitectureOf(config).position == Position::kRotary; }

// For each token whose queries and keys are turned, while that runs: two products of half of their elements
// and the result, and cosines and sines.
double TurningBytes(const ModelConfig& config, const Widths& widths) {
  if (!IsRotary(config)) return 0;
  return widths.wide * (1.5 * (widths.inner + widths.key_value) + Width(HeadWidth(config)));
}

bool HasRouterLosses(const ModelConfig& config) {
  return config.router_balance_loss > 0 || config.router_z_loss > 0;
}

// For each token: its position, and whose it is where routers ask, which is there once for all layers of a
// stage, but small.
double PositionBytes(const ModelConfig& config) {
  return (IsRotary(config) ? kPositionBytes : 0) + (config.counts_routed_samples() ? kIndexBytes : 0);
}

// Rows of the feed-forward part for each token.
double RowsPerToken(const ModelConfig& config) {
  return config.experts > 0 ? Width(config.experts_per_token) : 1;
}

// For each token, of the way to the experts: probabilities, and twice a number for each of its rows.
double RoutingBytes(const ModelConfig& config, const Widths& widths) {
  if (config.experts == 0) return 0;
  return widths.wide * Width(config.experts) + 2 * kIndexBytes * RowsPerToken(config);
}

// For each token, what the rows of experts have in place of the token's own: the input, and the gradient of
// the output. It is put aside, too.
double ExpertRowBytes(const ModelConfig& config, const Widths& widths) {
  return config.experts > 0 ? 2 * RowsPerToken(config) * widths.element * widths.hidden : 0;
}

// Of a shared expert, elements that are kept or put aside for each token in `parts` units of its width, and
// what stands beside them: its sigmoid, and with it the input and the gradient of its row of parameters.
double SharedExpertBytes(const ModelConfig& config, const Widths& widths, double parts) {
  if (config.shared_expert_ffn == 0) return 0;
  return widths.element * parts * Width(config.shared_expert_ffn) +
         (config.gated_shared_expert ? widths.wide + widths.element : 0);
}

// For each token whose queries, keys and values are clipped: where they were not.
double ClipBytes(const ModelConfig& config, const Widths& widths) {
  return config.query_key_value_clip > 0 ? widths.inner + 2 * widths.key_value : 0;
}

// For each token of a router that has losses: the logarithm of a sum. What is kept of each sample is small.
double RouterLossBytes(const ModelConfig& config, const Widths& widths) {
  return config.router_z_loss > 0 ? widths.wide : 0;
}

// For each token, while gradients of these losses are made: each expert's, and its product with the
// probability.
double RouterLossGradientBytes(const ModelConfig& config, const Widths& widths) {
  return HasRouterLosses(config) ? 2 * widths.wide * Width(config.experts) : 0;
}

// For each token whose queries and keys are normalised: what they were before, and a number for each head, or
// for each norm over all heads.
double HeadNormBytes(const ModelConfig& config, const Widths& widths) {
  if (!config.head_norms && !config.joint_head_norms) return 0;
  const double numbers = config.joint_head_norms ? 2 : widths.heads + Width(KeyValueHeads(config));
  return widths.element * (widths.inner + widths.key_value) + widths.wide * numbers;
}

// For each token, of the norms of both parts: what a norm before a part makes of its input, what the part
// gives to one behind it, and the statistics of each.
double NormBytes(const ModelConfig& config, const Widths& widths) {
  const ModelArchitecture architecture = ArchitectureOf(config);
  const double norms = (architecture.norm_before ? 2 : 0) + (architecture.norm_after ? 2 : 0);
  return norms * (widths.element * widths.hidden + StatisticsBytes(config, widths));
}

// Gradients of a shared expert's parts, and of its result and its input, beside those of the experts.
double SharedGradientBytes(const ModelConfig& config, const Widths& widths) {
  if (config.shared_expert_ffn == 0) return 0;
  const double parts = FeedForwardParts(config.feed_forward) > 2 ? 3 : 2;
  return SharedExpertBytes(config, widths, parts) + 2 * widths.element * widths.hidden;
}

// Gradients of the feed-forward part while it runs backward, and of what leads to experts. A gated part has
// three, but its result is gone by then, unless products for weights are put aside.
double FeedForwardGradientBytes(const ModelConfig& config, const Widths& widths) {
  const bool gated = FeedForwardParts(config.feed_forward) > 2;
  if (config.experts == 0) return widths.element * ((gated ? 3 : 2) * widths.hidden + 2 * widths.ffn);
  const double parts = RowsPerToken(config) * (gated ? 3 : 2);
  return widths.element * (3 * widths.hidden + parts * widths.ffn) + RoutingBytes(config, widths) +
         ExpertRowBytes(config, widths) + SharedGradientBytes(config, widths) +
         RouterLossGradientBytes(config, widths);
}

// Gradients of attention while it runs backward: of the residual stream before, after and around it, of
// queries, keys and values twice, once as the kernel gives them, and of what attention gave; and what the
// kernel needs.
double AttentionGradientBytes(const ModelConfig& config, const Widths& widths) {
  return widths.element * (3 * widths.hidden + 3 * widths.inner + 4 * widths.key_value) +
         ScoreBytes(config, widths) + ProductBytes(config, widths) + GroupBytes(config, widths) +
         TurningBytes(config, widths);
}

// What the feed-forward part keeps of its own: what it computed with, which is gone when attention, before
// it, runs backward.
double FeedForwardKeptBytes(const ModelConfig& config, const Widths& widths) {
  return RowsPerToken(config) * FeedForwardParts(config.feed_forward) * widths.element * widths.ffn;
}

// Gradients of a layer, `none` bytes of which are kept.
double GradientBytes(const ModelConfig& config, const Widths& widths, double none) {
  const double feed_forward = FeedForwardGradientBytes(config, widths);
  const double attention = AttentionGradientBytes(config, widths);
  if (attention > none) return std::max(feed_forward, attention);
  return std::max(feed_forward, attention - FeedForwardKeptBytes(config, widths));
}

// The same where products for weights are put aside: what the feed-forward part computed with, and a gated
// part's result, are there until the layer ends.
double SplitGradientBytes(const ModelConfig& config, const Widths& widths) {
  const bool gated = FeedForwardParts(config.feed_forward) > 2;
  const double result =
      gated ? widths.element * (RowsPerToken(config) * widths.ffn + Width(config.shared_expert_ffn)) : 0;
  return std::max(FeedForwardGradientBytes(config, widths) + result, AttentionGradientBytes(config, widths));
}

// What a split backward pass puts aside of a shared expert in place of what its forward pass kept, and the
// gradient of its result.
double SharedPutAsideBytes(const ModelConfig& config, const Widths& widths, double more_parts) {
  if (config.shared_expert_ffn == 0) return 0;
  return widths.element * (more_parts * Width(config.shared_expert_ffn) + widths.hidden);
}

// Of self-attention and the feed-forward part, on the side that they run on.
struct SelfBytes {
  double none = 0;
  double selective = 0;
  double full = 0;
  double peak = 0;
  double split_backward_peak = 0;
};

SelfBytes SelfLayerBytes(const ModelConfig& config, const Widths& widths) {
  SelfBytes bytes;
  // Each part's input and what its norm made of it; queries, keys, values and what attention made of them.
  bytes.selective =
      widths.element * (2 * widths.hidden + 2 * widths.inner + 2 * widths.key_value +
                        RowsPerToken(config) * FeedForwardParts(config.feed_forward) * widths.ffn) +
      NormBytes(config, widths) + PositionBytes(config) + RoutingBytes(config, widths) +
      HeadNormBytes(config, widths) + ClipBytes(config, widths) + RouterLossBytes(config, widths) +
      SharedExpertBytes(config, widths, FeedForwardParts(config.feed_forward));
  const double put_aside = PutAsideParts(config.feed_forward) - FeedForwardParts(config.feed_forward);
  bytes.none = bytes.selective + widths.wide * widths.heads +
               RowsPerToken(config) * put_aside * widths.element * widths.ffn +
               ExpertRowBytes(config, widths) + SharedPutAsideBytes(config, widths, put_aside);
  bytes.full = widths.element * widths.hidden + PositionBytes(config);
  bytes.peak = bytes.none - bytes.full + GradientBytes(config, widths, bytes.none);
  bytes.split_backward_peak = SplitGradientBytes(config, widths);
  return bytes;
}

double NormParameters(const ModelConfig& config) {
  return Width(config.hidden) * (ArchitectureOf(config).norm == NormKind::kRms ? 1 : 2);
}

// Matrices and vectors of one layer.
double LayerParameters(const ModelConfig& config, bool cross) {
  const Widths widths(config);
  const ModelArchitecture architecture = ArchitectureOf(config);
  // Queries, keys, values and what is behind attention.
  const double inwards = widths.inner + 2 * widths.key_value;
  const double attention = widths.hidden * (inwards + widths.inner) +
                           (architecture.query_key_value_bias ? inwards : 0) +
                           (architecture.attention_output_bias ? widths.hidden : 0);
  const double ups = architecture.gated ? 2 : 1;
  const double dense = (ups + 1) * widths.hidden * widths.ffn +
                       (architecture.feed_forward_bias ? ups * widths.ffn + widths.hidden : 0);
  const double shared = (ups + 1) * widths.hidden * Width(config.shared_expert_ffn) +
                        (config.gated_shared_expert ? widths.hidden : 0);
  const double feed_forward =
      config.experts > 0 ? Width(config.experts) * (dense + widths.hidden) + shared : dense;
  const double of_parts = (architecture.norm_before ? 2 : 0) + (architecture.norm_after ? 2 : 0);
  const double of_heads = (config.head_norms ? 2 * Width(HeadWidth(config)) : 0) +
                          (config.joint_head_norms ? widths.inner + widths.key_value : 0);
  const double norms = (of_parts + (cross ? 1 : 0)) * NormParameters(config) + of_heads;
  return (cross ? 2 : 1) * attention + feed_forward + norms;
}

}  // namespace

double ElementBytes(DataType type) {
  switch (type) {
    case DataType::kFloat64:
      return 8;
    case DataType::kFloat32:
      return 4;
    case DataType::kBFloat16:
      return 2;
  }
  return 0;
}

LayerBytes EncoderLayerBytes(const ModelConfig& config, int64_t scores_per_chunk) {
  const SelfBytes self = SelfLayerBytes(config, Widths(config, scores_per_chunk));
  return {.stored_none = {.source = self.none},
          .stored_selective = {.source = self.selective},
          .stored_full = {.source = self.full},
          .peak = {.source = self.peak},
          .split_backward_peak = {.source = self.split_backward_peak}};
}

LayerBytes DecoderLayerBytes(const ModelConfig& config, int64_t scores_per_chunk) {
  const Widths widths(config, scores_per_chunk);
  const SelfBytes self = SelfLayerBytes(config, widths);
  LayerBytes bytes = {.stored_none = {.target = self.none},
                      .stored_selective = {.target = self.selective},
                      .stored_full = {.target = self.full},
                      .peak = {.target = self.peak},
                      .split_backward_peak = {.target = self.split_backward_peak}};
  if (!IsT5(config)) return bytes;
  const double key_value = 2 * widths.element * widths.inner;
  const double target =
      widths.element * (2 * widths.hidden + 2 * widths.inner) + StatisticsBytes(config, widths);
  const double log_sums = widths.wide * widths.heads;
  bytes.stored_none = {.source = key_value, .target = self.none + target + log_sums};
  bytes.stored_selective = {.source = key_value, .target = self.selective + target};
  // Key and value once more as gradients, twice, and the gradient of the encoder's output, twice.
  const double source_gradients = 2 * key_value + 2 * widths.element * widths.hidden;
  bytes.peak = {.source = key_value + source_gradients, .target = self.peak + target + log_sums};
  bytes.split_backward_peak.source = source_gradients;
  return bytes;
}

LayerBytes DenseLayerBytes(const ModelConfig& config, int64_t scores_per_chunk) {
  LayerBytes bytes = DecoderLayerBytes(WithoutExperts(config), scores_per_chunk);
  // Whose each token is, which a stage keeps whether its own layers ask or not.
  if (config.counts_routed_samples()) {
    for (TokenBytes* stored : {&bytes.stored_none, &bytes.stored_selective, &bytes.stored_full})
      stored->target += kIndexBytes;
  }
  return bytes;
}

LayerBytes HeadBytes(const ModelConfig& config) {
  const Widths widths(config);
  const double stored = widths.element * widths.hidden;
  // Of a micro-batch of the longest length (head_chunk.h).
  const double logits_per_token =
      std::max(widths.hidden, Width(kLogitsPerChunk) / Width(config.max_sequence_length));
  const double logits =
      (config.logit_cap > 0 ? 3 : 2) * widths.wide * std::min(Width(config.vocab), logits_per_token);
  return {.stored_none = {.target = stored},
          .stored_selective = {.target = stored},
          .stored_full = {.target = stored},
          .peak = {.target = logits + 3 * stored}};
}

double EncoderParameterBytes(const ModelConfig& config) {
  return ElementBytes(config.dtype) * LayerParameters(config, /*cross=*/false);
}

double DecoderParameterBytes(const ModelConfig& config) {
  return ElementBytes(config.dtype) * LayerParameters(config, /*cross=*/IsT5(config));
}

double DenseParameterBytes(const ModelConfig& config) {
  return DecoderParameterBytes(WithoutExperts(config));
}

double HeadParameterBytes(const ModelConfig& config) {
  return ElementBytes(config.dtype) * (Width(config.hidden) * Width(config.vocab) + NormParameters(config));
}

double EmbeddingParameterBytes(const ModelConfig& config) {
  const bool learned = ArchitectureOf(config).position == Position::kLearned;
  const double positions = learned ? Width(config.max_sequence_length) : 0;
  return ElementBytes(config.dtype) * Width(config.hidden) * (Width(config.vocab) + positions);
}

double OptimizerBytesPerParameterByte(DataType type) {
  const double element = ElementBytes(type);
  const double wide = std::max(element, kFloatBytes);
  const double tensors = type == DataType::kBFloat16 ? 3 : 2;
  return tensors * wide / element;
}

double StateBytesPerParameterByte(DataType type) {
  const double element = ElementBytes(type);
  const double gradient = std::max(element, kFloatBytes) / element;
  return 1 + gradient + OptimizerBytesPerParameterByte(type);
}

}  // namespace penstock::worker
