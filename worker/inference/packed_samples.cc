#include "worker/inference/packed_samples.h"

#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

MicroBatch ShapeOf(const ModelConfig& config, const std::vector<SampleTokensOf>& samples) {
  const bool sides = config.architecture == Architecture::kT5;
  MicroBatch shape;
  shape.layout = Layout::kPacked;
  shape.source_cu_seqlens = shape.target_cu_seqlens = {0};
  for (const SampleTokensOf& sample : samples) {
    const auto input = static_cast<int32_t>(sample.input.size());
    const auto target = static_cast<int32_t>(sample.target.size());
    shape.sample_ids.push_back(shape.sample_ids.size());
    shape.input_tokens.push_back(static_cast<uint32_t>(input));
    shape.target_tokens.push_back(static_cast<uint32_t>(target));
    shape.source_cu_seqlens.push_back(shape.source_cu_seqlens.back() + (sides ? input : 0));
    shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + target + (sides ? 0 : input));
    shape.computed_tokens += input + target;
  }
  shape.recompute.resize(1);
  return shape;
}

}  // namespace

absl::StatusOr<TokenBatch> PackSamples(const LanguageModel& model,
                                       const std::vector<SampleTokensOf>& samples) {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<float>> weights;
  for (const SampleTokensOf& sample : samples) {
    if (!sample.weights.empty()) weights.resize(samples.size());
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleTokensOf& sample = samples[i];
    if (!weights.empty())
      weights[i] = sample.weights.empty() ? std::vector<float>(sample.target.size(), 1) : sample.weights;
    tokens.push_back(sample.input);
    tokens.back().insert(tokens.back().end(), sample.target.begin(), sample.target.end());
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      const TokenBatch staged,
      MakeTokenBatch(ShapeOf(model.config(), samples), tokens, model.config(),
                     LanguageModel::Needs(model.config()), model.device(), GroupPlace(), weights));
  return ToDevice(staged, model.device());
}

}  // namespace penstock::worker
