#include "worker/profile/windowed_layers.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "worker/model/architecture.h"

namespace penstock::worker {
namespace {

double Mean(double windowed, double without, const WindowedLayers& layers) {
  const auto count = static_cast<double>(layers.layers);
  return (windowed * static_cast<double>(layers.windowed) +
          without * static_cast<double>(layers.layers - layers.windowed)) /
         count;
}

// All but the squares are the same of both.
CostPoint MeanPoint(const CostPoint& windowed, const CostPoint& without, const WindowedLayers& layers) {
  CostPoint mean = windowed;
  mean.tokens.target_square = Mean(windowed.tokens.target_square, without.tokens.target_square, layers);
  mean.ns = Mean(windowed.ns, without.ns, layers);
  return mean;
}

std::vector<CostPoint> MeanPoints(const std::vector<CostPoint>& windowed,
                                  const std::vector<CostPoint>& without, const WindowedLayers& layers) {
  std::vector<CostPoint> mean;
  for (size_t i = 0; i < std::min(windowed.size(), without.size()); ++i)
    mean.push_back(MeanPoint(windowed[i], without[i], layers));
  return mean;
}

}  // namespace

WindowedLayers WindowedLayersOf(const ModelConfig& config) {
  WindowedLayers result = {.window = config.attention_window, .layers = std::max<int64_t>(config.layers, 1)};
  if (config.attention_window == 0) return result;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (WindowOf(config, layer) > 0) {
      ++result.windowed;
    } else {
      result.without_window = layer;
    }
  }
  return result;
}

MeasuredPasses MeanOfLayers(const MeasuredPasses& windowed, const MeasuredPasses& without,
                            const WindowedLayers& layers) {
  MeasuredPasses mean = windowed;
  mean.forward = MeanPoints(windowed.forward, without.forward, layers);
  mean.backward_input = MeanPoints(windowed.backward_input, without.backward_input, layers);
  mean.backward_weight = MeanPoints(windowed.backward_weight, without.backward_weight, layers);
  mean.forward_ns = Mean(windowed.forward_ns, without.forward_ns, layers);
  mean.backward_none_ns = Mean(windowed.backward_none_ns, without.backward_none_ns, layers);
  mean.backward_selective_ns = Mean(windowed.backward_selective_ns, without.backward_selective_ns, layers);
  mean.backward_full_ns = Mean(windowed.backward_full_ns, without.backward_full_ns, layers);
  mean.backward_input_ns = Mean(windowed.backward_input_ns, without.backward_input_ns, layers);
  mean.backward_weight_ns = Mean(windowed.backward_weight_ns, without.backward_weight_ns, layers);
  return mean;
}

LayerPoints MeanOfPoints(const LayerPoints& windowed, const LayerPoints& without,
                         const WindowedLayers& layers) {
  return {.forward = MeanPoints(windowed.forward, without.forward, layers),
          .backward_input = MeanPoints(windowed.backward_input, without.backward_input, layers),
          .backward_weight = MeanPoints(windowed.backward_weight, without.backward_weight, layers)};
}

}  // namespace penstock::worker
