#include "worker/profile/memory.h"

#include <algorithm>

namespace penstock::worker {
namespace {

constexpr double kFloatBytes = 4;
// Of worker/model/loss_head.cc.
constexpr double kLogitsPerChunk = 1 << 24;

double Inner(const ModelConfig& config) {
  return static_cast<double>(config.attention_inner == 0 ? config.hidden : config.attention_inner);
}

double Width(int64_t value) { return static_cast<double>(value); }

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

TokenBytes LayerTokenBytes(const ModelConfig& config) {
  const double element = ElementBytes(config.dtype);
  const double hidden = Width(config.hidden);
  const double inner = Inner(config);
  const double ffn = Width(config.ffn);
  const double statistics = kFloatBytes * (4 + Width(config.heads));
  return {.stored_none = element * (4 * hidden + 5 * inner + 2 * ffn) + statistics,
          .stored_full = element * hidden,
          .peak = element * (2 * hidden + std::max(2 * ffn, 4 * inner))};
}

TokenBytes HeadTokenBytes(const ModelConfig& config) {
  const double element = ElementBytes(config.dtype);
  const double wide = std::max(element, kFloatBytes);
  const double stored = 2 * element * Width(config.hidden);
  const double logits =
      2 * wide * std::min(Width(config.vocab), kLogitsPerChunk / Width(config.max_sequence_length));
  return {.stored_none = stored, .stored_full = stored, .peak = logits + stored};
}

double LayerParameterBytes(const ModelConfig& config) {
  const double hidden = Width(config.hidden);
  const double inner = Inner(config);
  const double ffn = Width(config.ffn);
  const double matrices = 4 * hidden * inner + 2 * hidden * ffn;
  const double vectors = 4 * hidden + 3 * inner + hidden + ffn + hidden;
  return ElementBytes(config.dtype) * (matrices + vectors);
}

double HeadParameterBytes(const ModelConfig& config) {
  return ElementBytes(config.dtype) * Width(config.hidden) * (Width(config.vocab) + 2);
}

double EmbeddingParameterBytes(const ModelConfig& config) {
  return ElementBytes(config.dtype) * Width(config.hidden) *
         (Width(config.vocab) + Width(config.max_sequence_length));
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
