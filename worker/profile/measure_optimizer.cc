#include "worker/profile/measure_optimizer.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/comm/shard.h"
#include "worker/optimizer/adamw.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

constexpr int kQuarters = 4;
// Of all parameters. The first one writes memory that nobody has written before.
constexpr uint64_t kStepsOfAll = 7;
// Of each part.
constexpr uint64_t kStepsOfPart = 4;

using Optimizers = std::vector<std::unique_ptr<AdamW>>;

// What a rank computes in its step but for what the other ranks add to the norm.
absl::Status Step(AdamW& optimizer, uint64_t number) {
  PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor squares, optimizer.SumsOfSquares());
  PENSTOCK_ASSIGN_OR_RETURN(const StepScale scale, CallTorch("the norms", [&] {
                              optimizer.part_squares().OfGradients();
                              const at::Tensor norm = squares.sum().sqrt_();
                              return StepScale{
                                  .gradients = at::where(norm > 1, 1 / norm, at::ones_like(norm)),
                                  .skip = at::isfinite(norm).logical_not_()};
                            }));
  return optimizer.Step(number, scale);
}

// Gradients that a step leaves at 0.
using Gradients = std::vector<at::Tensor>;

// The median of the steps of these optimizers, which take turns. `gradients[i]`: those of the i-th.
absl::StatusOr<double> MedianStep(const StageRun& run, const Optimizers& optimizers,
                                  const std::vector<Gradients>& gradients, uint64_t rounds) {
  std::vector<double> times;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < optimizers.size(); ++i) {
      const double start = run.clocks().work();
      PENSTOCK_RETURN_IF_ERROR(Step(*optimizers[i], round));
      PENSTOCK_RETURN_IF_ERROR(RunTorch("the gradients", [&] {
        for (const at::Tensor& of_stage : gradients[i]) of_stage.zero_();
      }));
      const double ns = run.clocks().work() - start;
      if (round > 0) times.push_back(ns);
    }
  }
  return Median(std::move(times));
}

absl::StatusOr<double> StepOfAll(const StageRun& run) {
  std::vector<const FlatParameters*> parameters;
  Gradients gradients;
  for (const auto& stage : run.stages()) {
    parameters.push_back(&stage->flat_parameters());
    gradients.push_back(stage->flat_parameters().gradients);
  }
  Optimizers optimizers;
  PENSTOCK_ASSIGN_OR_RETURN(optimizers.emplace_back(), AdamW::Create(TrainingConfig(), parameters));
  return MedianStep(run, optimizers, {gradients}, kStepsOfAll);
}

absl::StatusOr<double> StepOfOne(const StageRun& run) {
  Optimizers optimizers;
  std::vector<Gradients> gradients;
  for (const auto& stage : run.stages()) {
    PENSTOCK_ASSIGN_OR_RETURN(optimizers.emplace_back(),
                              AdamW::Create(TrainingConfig(), {&stage->flat_parameters()}));
    gradients.push_back({stage->flat_parameters().gradients});
  }
  return MedianStep(run, optimizers, gradients, kStepsOfPart);
}

// As the replicas of a divided state update it, but that each leaves its quarter of the gradients at 0.
absl::StatusOr<double> StepOfQuarter(const StageRun& run) {
  const FlatParameters& parameters = run.stages().front()->flat_parameters();
  Optimizers optimizers;
  std::vector<Gradients> gradients;
  for (int quarter = 0; quarter < kQuarters; ++quarter) {
    const Sharding sharding = {.count = kQuarters, .own = quarter, .divided = true};
    PENSTOCK_ASSIGN_OR_RETURN(
        optimizers.emplace_back(),
        AdamW::Create(TrainingConfig(), {&parameters}, {.of_tensor_rank = sharding, .of_experts = sharding}));
    const Shard part = ShardOf(parameters.gradients.numel(), quarter, kQuarters);
    gradients.push_back({parameters.gradients.narrow(0, part.begin, part.size())});
  }
  return MedianStep(run, optimizers, gradients, kStepsOfPart);
}

}  // namespace

MeasuredStep StepThrough(const StepPoint& small, const StepPoint& large) {
  const double of_byte = (large.ns - small.ns) / (large.bytes - small.bytes);
  const double fixed = small.ns - of_byte * small.bytes;
  if (of_byte <= 0 || fixed < 0) return {.fixed_ns = 0, .parameter_byte_ns = large.ns / large.bytes};
  return {.fixed_ns = fixed, .parameter_byte_ns = of_byte};
}

absl::StatusOr<MeasuredStep> MeasureOptimizer(const StageRun& run) {
  double bytes = 0;
  for (const auto& stage : run.stages()) bytes += ParameterBytes(*stage);
  PENSTOCK_ASSIGN_OR_RETURN(const double all_ns, StepOfAll(run));
  const size_t stages = run.stages().size();
  if (stages > 1) {
    PENSTOCK_ASSIGN_OR_RETURN(const double one_ns, StepOfOne(run));
    return StepThrough({bytes / static_cast<double>(stages), one_ns}, {bytes, all_ns});
  }
  PENSTOCK_ASSIGN_OR_RETURN(const double quarter_ns, StepOfQuarter(run));
  return StepThrough({bytes / kQuarters, quarter_ns}, {bytes, all_ns});
}

}  // namespace penstock::worker
