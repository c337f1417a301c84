// What `penstock up` does with the checkpoints of its run. What they are: common/checkpoint.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_folder.h"

namespace penstock::cli {

// Tells the user.
using SayToUser = std::function<void(const std::string&)>;

// The newest complete checkpoint that is sound as far as can be seen without reading it all; nullopt: there
// is none at all. Possible errors: those of NewestCheckpoint. Then it is not known that there is none:
// nothing is to be begun anew.
absl::StatusOr<std::optional<Checkpoint>> LastCheckpoint(const std::string& directory);

// Completes checkpoints whose parts are all there and whose writers ended before they could do it; `keep` as
// for CompleteCheckpoint. While no worker runs.
void CompleteLeftCheckpoints(const std::string& directory, size_t keep, const SayToUser& say);

// The checkpoint that a run goes on from: the newest one, every byte of which is as it was written; nullopt:
// there is none. Those that are damaged are set aside, and the user is told. While no worker runs.
// Possible errors: DATA_LOSS (all are damaged), those of the file system.
absl::StatusOr<std::optional<Checkpoint>> CheckpointToResume(const std::string& directory, size_t keep,
                                                             const SayToUser& say);

}  // namespace penstock::cli
