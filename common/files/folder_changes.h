// Changes of folders that must survive a power failure in the order in which they were made: an interface, so
// that the order can be tested.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// All name the path in their errors: PERMISSION_DENIED, NOT_FOUND, RESOURCE_EXHAUSTED (the disk is full),
// UNAVAILABLE.
class FolderChanges {
 public:
  virtual ~FolderChanges() = default;
  // WriteFileAtomically: the file is on the disk, and its name.
  virtual absl::Status Write(const std::string& path, absl::string_view contents) = 0;
  // With all missing ones above it.
  virtual absl::Status Make(const std::string& folder) = 0;
  // What was made, renamed and removed in the folder is on the disk.
  virtual absl::Status Sync(const std::string& folder) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // With all that is in it; what is not there is removed.
  virtual absl::Status Remove(const std::string& path) = 0;
};

// Those of the file system.
FolderChanges& RealFolderChanges();

}  // namespace penstock
