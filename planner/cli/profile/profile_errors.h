// How well a cost profile foretells passes that it was not fitted to.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/held_out/held_out_times.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// Of |foretold - measured| / measured.
struct ErrorDistribution {
  // "all", "forward", "dX", "padded", "128 to 511 tokens".
  std::string of;
  size_t passes = 0;
  double median = 0;
  double percentile_95 = 0;
  double worst = 0;
  // Sum of |foretold - measured| / sum of what was measured: long passes count more.
  double of_time = 0;
  // Of foretold / measured - 1: above 0 where the profile takes passes for longer than they are.
  double median_bias = 0;
};

struct ForetoldPass {
  HeldOutPass pass;
  double foretold_ns = 0;

  double error() const { return foretold_ns / pass.duration_ns - 1; }
};

struct ProfileErrors {
  // "all" first, then by kind of pass, part, layout, recompute and size; those that have passes.
  std::vector<ErrorDistribution> distributions;
  ForetoldPass worst;
  // Shapes that the profile says nothing about, because it has tables and no closed form.
  size_t outside = 0;
  std::string disturbance;
};

// Possible errors: those of core::ProfileFromProto; FAILED_PRECONDITION (no pass is inside of the profile).
absl::StatusOr<ProfileErrors> ErrorsOf(const v1::ProfileFile& file, const HeldOutTimes& times);

// "layer, backward with full recompute, packed, 12 samples, 1,503 tokens".
std::string Describe(const HeldOutPass& pass);

std::string ToText(const ProfileErrors& errors);
nlohmann::ordered_json ToJson(const ProfileErrors& errors);

}  // namespace penstock::cli
