// Which layers of a model have a sliding window.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"
#include "planner/core/model/attention_windows.h"

namespace penstock::core {

inline AttentionWindows WindowsOf(const v1::ModelSpec& model) {
  if (model.attention_window() == 0) return {};
  const int64_t layers = model.layers();
  const int64_t interval = model.windowless_interval();
  const int64_t by_turns = interval == 0 ? 0 : layers / interval;
  return {.window = model.attention_window(),
          .windowed_layers = layers - by_turns - model.windowless_layers_size(),
          .layers = layers};
}

}  // namespace penstock::core
