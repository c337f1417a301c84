#include "tests/system/equivalence/equivalence_samples.h"

#include <cstdint>
#include <iterator>

namespace penstock::testing {
namespace {

constexpr size_t kSamples = 24;
// Of a sample that context ranks should divide: a fifth of the tokens of its batch.
constexpr size_t kLongInput = 28;
constexpr size_t kLongTarget = 12;

}  // namespace

std::vector<TinySample> EquivalenceSamples() {
  std::vector<TinySample> samples = TinySamples(kSamples);
  for (size_t i = 3; i < kSamples; i += kEquivalenceBatch) {
    TinySample& sample = samples[i];
    const auto resize = [i](std::vector<int32_t>& tokens, size_t length) {
      while (tokens.size() < length) tokens.push_back(static_cast<int32_t>((7 * tokens.size() + i) % 29));
      tokens.resize(length);
    };
    resize(sample.input, kLongInput);
    resize(sample.target, kLongTarget);
  }
  for (size_t i = 7; i < kSamples; i += kEquivalenceBatch) {
    TinySample& sample = samples[i];
    sample.input.insert(sample.input.end(), sample.target.begin(), sample.target.end());
    sample.target.clear();
  }
  return samples;
}

std::vector<TinySample> WeightedSamples() {
  constexpr float kWeights[] = {1, 0, 0.5, 0, 2.25, 1, 0.125};
  std::vector<TinySample> samples = EquivalenceSamples();
  for (size_t i = 0; i < kSamples; ++i) {
    for (size_t token = 0; token < samples[i].target.size() && i % kEquivalenceBatch != 5; ++token)
      samples[i].weights.push_back(kWeights[(3 * i + token) % std::size(kWeights)]);
  }
  return samples;
}

std::vector<v1::Batch> WeightedBatches(std::vector<v1::Batch> batches, const std::vector<TinySample>& samples,
                                       bool encoder_decoder) {
  constexpr uint32_t kTasks = 3;
  for (v1::Batch& batch : batches) {
    for (v1::Sample& sample : *batch.mutable_samples()) {
      const TinySample& tokens = samples[sample.sample_id()];
      sample.set_task(static_cast<uint32_t>(sample.sample_id() % kTasks));
      if (tokens.weights.empty()) continue;
      double weight = 0;
      for (size_t i = encoder_decoder || !tokens.input.empty() ? 0 : 1; i < tokens.weights.size(); ++i)
        weight += double{tokens.weights[i]};
      sample.set_loss_weight(weight);
    }
  }
  return batches;
}

}  // namespace penstock::testing
