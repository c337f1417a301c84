// Which layers have a window, as config.json says it.
#pragma once

#include <nlohmann/json.hpp>

#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// "sliding_attention" or "full_attention" for each layer.
nlohmann::ordered_json LayerTypes(const v1::ModelSpec& model);

// Tokens, or null.
nlohmann::ordered_json WindowOrNull(const v1::ModelSpec& model);

// As Qwens and those like them have them.
void AddQwenWindows(const v1::ModelSpec& model, nlohmann::ordered_json& config);

}  // namespace penstock::cli
