// How evenly routers spread the rows of an iteration, of all layers in a few figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/v1/planner_service.pb.h"

namespace penstock::cli {

// Of a layer: what is fullest over the mean.
struct LayerLoad {
  uint32_t layer = 0;
  double load = 0;
};

// Of all layers with experts; there are some.
struct LayerLoads {
  double mean = 0;
  // The fullest first.
  std::vector<LayerLoad> layers;
};

// Of the ranks that divide experts, and of experts; nothing where no ranks do, or workers do not tell.
std::optional<LayerLoads> RankLoads(const v1::IterationSummary& iteration);
std::optional<LayerLoads> ExpertLoads(const v1::IterationSummary& iteration);

// "1.31 in the mean of 48 layers, most in layer 7 (1.92), layer 12 (1.80) and layer 30 (1.66)".
std::string LayerLoadsText(const LayerLoads& loads);

}  // namespace penstock::cli
