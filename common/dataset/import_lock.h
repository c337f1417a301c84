// One import at a time for a dataset: two that write the same files would mix them.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"

namespace penstock {

// PREFIX.import.lock, locked (flock(2)) until this is gone, and removed then. A process that ends otherwise
// leaves the file, and no lock.
class ImportLock {
 public:
  // Missing folders are made. Where the file system has no locks, it is taken at the user's word. Possible
  // errors: ALREADY_EXISTS (another import has it), and those of the file system; all name the path.
  static absl::StatusOr<ImportLock> Take(const std::string& prefix);

  ImportLock(ImportLock&&) noexcept = default;
  ~ImportLock();

 private:
  ImportLock(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  FileDescriptor file_;
};

}  // namespace penstock
