// Which checkpoints a run has written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::cli {

struct CheckpointFolder {
  std::string path;
  // The iteration to go on with.
  uint64_t next_iteration = 0;
};

// The newest complete checkpoint ("iteration-N", with a manifest) below `checkpoint_dir`, if there is one.
// Workers rename a checkpoint to that name only when all ranks have written their part.
std::optional<CheckpointFolder> NewestCheckpoint(const std::string& checkpoint_dir);

}  // namespace penstock::cli
