// Parts of checkpoints that are not tensors.
#pragma once

#include <string>
#include <utility>

#include "common/checkpoint/checkpoint_part.h"
#include "common/files/folder_changes.h"
#include "common/hash/crc32.h"
#include "common/status/status_macros.h"

namespace penstock {

// `changes` must outlive it.
inline PartWriter PartOf(std::string contents, FolderChanges& changes = RealFolderChanges()) {
  return
      [contents = std::move(contents), &changes](const std::string& path) -> absl::StatusOr<CheckpointPart> {
        PENSTOCK_RETURN_IF_ERROR(changes.Write(path, contents));
        return CheckpointPart{.bytes = contents.size(), .crc32 = Crc32(contents)};
      };
}

}  // namespace penstock
