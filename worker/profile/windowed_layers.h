// Which layers of a model have a sliding window, and what a layer takes in the mean where some have none: the
// layer of a profile is the mean of the model's.
#pragma once

#include <cstdint>

#include "worker/profile/measured_passes.h"
#include "worker/profile/measured_shapes.h"
#include "worker/profile/measured_shares.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct WindowedLayers {
  // Tokens; 0: no layer has one. The first layer has it where any has.
  int64_t window = 0;
  int64_t windowed = 0;
  int64_t layers = 1;
  // The number of a layer that has none, where some have.
  int64_t without_window = 0;

  bool differ() const { return windowed > 0 && windowed < layers; }
  // Figures of the first layer.
  ShapeWindows first() const { return {.window = windowed > 0 ? window : 0}; }
};

WindowedLayers WindowedLayersOf(const ModelConfig& config);

// Of passes of a layer with a window and of one without, on the same shapes, of which the larger ones may be
// missing.
MeasuredPasses MeanOfLayers(const MeasuredPasses& windowed, const MeasuredPasses& without,
                            const WindowedLayers& layers);

// Likewise of shares, in one order.
LayerPoints MeanOfPoints(const LayerPoints& windowed, const LayerPoints& without,
                         const WindowedLayers& layers);

}  // namespace penstock::worker
