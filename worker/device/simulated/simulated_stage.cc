#include "worker/device/simulated/simulated_stage.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/model/boundary_shape.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// The shape of the stage's input, which its gradient has too.
struct SimulatedState : StageState {
  at::Tensor input;
};

class SimulatedStage : public Stage {
 public:
  SimulatedStage(const ModelConfig& model, const StageRange& range, const GroupPlace& place)
      : model_(model), range_(range), place_(place) {
    parameters_ = MakeFlatParameters(SimulatedParameterSpecs(range), /*seed=*/0, at::kFloat, at::kCPU);
  }

  absl::StatusOr<StageForward> Forward(const MicroBatch& shape, const TokenBatch&, const at::Tensor& input,
                                       const LayerRecompute&, double, const ParametersNeeded&) override {
    return CallTorch("forward", [&] {
      auto state = std::make_shared<SimulatedState>();
      state->input = input;
      StageForward forward = {.output = Output(shape), .state = std::move(state)};
      return forward;
    });
  }

  absl::StatusOr<StageForward> ForwardAlone(const MicroBatch& shape, const TokenBatch&, const at::Tensor&,
                                            double, const ParametersNeeded&) override {
    return CallTorch("forward", [&] {
      StageForward forward = {.output = Output(shape), .state = nullptr};
      return forward;
    });
  }

  absl::StatusOr<at::Tensor> Backward(StageForward forward, const at::Tensor&, const ProductsBeside&,
                                      const GradientsReady&) override {
    return InputGradient(forward);
  }

  absl::StatusOr<SplitBackward> BackwardInput(StageForward forward, const at::Tensor&,
                                              const ProductsBeside&) override {
    return SplitBackward{.input_gradient = InputGradient(forward), .put_aside = forward.state};
  }

  absl::Status BackwardWeight(SplitBackward::PutAside, const GradientsReady&) override {
    return absl::OkStatus();
  }

  void ZeroGradients() override {}

  const FlatParameters& flat_parameters() const override { return parameters_; }

 private:
  at::Tensor Output(const MicroBatch& shape) const {
    if (range_.last) return at::zeros({}, at::kDouble);
    return TensorWithoutStorage(BoundaryShape(shape, model_, range_.first_layer + range_.layers, place_),
                                model_.dtype);
  }

  // Nobody reads the input's one element, so it may stand for the gradient's.
  static at::Tensor InputGradient(const StageForward& forward) {
    return static_cast<const SimulatedState&>(*forward.state).input;
  }

  const ModelConfig model_;
  const StageRange range_;
  const GroupPlace place_;
  FlatParameters parameters_;
};

}  // namespace

std::vector<ParameterSpec> SimulatedParameterSpecs(const StageRange& range) {
  std::vector<ParameterSpec> specs;
  for (int64_t layer = 0; layer < range.layers; ++layer) {
    specs.push_back({.name = absl::StrCat("layers.", range.first_layer + layer, ".simulated"), .shape = {1}});
  }
  return specs;
}

at::Tensor TensorWithoutStorage(at::IntArrayRef shape, DataType type) {
  return at::zeros({1}, ToScalarType(type)).expand(shape);
}

absl::StatusOr<std::unique_ptr<Stage>> MakeSimulatedStage(const ModelConfig& model, const StageRange& range,
                                                          const GroupPlace& place) {
  return CallTorch("creating a simulated stage", [&]() -> std::unique_ptr<Stage> {
    return std::make_unique<SimulatedStage>(model, range, place);
  });
}

}  // namespace penstock::worker
