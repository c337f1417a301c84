#include "planner/core/contract/check_rotary.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

std::string Field(absl::string_view name) { return absl::StrCat("job.model.rotary.", name); }

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }

absl::Status CheckPositive(absl::string_view name, double value) {
  if (IsPositive(value)) return absl::OkStatus();
  return Wrong(Field(name), absl::StrCat(value, "; must be finite and above 0"));
}

absl::Status CheckLlama3(const v1::RotaryPosition& rotary) {
  const double low = rotary.low_frequency_factor();
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("low_frequency_factor", low));
  const double high = rotary.high_frequency_factor();
  if (std::isfinite(high) && high > low) return absl::OkStatus();
  return Wrong(Field("high_frequency_factor"),
               absl::StrCat(high, "; must be finite and above low_frequency_factor, ", low));
}

absl::Status CheckYarn(const v1::RotaryPosition& rotary) {
  PENSTOCK_RETURN_IF_ERROR(CheckPositive("beta_slow", rotary.beta_slow()));
  const double fast = rotary.beta_fast();
  if (std::isfinite(fast) && fast > rotary.beta_slow()) return absl::OkStatus();
  return Wrong(Field("beta_fast"),
               absl::StrCat(fast, "; must be finite and above beta_slow, ", rotary.beta_slow()));
}

absl::Status CheckFactors(absl::string_view name, const google::protobuf::RepeatedField<double>& factors,
                          uint32_t pairs) {
  if (static_cast<uint32_t>(factors.size()) != pairs) {
    return Wrong(Field(name),
                 absl::StrCat(factors.size(), " of them; must be one for each pair that turns, ", pairs));
  }
  for (const double factor : factors) PENSTOCK_RETURN_IF_ERROR(CheckPositive(name, factor));
  return absl::OkStatus();
}

// What only some scalings have.
struct Parts {
  bool llama3 = false;
  bool yarn = false;
  bool long_rope = false;
};

absl::Status CheckNoOthers(const v1::RotaryPosition& rotary, const Parts& has) {
  const auto wrong = [](absl::string_view name, absl::string_view scalings) {
    return Wrong(Field(name), absl::StrCat("is of the ", scalings, " scaling; leave 0"));
  };
  if (!has.llama3 && rotary.low_frequency_factor() != 0) return wrong("low_frequency_factor", "LLAMA3");
  if (!has.llama3 && rotary.high_frequency_factor() != 0) return wrong("high_frequency_factor", "LLAMA3");
  if (!has.llama3 && !has.yarn && !has.long_rope && rotary.original_max_sequence_length() != 0)
    return wrong("original_max_sequence_length", "LLAMA3, YARN or LONGROPE");
  if (!has.yarn && rotary.beta_fast() != 0) return wrong("beta_fast", "YARN");
  if (!has.yarn && rotary.beta_slow() != 0) return wrong("beta_slow", "YARN");
  if (!has.yarn && rotary.truncated()) return wrong("truncated", "YARN");
  if (!has.yarn && !has.long_rope && rotary.attention_factor() != 0)
    return wrong("attention_factor", "YARN or LONGROPE");
  if (!has.long_rope && !rotary.short_factors().empty()) return wrong("short_factors", "LONGROPE");
  if (!has.long_rope && !rotary.long_factors().empty()) return wrong("long_factors", "LONGROPE");
  return absl::OkStatus();
}

absl::Status CheckOriginalLength(const v1::RotaryPosition& rotary) {
  const uint32_t original = rotary.original_max_sequence_length();
  if (original > 0 && original <= kMostSequenceLength) return absl::OkStatus();
  return Wrong(Field("original_max_sequence_length"),
               absl::StrCat(original, "; use 1 to ", kMostSequenceLength));
}

absl::Status CheckScaling(const v1::RotaryPosition& rotary, uint32_t width) {
  const Parts has = {.llama3 = rotary.scaling() == v1::ROTARY_SCALING_LLAMA3,
                     .yarn = rotary.scaling() == v1::ROTARY_SCALING_YARN,
                     .long_rope = rotary.scaling() == v1::ROTARY_SCALING_LONGROPE};
  const double factor = rotary.factor();
  if (rotary.scaling() == v1::ROTARY_SCALING_UNSPECIFIED) {
    if (factor != 0) return Wrong(Field("factor"), "without a scaling; leave 0");
  } else if (!std::isfinite(factor) || factor < 1) {
    return Wrong(Field("factor"), absl::StrCat(factor, "; must be finite and at least 1"));
  }
  if (has.llama3) PENSTOCK_RETURN_IF_ERROR(CheckLlama3(rotary));
  if (has.yarn) PENSTOCK_RETURN_IF_ERROR(CheckYarn(rotary));
  if (has.yarn || has.long_rope)
    PENSTOCK_RETURN_IF_ERROR(CheckPositive("attention_factor", rotary.attention_factor()));
  if (has.long_rope) {
    PENSTOCK_RETURN_IF_ERROR(CheckFactors("short_factors", rotary.short_factors(), width / 2));
    PENSTOCK_RETURN_IF_ERROR(CheckFactors("long_factors", rotary.long_factors(), width / 2));
  }
  if (has.llama3 || has.yarn || has.long_rope) PENSTOCK_RETURN_IF_ERROR(CheckOriginalLength(rotary));
  return CheckNoOthers(rotary, has);
}

}  // namespace

absl::Status CheckRotary(const v1::RotaryPosition& rotary, uint32_t head_width) {
  const double theta = rotary.theta();
  if (theta != 0 && (!std::isfinite(theta) || theta < 1))
    return Wrong(Field("theta"), absl::StrCat(theta, "; must be finite and at least 1"));
  if (!v1::RotaryScaling_IsValid(rotary.scaling()))
    return Wrong(Field("scaling"), "is unknown; use LINEAR, LLAMA3, YARN or LONGROPE, or leave it");
  const uint32_t width = rotary.width() > 0 ? rotary.width() : head_width;
  if (width % 2 != 0 || width > head_width) {
    return Wrong(Field("width"),
                 absl::StrCat(width, "; use an even number up to the width of a head, ", head_width));
  }
  return CheckScaling(rotary, width);
}

}  // namespace penstock::core
