// A rank's part of a checkpoint, as whoever writes and checks checkpoints knows it: bytes that need not fit
// into memory.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_manifest.h"

namespace penstock {

// Writes a part to a path whose folder is there, flushes it to disk, and says what was written. Nothing stays
// at the path after an error.
using PartWriter = std::function<absl::StatusOr<CheckpointPart>(const std::string& path)>;

// The part at the path, read piece by piece. Possible errors: NOT_FOUND, PERMISSION_DENIED,
// UNAVAILABLE; all name the path.
absl::StatusOr<CheckpointPart> ReadPart(const std::string& path);

}  // namespace penstock
