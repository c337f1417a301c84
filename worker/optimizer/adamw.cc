#include "worker/optimizer/adamw.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <utility>

#include "common/status/status_macros.h"
#include "worker/optimizer/learning_rate.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {

absl::StatusOr<std::unique_ptr<AdamW>> AdamW::Create(const TrainingConfig& config,
                                                     const std::vector<NamedParameter>& parameters) {
  std::unique_ptr<AdamW> optimizer(new AdamW(config));
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the optimizer's state", [&] {
    for (const NamedParameter& parameter : parameters) {
      optimizer->device_ = parameter.value.device();
      const at::ScalarType own = parameter.value.scalar_type();
      const at::ScalarType accumulation = AccumulationType(own);
      const auto options = parameter.value.options().dtype(accumulation).requires_grad(false);
      at::Tensor master;
      if (own != accumulation) master = parameter.value.detach().to(accumulation);
      const at::IntArrayRef sizes = parameter.value.sizes();
      optimizer->slots_.push_back(
          {parameter, at::zeros(sizes, options), at::zeros(sizes, options), std::move(master)});
    }
  }));
  return optimizer;
}

absl::StatusOr<at::Tensor> AdamW::SumOfSquaredGradients() const {
  return CallTorch("the gradient norm", [&] {
    const at::NoGradGuard no_gradients;
    at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
    for (const Slot& slot : slots_) {
      if (slot.parameter.shared) continue;
      const at::Tensor norm =
          at::linalg_vector_norm(slot.parameter.gradient, 2, std::nullopt, false, at::kDouble);
      sum.add_(norm.square());
    }
    return sum.reshape({1});
  });
}

absl::Status AdamW::Step(uint64_t iteration, double gradient_scale) {
  return RunTorch("the optimizer step", [&] {
    const at::NoGradGuard no_gradients;
    for (Slot& slot : slots_) Update(slot, iteration, gradient_scale);
  });
}

void AdamW::Update(Slot& slot, uint64_t iteration, double gradient_scale) const {
  const auto step = static_cast<double>(iteration + 1);
  const double rate = learning_rate(iteration);
  const double first_correction = 1 - std::pow(config_.beta1, step);
  const double second_correction = 1 - std::pow(config_.beta2, step);
  at::Tensor weights = slot.master.defined() ? slot.master : slot.parameter.value;

  // Scaled on the way, without a scaled copy.
  const at::Tensor& gradient = slot.parameter.gradient;
  slot.first_moment.mul_(config_.beta1).add_(gradient, (1 - config_.beta1) * gradient_scale);
  slot.second_moment.mul_(config_.beta2)
      .addcmul_(gradient, gradient, (1 - config_.beta2) * gradient_scale * gradient_scale);
  if (weights.dim() > 1) weights.mul_(1 - rate * config_.weight_decay);
  const at::Tensor deviation = (slot.second_moment / second_correction).sqrt_().add_(config_.epsilon);
  weights.addcdiv_(slot.first_moment, deviation, -rate / first_correction);
  if (slot.master.defined()) slot.parameter.value.copy_(slot.master);
}

double AdamW::learning_rate(uint64_t iteration) const {
  return LearningRateAt(config_.learning_rate, iteration);
}

std::vector<NamedTensor> AdamW::State(bool with_copies) const {
  std::vector<NamedTensor> tensors;
  for (const Slot& slot : slots_) {
    if (slot.parameter.copy && !with_copies) continue;
    tensors.push_back({"optimizer.first_moment." + slot.parameter.name, slot.first_moment});
    tensors.push_back({"optimizer.second_moment." + slot.parameter.name, slot.second_moment});
    if (slot.master.defined()) tensors.push_back({"optimizer.master." + slot.parameter.name, slot.master});
  }
  return tensors;
}

}  // namespace penstock::worker
