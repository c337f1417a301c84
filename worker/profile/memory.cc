#include "worker/profile/memory.h"

#include <algorithm>

namespace penstock::worker {
namespace {

constexpr double kFloatBytes = 4;
// Of worker/model/loss_head.cc and biased_attention.cc.
constexpr double kLogitsPerChunk = 1 << 24;
constexpr double kScoresPerChunk = 1 << 20;
constexpr double kIndexBytes = 8;

double Width(int64_t value) { return static_cast<double>(value); }

// The model's widths, and bytes of an element as it is stored and as it is summed.
struct Widths {
  explicit Widths(const ModelConfig& config)
      : element(ElementBytes(config.dtype)),
        wide(std::max(element, kFloatBytes)),
        hidden(Width(config.hidden)),
        inner(Width(config.attention_inner == 0 ? config.hidden : config.attention_inner)),
        ffn(Width(config.ffn)),
        heads(Width(config.heads)) {}

  double element;
  double wide;
  double hidden;
  double inner;
  double ffn;
  double heads;
};

bool IsT5(const ModelConfig& config) { return config.architecture == Architecture::kT5; }

// Elements of the feed-forward part that are kept, in units of ffn. Of a split backward pass a ReLU's
// gradient is put aside too; where the others' is, what they keep before the activation is gone.
double PutAsideParts(FeedForward kind) { return kind == FeedForward::kGatedGelu ? 3 : 2; }

double FeedForwardParts(FeedForward kind) {
  switch (kind) {
    case FeedForward::kRelu:
      return 1;
    case FeedForward::kGelu:
      return 2;
    case FeedForward::kGatedGelu:
      return 3;
  }
  return 0;
}

// Of a norm, for each token: layer norm has a mean too.
double StatisticsBytes(const ModelConfig& config, const Widths& widths) {
  return widths.wide * (IsT5(config) ? 1 : 2);
}

// For each query token of attention with a relative bias, while it runs: the scores of a chunk, their
// gradients, the bias and its gradient, and the buckets and distances; a longest sample alone has them all.
double ScoreBytes(const ModelConfig& config, const Widths& widths) {
  if (!IsT5(config)) return 0;
  const double longest = Width(config.max_sequence_length);
  const double scores = std::min(widths.heads * longest, std::max(kScoresPerChunk / longest, longest));
  return 4 * widths.wide * scores + 2 * kIndexBytes * longest;
}

// Gradients of a part that runs backward: that of the residual stream before, after and around it, and those
// of the operands of attention (once more as the kernel gives them) or of the feed-forward part.
double GradientBytes(const ModelConfig& config, const Widths& widths) {
  const double feed_forward = (FeedForwardParts(config.feed_forward) > 2 ? 3 : 2) * widths.ffn;
  const double attention = 7 * widths.inner;
  return widths.element * (3 * widths.hidden + std::max(feed_forward, attention)) +
         ScoreBytes(config, widths);
}

// Of self-attention and the feed-forward part, on the side that they run on.
struct SelfBytes {
  double none = 0;
  double selective = 0;
  double full = 0;
  double peak = 0;
};

SelfBytes SelfLayerBytes(const ModelConfig& config, const Widths& widths) {
  SelfBytes bytes;
  bytes.selective = widths.element * (4 * widths.hidden + 4 * widths.inner +
                                      FeedForwardParts(config.feed_forward) * widths.ffn) +
                    2 * StatisticsBytes(config, widths);
  const double put_aside = PutAsideParts(config.feed_forward) - FeedForwardParts(config.feed_forward);
  bytes.none = bytes.selective + widths.wide * widths.heads + put_aside * widths.element * widths.ffn;
  bytes.full = widths.element * widths.hidden;
  bytes.peak = bytes.none - bytes.full + GradientBytes(config, widths);
  return bytes;
}

// Matrices and vectors of one layer.
double LayerParameters(const ModelConfig& config, bool cross) {
  const Widths widths(config);
  const bool t5 = IsT5(config);
  const double products = config.feed_forward == FeedForward::kGatedGelu ? 3 : 2;
  const double matrices =
      (cross ? 8 : 4) * widths.hidden * widths.inner + products * widths.hidden * widths.ffn;
  const double norms = (cross ? 3 : 2) * (t5 ? 1 : 2) * widths.hidden;
  const double biases = t5 ? 0 : 3 * widths.inner + 2 * widths.hidden + (products - 1) * widths.ffn;
  return matrices + norms + biases;
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

LayerBytes EncoderLayerBytes(const ModelConfig& config) {
  const SelfBytes self = SelfLayerBytes(config, Widths(config));
  return {.stored_none = {.source = self.none},
          .stored_selective = {.source = self.selective},
          .stored_full = {.source = self.full},
          .peak = {.source = self.peak}};
}

LayerBytes DecoderLayerBytes(const ModelConfig& config) {
  const Widths widths(config);
  const SelfBytes self = SelfLayerBytes(config, widths);
  LayerBytes bytes = {.stored_none = {.target = self.none},
                      .stored_selective = {.target = self.selective},
                      .stored_full = {.target = self.full},
                      .peak = {.target = self.peak}};
  if (!IsT5(config)) return bytes;
  const double key_value = 2 * widths.element * widths.inner;
  const double target =
      widths.element * (2 * widths.hidden + 2 * widths.inner) + StatisticsBytes(config, widths);
  const double log_sums = widths.wide * widths.heads;
  bytes.stored_none = {.source = key_value, .target = self.none + target + log_sums};
  bytes.stored_selective = {.source = key_value, .target = self.selective + target};
  // Key and value once more as gradients, twice, and the gradient of the encoder's output, twice.
  bytes.peak = {.source = 3 * key_value + 2 * widths.element * widths.hidden,
                .target = self.peak + target + log_sums};
  return bytes;
}

LayerBytes HeadBytes(const ModelConfig& config) {
  const Widths widths(config);
  const double stored = widths.element * widths.hidden;
  const double logits =
      2 * widths.wide * std::min(Width(config.vocab), kLogitsPerChunk / Width(config.max_sequence_length));
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

double HeadParameterBytes(const ModelConfig& config) {
  return ElementBytes(config.dtype) * Width(config.hidden) * (Width(config.vocab) + (IsT5(config) ? 1 : 2));
}

double EmbeddingParameterBytes(const ModelConfig& config) {
  const double positions = IsT5(config) ? 0 : Width(config.max_sequence_length);
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
