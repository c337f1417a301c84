// A folder that is gone, with all in it, when this object is.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace penstock {

class ScratchFolder {
 public:
  // At `path`, made by whoever writes to it.
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  // A new one among the machine's temporary files, with `name` in its own. Possible errors: those of the
  // operating system, naming the folder.
  static absl::StatusOr<ScratchFolder> Make(const std::string& name);
  // The same, beside `path`, whose name its own begins with.
  static absl::StatusOr<ScratchFolder> MakeBeside(const std::string& path);

  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  // Empty: moved away.
  std::string path_;
};

}  // namespace penstock
