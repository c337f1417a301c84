#include "worker/shares/share_layout.h"

#include <algorithm>
#include <utility>

#include "absl/numeric/int128.h"
#include "common/checkpoint/tensor_blocks.h"

namespace penstock::worker {
namespace {

ParameterPart PartOf(const std::vector<int64_t>& shape, const ElementInterval& interval) {
  ParameterPart part = {
      .whole_shape = shape, .blocks = {}, .shape = {interval.size()}, .most_elements = interval.size()};
  for (const Block& block : BlocksOf(WholeBlock(shape), interval.begin, interval.end))
    part.blocks.push_back({.block = block});
  return part;
}

}  // namespace

// As of a pipeline with a stage for each layer.
ShareLayout::ShareLayout(int64_t layers, const std::vector<uint32_t>& weights, const StageSpecs& specs) {
  for (const uint32_t weight : weights) weights_before_.push_back(weights_before_.back() + weight);
  for (int64_t layer = 0; layer < layers; ++layer) {
    layers_.push_back(0);
    const StageRange alone = {
        .first_layer = layer, .layers = 1, .first = layer == 0, .last = layer + 1 == layers};
    for (ParameterSpec& spec : specs(alone, GroupPlace())) {
      if (!spec.copy) Add(std::move(spec));
    }
  }
}

void ShareLayout::Add(ParameterSpec spec) {
  Placed placed = {
      .spec = std::move(spec), .layer = layers_.size() - 1, .begin = layers_.back(), .elements = 0};
  placed.elements = WholeBlock(placed.spec.shape).elements();
  layers_.back() += placed.elements;
  indices_[placed.spec.name] = parameters_.size();
  parameters_.push_back(std::move(placed));
}

ElementInterval ShareLayout::Of(size_t parameter, uint32_t rank) const {
  const Placed& placed = parameters_[parameter];
  const int64_t of_layer = layers_[placed.layer];
  // Products of elements and weights may need more than 64 bits.
  const auto bound = [&](uint64_t before) {
    const auto end = static_cast<int64_t>(absl::uint128(before) * of_layer / all_weights());
    return std::clamp<int64_t>(end - placed.begin, 0, placed.elements);
  };
  return {bound(weights_before_[rank]), bound(weights_before_[rank + 1])};
}

std::vector<ParameterSpec> ShareLayout::SpecsOf(uint32_t rank) const {
  std::vector<ParameterSpec> specs;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ElementInterval own = Of(i, rank);
    if (own.size() == 0) continue;
    ParameterSpec& spec = specs.emplace_back(parameters_[i].spec);
    spec.part = PartOf(spec.shape, own);
    // No other rank has these elements.
    spec.shared = false;
    spec.begins_layer = false;
  }
  return specs;
}

}  // namespace penstock::worker
