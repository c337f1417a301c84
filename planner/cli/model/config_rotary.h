// Rotary positions of config.json: rope_theta, rope_scaling, rope_parameters and what stands beside them.
// Private to this folder.
#pragma once

#include <string>

#include "penstock/v1/job.pb.h"
#include "planner/cli/model/config_fields.h"

namespace penstock::cli {

// Defaults are those of the configuration classes of transformers 5.
inline constexpr double kRotaryTheta = 10000;

struct RotaryRules {
  double theta = kRotaryTheta;
  // Whether a part of a head may turn alone, and "longrope" be called "su" (Phi-3).
  bool like_phi3 = false;
};

// Wants the model's heads, widths and longest sequence.
void ReadRotary(ConfigFields& fields, const RotaryRules& rules, v1::ModelSpec& model);

// The same where layers with a window turn by another theta (Gemma 3), which becomes the model's.
void ReadRotaryOfWindows(ConfigFields& fields, v1::ModelSpec& model);

}  // namespace penstock::cli
