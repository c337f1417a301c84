#include "tests/system/equivalence/reference.h"

#include <ATen/ATen.h>

#include <cmath>

#include "worker/model/parameters.h"

namespace penstock::testing {
namespace {

using worker::JobConfig;
using worker::ModelConfig;
using Parameters = std::map<std::string, at::Tensor>;

at::ScalarType TypeOf(worker::DataType type) {
  return type == worker::DataType::kFloat64 ? at::kDouble : at::kFloat;
}

// Initial values as the worker has them, rounded to the job's type, then in float64.
Parameters InitialParameters(const JobConfig& job) {
  const worker::StageRange whole = {
      .first_layer = 0, .layers = job.model.layers, .first = true, .last = true};
  Parameters parameters;
  for (const worker::ParameterSpec& spec : StageParameterSpecs(job.model, whole)) {
    const at::Tensor value = InitialValue(spec, job.training.seed, TypeOf(job.model.dtype), at::kCPU);
    parameters[spec.name] = value.to(at::kDouble).clone().set_requires_grad(true);
  }
  return parameters;
}

at::Tensor Normalize(const at::Tensor& x, const Parameters& p, const std::string& name) {
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor variance = (centred * centred).mean(-1, true);
  return centred / (variance + 1e-5).sqrt() * p.at(name + ".weight") + p.at(name + ".bias");
}

at::Tensor Affine(const at::Tensor& x, const Parameters& p, const std::string& name) {
  return x.matmul(p.at(name + ".weight").t()) + p.at(name + ".bias");
}

// x: [length, hidden]. One head after the other.
at::Tensor Attend(const at::Tensor& x, const Parameters& p, const std::string& layer,
                  const ModelConfig& model) {
  const int64_t length = x.size(0);
  const int64_t width = model.attention_inner / model.heads;
  const at::Tensor qkv = Affine(x, p, layer + ".attention.qkv");
  const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
  std::vector<at::Tensor> heads;
  for (int64_t head = 0; head < model.heads; ++head) {
    const auto part = [&](int64_t which) {
      return qkv.narrow(1, which * model.attention_inner + head * width, width);
    };
    const at::Tensor scores = part(0).matmul(part(1).t()) / std::sqrt(static_cast<double>(width));
    heads.push_back(scores.masked_fill(future, -INFINITY).softmax(-1).matmul(part(2)));
  }
  return Affine(at::cat(heads, 1), p, layer + ".attention.output");
}

at::Tensor Gelu(const at::Tensor& x) {
  return 0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)).tanh());
}

// [length, vocab]
at::Tensor Logits(const std::vector<int64_t>& tokens, const Parameters& p, const ModelConfig& model) {
  const at::Tensor ids = at::tensor(tokens, at::kLong);
  at::Tensor x = p.at("embedding.token.weight").index_select(0, ids) +
                 p.at("embedding.position.weight").narrow(0, 0, ids.size(0));
  for (int64_t i = 0; i < model.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    x = x + Attend(Normalize(x, p, layer + ".attention_norm"), p, layer, model);
    x = x + Affine(Gelu(Affine(Normalize(x, p, layer + ".ffn_norm"), p, layer + ".ffn.up")), p,
                   layer + ".ffn.down");
  }
  return Normalize(x, p, "final_norm").matmul(p.at("head.weight").t());
}

// Positions that the loss counts: target tokens with a token before them.
int64_t LossTokens(const ReferenceSample& sample) {
  const auto target = static_cast<int64_t>(sample.target.size());
  return sample.input.empty() ? target - 1 : target;
}

// Sum of the cross entropy over the sample's loss positions; undefined where it has none.
at::Tensor SampleLoss(const ReferenceSample& sample, const Parameters& p, const ModelConfig& model) {
  if (LossTokens(sample) == 0) return {};
  std::vector<int64_t> tokens(sample.input.begin(), sample.input.end());
  tokens.insert(tokens.end(), sample.target.begin(), sample.target.end());
  const at::Tensor likelihoods = Logits(tokens, p, model).log_softmax(-1);
  const size_t first = sample.input.empty() ? 1 : sample.input.size();
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t position = first; position < tokens.size(); ++position) {
    loss = loss - likelihoods[static_cast<int64_t>(position) - 1][tokens[position]];
  }
  return loss;
}

// Leaves gradients in the parameters; returns the loss.
double Accumulate(const std::vector<ReferenceSample>& batch, const Parameters& parameters,
                  const ModelConfig& model) {
  int64_t loss_tokens = 0;
  for (const ReferenceSample& sample : batch) loss_tokens += LossTokens(sample);
  double total = 0;
  for (const ReferenceSample& sample : batch) {
    at::Tensor loss = SampleLoss(sample, parameters, model);
    if (!loss.defined()) continue;
    loss = loss / static_cast<double>(loss_tokens);
    loss.backward();
    total += loss.item<double>();
  }
  return total;
}

ReferenceIteration Describe(double loss, const Parameters& parameters) {
  ReferenceIteration result = {.loss = loss, .gradients = {}};
  double squares = 0;
  for (const auto& [name, value] : parameters) {
    const at::Tensor gradient = value.grad().contiguous();
    const double* data = gradient.data_ptr<double>();
    std::vector<double>& copy = result.gradients[name];
    copy.assign(data, data + gradient.numel());
    for (double element : copy) squares += element * element;
  }
  result.gradient_norm = std::sqrt(squares);
  return result;
}

// Linear warm-up, then a cosine (job.proto, LearningRate).
double RateAt(const worker::LearningRateConfig& rate, uint64_t iteration) {
  const auto warmup = static_cast<double>(rate.warmup_iterations);
  const auto i = static_cast<double>(iteration);
  if (i < warmup) return rate.peak * (i + 1) / warmup;
  const auto decay = static_cast<double>(rate.decay_iterations);
  if (i >= decay) return rate.minimum;
  return rate.minimum +
         (rate.peak - rate.minimum) * 0.5 * (1 + std::cos(M_PI * (i - warmup) / (decay - warmup)));
}

// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
class ReferenceOptimizer {
 public:
  explicit ReferenceOptimizer(const worker::TrainingConfig& config) : config_(config) {}

  void Step(uint64_t iteration, double gradient_norm, Parameters& parameters) {
    const at::NoGradGuard no_gradients;
    const double scale =
        config_.clip_norm > 0 && gradient_norm > config_.clip_norm ? config_.clip_norm / gradient_norm : 1.0;
    const double rate = RateAt(config_.learning_rate, iteration);
    const auto steps = static_cast<double>(iteration + 1);
    for (auto& [name, value] : parameters) {
      const at::Tensor gradient = value.grad() * scale;
      at::Tensor& mean = Moment(first_, name, value);
      at::Tensor& square = Moment(second_, name, value);
      mean = config_.beta1 * mean + (1 - config_.beta1) * gradient;
      square = config_.beta2 * square + (1 - config_.beta2) * gradient * gradient;
      const at::Tensor direction = mean / (1 - std::pow(config_.beta1, steps)) /
                                   ((square / (1 - std::pow(config_.beta2, steps))).sqrt() + config_.epsilon);
      const double decay = value.dim() > 1 ? config_.weight_decay : 0.0;
      value.copy_(value - rate * (direction + decay * value));
      value.mutable_grad().reset();
    }
  }

 private:
  static at::Tensor& Moment(Parameters& moments, const std::string& name, const at::Tensor& like) {
    at::Tensor& moment = moments[name];
    if (!moment.defined()) moment = at::zeros_like(like);
    return moment;
  }

  const worker::TrainingConfig config_;
  Parameters first_;
  Parameters second_;
};

}  // namespace

std::vector<ReferenceIteration> TrainReference(const JobConfig& job,
                                               const std::vector<std::vector<ReferenceSample>>& batches) {
  Parameters parameters = InitialParameters(job);
  ReferenceOptimizer optimizer(job.training);
  std::vector<ReferenceIteration> iterations;
  for (size_t i = 0; i < batches.size(); ++i) {
    const double loss = Accumulate(batches[i], parameters, job.model);
    iterations.push_back(Describe(loss, parameters));
    optimizer.Step(i, iterations.back().gradient_norm, parameters);
  }
  return iterations;
}

}  // namespace penstock::testing
