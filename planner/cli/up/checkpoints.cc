#include "planner/cli/up/checkpoints.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/folder_changes.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::StatusOr<std::optional<Checkpoint>> LastCheckpoint(const std::string& directory) {
  return NewestCheckpoint(directory, CheckpointDepth::kSizes, nullptr);
}

void CompleteLeftCheckpoints(const std::string& directory, size_t keep, const SayToUser& say) {
  for (const uint64_t iteration : PartialCheckpoints(directory)) {
    if (!CompleteCheckpoint(directory, iteration, keep, RealFolderChanges()).ok()) continue;
    say(absl::StrCat("checkpoint ", CheckpointPath(directory, iteration),
                     ": a worker ended before it was complete; all parts are there, it is completed"));
  }
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointToResume(const std::string& directory, size_t keep,
                                                             const SayToUser& say) {
  CompleteLeftCheckpoints(directory, keep, say);
  std::vector<std::string> damaged;
  PENSTOCK_ASSIGN_OR_RETURN(
      std::optional<Checkpoint> newest,
      NewestCheckpoint(directory, CheckpointDepth::kContents,
                       [&](const std::string& path, const absl::Status& why) {
                         damaged.push_back(path);
                         say(absl::StrCat("checkpoint ", path, " cannot be used: ", why.message()));
                       }));
  for (const std::string& path : damaged) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string aside, SetDamagedAside(path, RealFolderChanges()));
    say(absl::StrCat("checkpoint ", path, " is kept as ", aside, "; going on from the one before it, ",
                     newest->path));
  }
  return newest;
}

}  // namespace penstock::cli
