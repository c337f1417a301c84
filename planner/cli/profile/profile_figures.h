// What a cost profile says, in figures that people compare: what passes of a layer take and keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ProfileFigures {
  // Of one sample each; of a T5 on both sides.
  std::vector<uint32_t> lengths;

  struct Row {
    // "layer, forward, ms"
    std::string what;
    // For each of `lengths`; nothing where the profile does not say.
    std::vector<std::optional<double>> values;
  };
  std::vector<Row> rows = {};
};

// Lengths from 64 tokens on, each four times the one before, up to the longest that the model takes. Possible
// errors: those of core::ProfileFromProto.
absl::StatusOr<ProfileFigures> FiguresOf(const v1::ProfileFile& file);
// The same for lengths that are given.
absl::StatusOr<ProfileFigures> FiguresOf(const v1::ProfileFile& file, const std::vector<uint32_t>& lengths);

}  // namespace penstock::cli
