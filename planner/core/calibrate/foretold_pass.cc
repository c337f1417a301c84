#include "planner/core/calibrate/foretold_pass.h"

#include <algorithm>

namespace penstock::core {

double ForetoldNs(const CostModel& costs, const MeasuredPass& pass, const LayerCosts& layers) {
  int64_t foretold = 0;
  if (pass.kind == MeasuredKind::kForward) foretold = costs.ForwardNs(pass.stage, layers);
  if (pass.kind == MeasuredKind::kBackward) foretold = costs.BackwardNs(pass.stage, layers, pass.recompute);
  if (pass.kind == MeasuredKind::kBackwardWeight) foretold = costs.WeightNs(pass.stage, layers);
  return static_cast<double>(std::max<int64_t>(foretold, 1));
}

double ForetoldNs(const CostModel& costs, const MeasuredPass& pass) {
  LayerCosts layers;
  return costs.Layers(pass.sums, &layers) ? ForetoldNs(costs, pass, layers) : 0;
}

double ForetoldAloneNs(const CostModel& costs, const MeasuredPass& pass) {
  LayerCosts layers;
  if (!costs.Layers(pass.sums, &layers)) return 0;
  layers.DropExchanges();
  return ForetoldNs(costs, pass, layers);
}

}  // namespace penstock::core
