#include "worker/model/routed_samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "worker/model/attention_shape.h"
#include "worker/program/share.h"
#include "worker/torch/to_device.h"

namespace penstock::worker {
namespace {

int64_t TokensOfSample(const MicroBatch& shape, size_t sample) {
  return int64_t{shape.input_tokens[sample]} + shape.target_tokens[sample];
}

// Of each sample, with 0 for padding.
std::vector<int64_t> TokensOfSamples(const MicroBatch& shape, size_t samples) {
  std::vector<int64_t> tokens;
  for (size_t sample = 0; sample < samples; ++sample) tokens.push_back(TokensOfSample(shape, sample));
  tokens.push_back(0);
  return tokens;
}

// Of each token of the micro-batch; `offsets`: where each sample begins.
std::vector<int64_t> SampleOfTokens(const MicroBatch& shape, const std::vector<int64_t>& offsets) {
  std::vector<int64_t> sample_of_token(static_cast<size_t>(TargetTokens(shape)),
                                       static_cast<int64_t>(offsets.size()));
  for (size_t i = 0; i < offsets.size(); ++i) {
    std::fill_n(sample_of_token.begin() + offsets[i], TokensOfSample(shape, i), static_cast<int64_t>(i));
  }
  return sample_of_token;
}

// What an expert takes (execution.md, section 11).
std::vector<int64_t> Capacities(const std::vector<int64_t>& tokens_of_samples, const ModelConfig& config) {
  std::vector<int64_t> capacities;
  for (const int64_t tokens : tokens_of_samples) {
    const double even = config.expert_capacity_factor * static_cast<double>(tokens) *
                        static_cast<double>(config.experts_per_token) / static_cast<double>(config.experts);
    // No more rows than tokens come.
    capacities.push_back(static_cast<int64_t>(std::ceil(std::min(even, static_cast<double>(tokens)))));
  }
  capacities.back() = INT64_MAX;
  return capacities;
}

TokensOfAllRanks OfAllRanks(const MicroBatch& shape, std::vector<int64_t> sample_of_token, at::Device device,
                            GroupPlace place) {
  TokensOfAllRanks all;
  std::vector<int64_t> order(sample_of_token.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<int64_t> places;
  for (place.context = 0; place.context < place.contexts; ++place.context) {
    const std::vector<int64_t> own = ShareOf(order, shape, Side::kTarget, place);
    all.of_ranks.push_back(static_cast<int64_t>(own.size()));
    places.insert(places.end(), own.begin(), own.end());
  }
  all.sample_of_token = StagedFor(device, std::move(sample_of_token));
  all.places = StagedFor(device, std::move(places));
  return all;
}

}  // namespace

std::optional<RoutedSamples> MakeRoutedSamples(const MicroBatch& shape, const ModelConfig& config,
                                               at::Device device, const GroupPlace& place) {
  if (shape.batch_tokens == 0 || !config.counts_routed_samples()) return {};
  const std::vector<int64_t> offsets = TargetOffsets(shape, config);
  std::vector<int64_t> sample_of_token = SampleOfTokens(shape, offsets);
  std::vector<int64_t> tokens = TokensOfSamples(shape, offsets.size());
  RoutedSamples samples;
  samples.divided = AnyRowIsDivided(shape);
  samples.batch_tokens = static_cast<double>(shape.batch_tokens);
  if (config.expert_capacity_factor > 0) {
    samples.capacities = StagedFor(device, Capacities(tokens, config));
    if (samples.divided) samples.all = OfAllRanks(shape, sample_of_token, device, place);
  }
  samples.sample_of_token =
      StagedFor(device, ShareOf(std::move(sample_of_token), shape, Side::kTarget, place));
  samples.tokens = StagedFor(device, std::move(tokens));
  return samples;
}

}  // namespace penstock::worker
