// What a checkpoint says of itself: its manifest.json, and before there is one, the record that each rank
// leaves beside its part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// A file as it was written.
struct CheckpointPart {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
  bool operator==(const CheckpointPart&) const = default;
};

struct CheckpointManifest {
  // That wrote it.
  std::string job_id = {};
  // The iteration that training continues with.
  uint64_t next_iteration = 0;
  // Ranks, each with a part; those of one pipeline and how many replicas of it.
  uint32_t ranks = 0;
  uint32_t pipeline = 0;
  uint32_t data = 0;
  // By rank; empty in a manifest of format 1, which did not have them.
  std::vector<CheckpointPart> parts = {};
};

std::string PrintManifest(const CheckpointManifest& manifest);
// Possible errors: INVALID_ARGUMENT, saying what was expected.
absl::StatusOr<CheckpointManifest> ParseManifest(absl::string_view text);

// A rank's record: its part, and what the checkpoint will be of.
struct PartRecord {
  CheckpointPart part;
  CheckpointManifest of;
  // Set where the part is of a rescue (common/checkpoint/rescue.h): the epoch that had failed.
  std::optional<uint64_t> rescued_from = {};
};
std::string PrintRecord(const PartRecord& record);
// Possible errors: INVALID_ARGUMENT, saying what was expected.
absl::StatusOr<PartRecord> ParseRecord(absl::string_view text);

}  // namespace penstock
