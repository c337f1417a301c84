#include "tests/unit/worker/model_testing.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

using Parameters = std::map<std::string, at::Tensor>;

Parameters PlainParameters(const ModelConfig& config, uint64_t seed) {
  Parameters parameters;
  for (const ParameterSpec& spec : StageParameterSpecs(config, {0, config.layers, true, true})) {
    parameters[spec.name] = InitialValue(spec, seed, at::kDouble, at::kCPU).requires_grad_(true);
  }
  return parameters;
}

at::Tensor Norm(const Parameters& p, const std::string& name, const at::Tensor& x) {
  const at::Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * p.at(name + ".weight") +
         p.at(name + ".bias");
}

at::Tensor Linear(const Parameters& p, const std::string& name, const at::Tensor& x) {
  return x.matmul(p.at(name + ".weight").t()) + p.at(name + ".bias");
}

at::Tensor Gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh());
}

at::Tensor Attention(const Parameters& p, const std::string& name, const ModelConfig& config,
                     const at::Tensor& x) {
  const int64_t inner = AttentionInner(config);
  const int64_t width = inner / config.heads;
  const at::Tensor qkv = Linear(p, name + ".qkv", x);
  const at::Tensor future = at::ones({x.size(0), x.size(0)}, at::kBool).triu(1);
  std::vector<at::Tensor> outputs;
  for (int64_t head = 0; head < config.heads; ++head) {
    const auto part = [&](int64_t i) {
      return qkv.slice(1, i * inner + head * width, i * inner + (head + 1) * width);
    };
    const at::Tensor scores = part(0).matmul(part(1).t()) / std::sqrt(static_cast<double>(width));
    outputs.push_back(
        scores.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1).matmul(part(2)));
  }
  return Linear(p, name + ".output", at::cat(outputs, 1));
}

at::Tensor PlainLogits(const Parameters& p, const ModelConfig& config, const at::Tensor& ids) {
  at::Tensor x = p.at("embedding.token.weight").index_select(0, ids) +
                 p.at("embedding.position.weight").slice(0, 0, ids.size(0));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    x = x + Attention(p, name + ".attention", config, Norm(p, name + ".attention_norm", x));
    x = x + Linear(p, name + ".ffn.down", Gelu(Linear(p, name + ".ffn.up", Norm(p, name + ".ffn_norm", x))));
  }
  return Norm(p, "final_norm", x).matmul(p.at("head.weight").t());
}

at::Tensor PlainLoss(const Parameters& p, const ModelConfig& config, const TestSample& sample,
                     const std::vector<int32_t>& tokens) {
  const at::Tensor ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()));
  const at::Tensor log_probabilities = PlainLogits(p, config, ids).log_softmax(-1);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (uint32_t next = std::max(1U, sample.input); next < sample.input + sample.target; ++next) {
    loss = loss - log_probabilities[next - 1][tokens[next]];
  }
  return loss;
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

MicroBatch MakeMicroBatch(const std::vector<TestSample>& samples, Layout layout) {
  MicroBatch shape;
  shape.layout = layout;
  shape.rows = static_cast<int64_t>(samples.size());
  shape.target_cu_seqlens = {0};
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint32_t length = samples[i].input + samples[i].target;
    shape.sample_ids.push_back(100 + i);
    shape.input_tokens.push_back(samples[i].input);
    shape.target_tokens.push_back(samples[i].target);
    shape.target_length = std::max<int64_t>(shape.target_length, length);
    shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + static_cast<int32_t>(length));
  }
  shape.computed_tokens =
      layout == Layout::kPacked ? shape.target_cu_seqlens.back() : shape.rows * shape.target_length;
  return shape;
}

double CountLossTokens(const std::vector<TestSample>& samples) {
  double count = 0;
  for (const TestSample& sample : samples) count += sample.input == 0 ? sample.target - 1 : sample.target;
  return count;
}

Result PlainGpt(const ModelConfig& config, uint64_t seed, const std::vector<TestSample>& samples) {
  const Parameters parameters = PlainParameters(config, seed);
  const Tokens tokens = MakeTokens(samples, config.vocab);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < samples.size(); ++i)
    loss = loss + PlainLoss(parameters, config, samples[i], tokens[i]);
  loss = loss / CountLossTokens(samples);
  torch::autograd::backward({loss}, {});
  Result result{loss.item<double>(), {}};
  for (const auto& [name, value] : parameters) result.gradients[name] = value.grad();
  return result;
}

TestPipeline::TestPipeline(const ModelConfig& config, uint64_t seed, int64_t stages) : config_(config) {
  const int64_t layers = config.layers / stages;
  for (int64_t i = 0; i < stages; ++i) {
    auto stage = MakeTransformerStage(config, {i * layers, layers, i == 0, i == stages - 1}, seed, at::kCPU);
    EXPECT_TRUE(stage.ok()) << stage.status();
    stages_.push_back(*std::move(stage));
  }
}

void TestPipeline::Run(const std::vector<TestSample>& samples, Layout layout, const LayerRecompute& recompute,
                       double loss_tokens) {
  const MicroBatch shape = MakeMicroBatch(samples, layout);
  const auto tokens = MakeTokenBatch(shape, MakeTokens(samples, config_.vocab), config_.vocab, at::kCPU);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  std::vector<StageForward> forwards;
  at::Tensor activation;
  for (const auto& stage : stages_) {
    auto forward = stage->Forward(shape, *tokens, activation, recompute, loss_tokens);
    ASSERT_TRUE(forward.ok()) << forward.status();
    activation = forward->output;
    forward->output.reset();
    forwards.push_back(*std::move(forward));
  }
  loss_ += activation.item<double>();
  at::Tensor gradient;
  for (size_t i = stages_.size(); i-- > 0;) {
    auto input_gradient = stages_[i]->Backward(std::move(forwards[i]), gradient);
    ASSERT_TRUE(input_gradient.ok()) << input_gradient.status();
    gradient = *input_gradient;
  }
  EXPECT_FALSE(gradient.defined());
}

Result TestPipeline::result() const {
  Result result{loss_, {}};
  for (const auto& stage : stages_) {
    for (const NamedParameter& parameter : stage->parameters()) {
      result.gradients[parameter.name] = parameter.gradient.clone();
    }
  }
  return result;
}

double RelativeDifference(const Result& left, const Result& right) {
  if (left.gradients.size() != right.gradients.size()) return std::numeric_limits<double>::infinity();
  double difference = std::abs(left.loss - right.loss) / std::abs(right.loss);
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
