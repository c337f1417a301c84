#include "worker/runtime/shared_gradients.h"

#include <ATen/ATen.h>

#include "worker/model/parameters.h"
#include "worker/optimizer/flat_squares.h"
#include "worker/optimizer/parameter_slice.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// What is updated here of a parameter of so many elements.
FlatSpan Updated(int64_t elements, const Sharding& sharding) {
  return UpdatedPart({.begin = 0, .end = elements}, sharding);
}

// Of what this tensor rank has.
int64_t ElementsOf(const ParameterSpec& spec) { return c10::multiply_integers(spec.own_part().shape); }

// Calls `visit` with what is updated here of each copy's gradient, and the sum that it belongs to.
template <typename Sums, typename Visit>
void ForEachCopy(const std::vector<ParameterSpec>& specs, const std::map<uint32_t, Stage*>& stages,
                 const Sharding& sharding, Sums& sums, const Visit& visit) {
  for (const auto& [number, stage] : stages) {
    for (const NamedParameter& parameter : stage->parameters()) {
      if (!parameter.shared) continue;
      const FlatSpan part = Updated(parameter.gradient.numel(), sharding);
      for (size_t i = 0; i < specs.size(); ++i) {
        if (specs[i].name != parameter.name) continue;
        visit(parameter.gradient.view({-1}).narrow(0, part.begin, part.size()), sums[i]);
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<at::Tensor>> GatherSharedGradients(const ModelConfig& model,
                                                              const std::map<uint32_t, Stage*>& stages,
                                                              const Sharding& sharding, at::Device device,
                                                              const GroupPlace& place) {
  return CallTorch("the shared gradients", [&] {
    const std::vector<ParameterSpec> specs = SharedParameterSpecs(model, place);
    const auto options = at::TensorOptions(AccumulationType(ToScalarType(model.dtype))).device(device);
    // The first copy's own gradient is the sum: a table of all token embeddings is not to be there twice.
    std::vector<at::Tensor> sums(specs.size());
    ForEachCopy(specs, stages, sharding, sums, [](const at::Tensor& gradient, at::Tensor& sum) {
      if (sum.defined()) {
        sum.add_(gradient);
      } else {
        sum = gradient;
      }
    });
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].defined()) continue;
      sums[i] = at::zeros({Updated(ElementsOf(specs[i]), sharding).size()}, options);
    }
    return sums;
  });
}

absl::StatusOr<at::Tensor> ScatterSharedGradients(const ModelConfig& model,
                                                  const std::map<uint32_t, Stage*>& stages,
                                                  const Sharding& sharding,
                                                  const std::vector<at::Tensor>& sums, at::Device device,
                                                  const GroupPlace& place) {
  return CallTorch("the shared gradients", [&] {
    const std::vector<ParameterSpec> specs = SharedParameterSpecs(model, place);
    ForEachCopy(specs, stages, sharding, sums,
                [](const at::Tensor& gradient, const at::Tensor& sum) { gradient.copy_(sum); });
    at::Tensor squares = at::zeros({sharding.count}, at::TensorOptions(at::kDouble).device(device));
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t elements = ElementsOf(specs[i]);
      const int64_t first = Updated(elements, sharding).begin;
      for (int shard = 0; shard < sharding.count; ++shard) {
        if (!sharding.Updates(shard)) continue;
        const FlatSpan part = ShardOfSpan({.begin = 0, .end = elements}, shard, sharding.count);
        for (const FlatSpan& counted : CountedSpans(specs[i].own_part(), part, place.tensor)) {
          squares[shard].add_(FlatSumOfSquares(sums[i].narrow(0, counted.begin - first, counted.size())));
        }
      }
    }
    return squares;
  });
}

}  // namespace penstock::worker
