#include "worker/runtime/shared_gradients.h"

#include <ATen/ATen.h>

#include "worker/model/parameters.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Calls `visit` with each copy's gradient and the sum that it belongs to.
template <typename Visit>
void ForEachCopy(const std::vector<ParameterSpec>& specs, const std::map<uint32_t, Stage*>& stages,
                 const std::vector<at::Tensor>& sums, const Visit& visit) {
  for (const auto& [number, stage] : stages) {
    for (const NamedParameter& parameter : stage->parameters()) {
      if (!parameter.shared) continue;
      for (size_t i = 0; i < specs.size(); ++i) {
        if (specs[i].name == parameter.name) visit(parameter.gradient, sums[i]);
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<at::Tensor>> GatherSharedGradients(const ModelConfig& model,
                                                              const std::map<uint32_t, Stage*>& stages,
                                                              at::Device device) {
  return CallTorch("the shared gradients", [&] {
    const std::vector<ParameterSpec> specs = SharedParameterSpecs(model);
    const auto options = at::TensorOptions(AccumulationType(ToScalarType(model.dtype))).device(device);
    std::vector<at::Tensor> sums;
    for (const ParameterSpec& spec : specs) sums.push_back(at::zeros(spec.shape, options));
    ForEachCopy(specs, stages, sums,
                [](const at::Tensor& gradient, const at::Tensor& sum) { sum.add_(gradient); });
    return sums;
  });
}

absl::StatusOr<double> ScatterSharedGradients(const ModelConfig& model,
                                              const std::map<uint32_t, Stage*>& stages,
                                              const std::vector<at::Tensor>& sums) {
  return CallTorch("the shared gradients", [&] {
    ForEachCopy(SharedParameterSpecs(model), stages, sums,
                [](const at::Tensor& gradient, const at::Tensor& sum) { gradient.copy_(sum); });
    double squares = 0;
    for (const at::Tensor& sum : sums) squares += sum.to(at::kDouble).square().sum().item<double>();
    return squares;
  });
}

}  // namespace penstock::worker
