#include "tests/system/equivalence/reference.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "tests/system/equivalence/reference_model.h"
#include "worker/model/parameters.h"

namespace penstock::testing {
namespace {

using worker::JobConfig;
at::ScalarType TypeOf(worker::DataType type) {
  return type == worker::DataType::kFloat64 ? at::kDouble : at::kFloat;
}

// Initial values as the worker has them, rounded to the job's type, then in float64.
ReferenceParameters InitialParameters(const JobConfig& job) {
  const worker::StageRange whole = {
      .first_layer = 0, .layers = job.model.layers, .first = true, .last = true};
  ReferenceParameters parameters;
  for (const worker::ParameterSpec& spec : StageParameterSpecs(job.model, whole)) {
    const at::Tensor value = InitialValue(spec, job.training.seed, TypeOf(job.model.dtype), at::kCPU);
    parameters[spec.name] = value.to(at::kDouble).clone().set_requires_grad(true);
  }
  return parameters;
}

// Leaves gradients in the parameters; returns the loss.
double Accumulate(const std::vector<ReferenceRow>& batch, const ReferenceParameters& parameters,
                  const ReferenceModel& model) {
  const bool t5 = model.encoder_decoder;
  double loss_weight = 0;
  double tokens = 0;
  for (const ReferenceRow& row : batch) {
    for (const ReferenceSample& sample : row) {
      loss_weight += t5 ? T5LossWeight(sample) : GptLossWeight(sample);
      tokens += static_cast<double>(sample.input.size() + sample.target.size());
    }
  }
  double total = 0;
  for (const ReferenceRow& row : batch) {
    const GptLosses losses =
        t5 ? GptLosses{T5RowLoss(row, parameters, model), {}} : GptRowLosses(row, parameters, model);
    // Of the routers it is learnt and not reported.
    if (losses.of_routers.defined()) (losses.of_routers / tokens).backward({}, /*retain_graph=*/true);
    if (!losses.cross_entropy.defined()) continue;
    const at::Tensor loss = losses.cross_entropy / loss_weight;
    loss.backward();
    total += loss.item<double>();
  }
  return total;
}

// Zeros where no sample has reached the parameter.
at::Tensor GradientOf(const at::Tensor& value) {
  return value.grad().defined() ? value.grad() : at::zeros_like(value);
}

ReferenceIteration Describe(double loss, const ReferenceParameters& parameters) {
  ReferenceIteration result = {.loss = loss, .gradients = {}};
  double squares = 0;
  for (const auto& [name, value] : parameters) {
    const at::Tensor gradient = GradientOf(value).contiguous();
    const double* data = gradient.data_ptr<double>();
    PlainTensor& copy = result.gradients[name];
    copy = {gradient.sizes().vec(), {data, data + gradient.numel()}};
    for (double element : copy.values) squares += element * element;
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

  void Step(uint64_t iteration, double gradient_norm, ReferenceParameters& parameters) {
    const at::NoGradGuard no_gradients;
    const double scale =
        config_.clip_norm > 0 && gradient_norm > config_.clip_norm ? config_.clip_norm / gradient_norm : 1.0;
    const double rate = RateAt(config_.learning_rate, iteration);
    const auto steps = static_cast<double>(iteration + 1);
    for (auto& [name, value] : parameters) {
      const at::Tensor gradient = GradientOf(value) * scale;
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
  static at::Tensor& Moment(ReferenceParameters& moments, const std::string& name, const at::Tensor& like) {
    at::Tensor& moment = moments[name];
    if (!moment.defined()) moment = at::zeros_like(like);
    return moment;
  }

  const worker::TrainingConfig config_;
  ReferenceParameters first_;
  ReferenceParameters second_;
};

}  // namespace

std::vector<ReferenceIteration> TrainReference(const JobConfig& job, const ReferenceModel& model,
                                               const std::vector<std::vector<ReferenceRow>>& batches) {
  at::set_num_threads(1);  // tensors are small, and other processes compute beside this one
  ReferenceParameters parameters = InitialParameters(job);
  ReferenceOptimizer optimizer(job.training);
  std::vector<ReferenceIteration> iterations;
  for (size_t i = 0; i < batches.size(); ++i) {
    const double loss = Accumulate(batches[i], parameters, model);
    iterations.push_back(Describe(loss, parameters));
    optimizer.Step(i, iterations.back().gradient_norm, parameters);
  }
  return iterations;
}

}  // namespace penstock::testing
