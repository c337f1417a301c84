#include "tests/unit/worker/model_testing.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "tests/unit/worker/late_parameters.h"
#include "tests/unit/worker/plain_model.h"
#include "tests/unit/worker/ready_gradients.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

constexpr size_t kSamplesOfARow = 2;

bool IsT5(const ModelConfig& config) { return config.architecture == Architecture::kT5; }

// Positions in `samples` of each row: of concatenated rows several, otherwise one.
std::vector<std::vector<size_t>> RowsOf(size_t samples, Layout layout) {
  const size_t step = layout == Layout::kConcatenated ? kSamplesOfARow : 1;
  std::vector<std::vector<size_t>> rows;
  for (size_t i = 0; i < samples; ++i) {
    if (i % step == 0) rows.emplace_back();
    rows.back().push_back(i);
  }
  return rows;
}

double Largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

}  // namespace

ModelConfig SmallConfig(DataType type) {
  ModelConfig config;
  config.layers = 4;
  config.hidden = 24;
  config.heads = 3;
  config.attention_inner = 12;
  config.ffn = 40;
  config.vocab = 29;
  config.max_sequence_length = 32;
  config.dtype = type;
  return config;
}

ModelConfig SmallT5Config(DataType type) {
  ModelConfig config = SmallConfig(type);
  config.architecture = Architecture::kT5;
  config.feed_forward = FeedForward::kRelu;
  config.encoder_layers = 2;
  config.decoder_start_token = 3;
  config.relative_position_buckets = 8;
  config.relative_position_max_distance = 12;
  return config;
}

ModelConfig SmallLlamaConfig(DataType type) {
  ModelConfig config = SmallConfig(type);
  config.heads = 6;
  config.attention_inner = 36;
  config.key_value_heads = 2;
  config.feed_forward = FeedForward::kGatedSilu;
  config.norm = Norm::kRms;
  config.attention_biases = Biases::kQueryKeyValue;
  config.feed_forward_biases = Biases::kNone;
  config.position = Position::kRotary;
  // Of the three pairs of a head one stays, one is blended and one is stretched.
  config.rotary = {.theta = 500,
                   .scaling = RotaryScaling::kLlama3,
                   .factor = 8,
                   .low_frequency_factor = 1,
                   .high_frequency_factor = 4,
                   .original_max_sequence_length = 64};
  return config;
}

ModelConfig SmallExpertsConfig(DataType type) {
  ModelConfig config = SmallLlamaConfig(type);
  config.head_norms = true;
  config.ffn = 12;
  config.experts = 4;
  config.experts_per_token = 2;
  config.normalised_experts = true;
  return config;
}

ModelConfig SmallSharedExpertConfig(DataType type) {
  ModelConfig config = SmallExpertsConfig(type);
  config.head_norms = false;
  config.joint_head_norms = true;
  // Below what many elements are.
  config.query_key_value_clip = 0.9;
  config.normalised_experts = false;
  config.shared_expert_ffn = 8;
  config.gated_shared_expert = true;
  config.router_balance_loss = 0.3;
  config.router_z_loss = 0.2;
  config.expert_capacity_factor = 0.9;
  return config;
}

ModelConfig SmallSomeExpertsConfig(DataType type) {
  ModelConfig config = SmallExpertsConfig(type);
  config.dense_layers = {0, 2};
  config.dense_ffn = 28;
  config.router_balance_loss = 0.3;
  config.router_z_loss = 0.2;
  return config;
}

ModelConfig SmallGemmaConfig(DataType type) {
  ModelConfig config = SmallLlamaConfig(type);
  config.feed_forward = FeedForward::kGatedGelu;
  config.attention_biases = Biases::kNone;
  config.head_norms = true;
  config.tied_head = true;
  config.multipliers = {.embedding = 4, .attention = 0.5};
  config.attention_window = 5;
  config.windowless_interval = 2;
  config.window_rotary_theta = 50;
  config.score_cap = 0.5;
  config.logit_cap = 0.1;
  config.norm_placement = NormPlacement::kBoth;
  config.offset_norms = true;
  return config;
}

ModelConfig SmallOlmoConfig(DataType type) {
  ModelConfig config = SmallLlamaConfig(type);
  config.norm_placement = NormPlacement::kAfter;
  config.joint_head_norms = true;
  // What parts give is then large beside the epsilon of the norms behind them.
  config.multipliers = {.embedding = 50};
  config.attention_window = 3;
  config.rotary = {.theta = 500,
                   .scaling = RotaryScaling::kLongRope,
                   .factor = 4,
                   .original_max_sequence_length = 8,
                   .attention_factor = 1.2,
                   .short_factors = {1, 1.5},
                   .long_factors = {2, 4},
                   .width = 4};
  return config;
}

Tokens MakeTokens(const std::vector<TestSample>& samples, int64_t vocab) {
  Tokens tokens;
  for (const TestSample& sample : samples) {
    std::vector<int32_t>& ids = tokens.emplace_back();
    const uint32_t length = sample.input + sample.target;
    for (uint32_t p = 0; p < length; ++p)
      ids.push_back(static_cast<int32_t>((p * p + 7 * p + 3 * length) % vocab));
  }
  return tokens;
}

MicroBatch MakeMicroBatch(const ModelConfig& config, const std::vector<TestSample>& samples, Layout layout) {
  MicroBatch shape;
  shape.layout = layout;
  shape.source_cu_seqlens = shape.target_cu_seqlens = {0};
  shape.row_samples = {0};
  for (const std::vector<size_t>& row : RowsOf(samples.size(), layout)) {
    ++shape.rows;
    int32_t source = 0;
    int32_t target = 0;
    for (const size_t i : row) {
      const auto [input, learnt] = samples[i];
      shape.sample_ids.push_back(100 + i);
      shape.input_tokens.push_back(input);
      shape.target_tokens.push_back(learnt);
      source += static_cast<int32_t>(IsT5(config) ? input : 0);
      target += static_cast<int32_t>(IsT5(config) ? learnt : input + learnt);
    }
    shape.row_samples.push_back(shape.row_samples.back() + static_cast<int32_t>(row.size()));
    shape.source_cu_seqlens.push_back(shape.source_cu_seqlens.back() + source);
    shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + target);
    shape.source_length = std::max<int64_t>(shape.source_length, source);
    shape.target_length = std::max<int64_t>(shape.target_length, target);
  }
  if (layout == Layout::kConcatenated) {
    shape.source_length += IsT5(config) ? 2 : 0;
    shape.target_length += 3;
  }
  shape.batch_tokens = CountTokens(samples);
  shape.computed_tokens = layout == Layout::kPacked
                              ? shape.source_cu_seqlens.back() + shape.target_cu_seqlens.back()
                              : shape.rows * (shape.source_length + shape.target_length);
  return shape;
}

uint64_t CountTokens(const std::vector<TestSample>& samples) {
  uint64_t count = 0;
  for (const TestSample& sample : samples) count += uint64_t{sample.input} + sample.target;
  return count;
}

double CountLossTokens(const ModelConfig& config, const std::vector<TestSample>& samples) {
  double count = 0;
  for (const TestSample& sample : samples) {
    count += sample.input == 0 && !IsT5(config) ? sample.target - 1 : sample.target;
  }
  return count;
}

Result PlainModel(const ModelConfig& config, uint64_t seed, const std::vector<TestSample>& samples,
                  Layout layout) {
  PlainParameters parameters;
  for (const ParameterSpec& spec : StageParameterSpecs(config, {0, config.layers, true, true})) {
    parameters[spec.name] = InitialValue(spec, seed, at::kDouble, at::kCPU).requires_grad_(true);
  }
  const Tokens tokens = MakeTokens(samples, config.vocab);
  at::Tensor loss = at::zeros({}, at::kDouble);
  PlainRouterLosses routers = {at::zeros({}, at::kDouble), at::zeros({}, at::kDouble)};
  for (const std::vector<size_t>& places : RowsOf(samples.size(), layout)) {
    PlainRow row;
    for (const size_t i : places) {
      row.samples.push_back(tokens[i]);
      row.inputs.push_back(samples[i].input);
    }
    loss = loss + (IsT5(config) ? PlainT5Loss(parameters, config, row)
                                : PlainGptLoss(parameters, config, row, routers));
  }
  loss = loss / CountLossTokens(config, samples);
  const auto count = static_cast<double>(CountTokens(samples));
  torch::autograd::backward({loss + (routers.balance + routers.z) / count}, {});
  Result result{loss.item<double>(), {}};
  result.router_balance_loss = routers.balance.item<double>() / count;
  result.router_z_loss = routers.z.item<double>() / count;
  for (const auto& [name, value] : parameters) result.gradients[name] = value.grad();
  return result;
}

TestPipeline::TestPipeline(const ModelConfig& config, uint64_t seed,
                           const std::vector<uint32_t>& layers_per_stage)
    : config_(config), layers_(layers_per_stage) {
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    auto stage = MakeTransformerStage(config, StageRangeOf(layers_, i), seed, at::kCPU);
    EXPECT_TRUE(stage.ok()) << stage.status();
    stages_.push_back(*std::move(stage));
  }
}

void TestPipeline::Run(const std::vector<TestSample>& samples, Layout layout, const Options& options,
                       double loss_tokens) {
  Run(samples, MakeTokens(samples, config_.vocab), layout, options, loss_tokens);
}

void TestPipeline::Run(const std::vector<TestSample>& samples, const Tokens& ids, Layout layout,
                       const Options& options, double loss_tokens) {
  MicroBatch shape = MakeMicroBatch(config_, samples, layout);
  if (options.batch_tokens > 0) shape.batch_tokens = options.batch_tokens;
  std::vector<StageForward> forwards;
  at::Tensor activation;
  for (uint32_t i = 0; i < stages_.size(); ++i) {
    const TokenNeeds needs = TokenNeedsOf(config_, StageRangeOf(layers_, i));
    const auto tokens = MakeTokenBatch(shape, ids, config_, needs, at::kCPU);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    const auto layers = static_cast<int32_t>(layers_[i]);
    LayerRecompute recompute = {.full = std::min(options.recompute.full, layers)};
    recompute.selective = std::min(options.recompute.selective, layers - recompute.full);
    LateParameters late(*stages_[i]);
    auto forward = stages_[i]->Forward(shape, *tokens, activation, recompute, loss_tokens, late.Listener());
    ASSERT_TRUE(forward.ok()) << forward.status();
    late.Check(layers_[i]);
    activation = std::exchange(forward->output, at::Tensor());
    forwards.push_back(*std::move(forward));
  }
  loss_ += activation.item<double>();
  at::Tensor gradient;
  std::vector<SplitBackward::PutAside> put_aside(stages_.size());
  for (size_t i = stages_.size(); i-- > 0;) {
    SplitBackward split;
    if (options.split_backward) {
      auto result = stages_[i]->BackwardInput(std::move(forwards[i]), gradient, options.beside);
      ASSERT_TRUE(result.ok()) << result.status();
      split = *std::move(result);
    } else {
      ReadyGradients ready(*stages_[i]);
      auto result = stages_[i]->Backward(std::move(forwards[i]), gradient, options.beside, ready.Listener());
      ASSERT_TRUE(result.ok()) << result.status();
      ready.Check(layers_[i]);
      split.input_gradient = *std::move(result);
    }
    put_aside[i] = std::move(split.put_aside);
    gradient = std::move(split.input_gradient);
    const RouterLosses losses = stages_[i]->TakeRouterLosses();
    router_losses_.balance += losses.balance;
    router_losses_.z += losses.z;
  }
  EXPECT_FALSE(gradient.defined());
  if (!options.split_backward) return;
  for (size_t i = 0; i < stages_.size(); ++i) {
    ReadyGradients ready(*stages_[i]);
    const absl::Status status = stages_[i]->BackwardWeight(std::move(put_aside[i]), ready.Listener());
    ASSERT_TRUE(status.ok()) << status;
    ready.Check(layers_[i]);
  }
}

double TestPipeline::RunForwardAlone(const std::vector<TestSample>& samples, Layout layout,
                                     double loss_tokens) {
  const MicroBatch shape = MakeMicroBatch(config_, samples, layout);
  const Tokens ids = MakeTokens(samples, config_.vocab);
  at::Tensor activation;
  for (uint32_t i = 0; i < stages_.size(); ++i) {
    const TokenNeeds needs = TokenNeedsOf(config_, StageRangeOf(layers_, i));
    const auto tokens = MakeTokenBatch(shape, ids, config_, needs, at::kCPU);
    LateParameters late(*stages_[i]);
    auto forward = tokens.ok()
                       ? stages_[i]->ForwardAlone(shape, *tokens, activation, loss_tokens, late.Listener())
                       : absl::StatusOr<StageForward>(tokens.status());
    EXPECT_TRUE(forward.ok()) << forward.status();
    if (!forward.ok()) return 0;
    late.Check(layers_[i]);
    EXPECT_EQ(forward->state, nullptr);
    activation = std::move(forward->output);
  }
  return activation.item<double>();
}

Result TestPipeline::result() const {
  Result result{loss_, {}, router_losses_.balance, router_losses_.z};
  for (const auto& stage : stages_) {
    for (const NamedParameter& parameter : stage->parameters()) {
      at::Tensor& sum = result.gradients[parameter.name];
      sum = sum.defined() ? sum + parameter.gradient : parameter.gradient.clone();
    }
  }
  return result;
}

double RelativeDifference(const Result& left, const Result& right) {
  if (left.gradients.size() != right.gradients.size()) return std::numeric_limits<double>::infinity();
  double difference = std::abs(left.loss - right.loss) / std::abs(right.loss);
  for (const auto value : {&Result::router_balance_loss, &Result::router_z_loss})
    difference = std::max(difference, std::abs(left.*value - right.*value) / std::max(right.*value, 1e-12));
  for (const auto& [name, gradient] : left.gradients) {
    const auto other = right.gradients.find(name);
    if (other == right.gradients.end()) return std::numeric_limits<double>::infinity();
    const double error = Largest(gradient.to(at::kDouble) - other->second.to(at::kDouble));
    difference = std::max(difference, error / std::max(Largest(other->second), 1e-12));
  }
  return difference;
}

bool SameBits(const Result& left, const Result& right) {
  if (left.loss != right.loss || left.gradients.size() != right.gradients.size()) return false;
  return std::all_of(left.gradients.begin(), left.gradients.end(), [&](const auto& entry) {
    const auto other = right.gradients.find(entry.first);
    return other != right.gradients.end() && entry.second.equal(other->second);
  });
}

}  // namespace penstock::worker
