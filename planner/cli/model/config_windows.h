// Sliding windows of config.json: which layers have one, and how long it is. Private to this folder.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"
#include "planner/cli/model/config_fields.h"

namespace penstock::cli {

// What a missing sliding_window is in most classes of transformers; null is none.
inline constexpr uint32_t kUsualWindow = 4096;

// 0: none. `usual`: of a field that is missing.
uint32_t ReadWindow(ConfigFields& fields, uint32_t usual);

// Sets the window of the layers that `layer_types` names, or of all but every `interval`-th where there is no
// such list; 0: of all.
void SetWindows(ConfigFields& fields, uint32_t window, uint32_t interval, v1::ModelSpec& model);

// Of a Qwen: only with `use_sliding_window`, and without a list in layers from the max_window_layers-th on.
void ReadQwenWindows(ConfigFields& fields, v1::ModelSpec& model);

// Of a SmolLM3, the positions of which are known: without a list in layers that have no positions.
void ReadSmolLm3Windows(ConfigFields& fields, v1::ModelSpec& model);

}  // namespace penstock::cli
