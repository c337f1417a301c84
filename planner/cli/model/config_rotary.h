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
  // "longrope" alone, which may be called "su".
  bool like_phi3 = false;
  // The part of a head that turns where it is not said; 0: all of it, and nothing else is known.
  double usual_part = 0;
};

// Of layers without a window and of those with one.
struct WindowRotaryRules {
  double theta = kRotaryTheta;
  double window_theta = kRotaryTheta;
  // What the second was called before transformers 5; null: it had no field, and was always this one.
  const char* old_window_field = nullptr;
};
inline constexpr WindowRotaryRules kGemma3Rotary = {1000000, 10000, "rope_local_base_freq"};
inline constexpr WindowRotaryRules kOlmo3Rotary = {500000, 500000, nullptr};

// Wants the model's heads, widths and longest sequence.
void ReadRotary(ConfigFields& fields, const RotaryRules& rules, v1::ModelSpec& model);

// The same where layers with a window turn by a theta of their own, without a scaling.
void ReadRotaryOfWindows(ConfigFields& fields, const WindowRotaryRules& rules, v1::ModelSpec& model);

}  // namespace penstock::cli
