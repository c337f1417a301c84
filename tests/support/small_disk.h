// A disk of a test's own, of a few pages, that can be full or read-only. It is a tmpfs in a mount namespace
// of this process: nobody else sees it, and it is gone with the process.
//
//   TemporaryFolder folder;
//   auto disk = SmallDisk::Mount(folder.path(), 1 << 20);
//   if (!disk.ok()) GTEST_SKIP() << disk.status();
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace penstock {

class SmallDisk {
 public:
  // Over a folder that exists. UNAVAILABLE where this process may not mount (it takes root).
  static absl::StatusOr<std::unique_ptr<SmallDisk>> Mount(const std::string& path, size_t bytes) {
    if (unshare(CLONE_NEWNS) != 0) return Error("a mount namespace cannot be made");
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return Error("mounts cannot be private");
    if (mount("penstock-test", path.c_str(), "tmpfs", 0, absl::StrCat("size=", bytes).c_str()) != 0) {
      return Error("a tmpfs cannot be mounted");
    }
    return std::unique_ptr<SmallDisk>(new SmallDisk(path));
  }
  ~SmallDisk() { umount2(path_.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  absl::Status SetReadOnly(bool read_only) {
    const unsigned long flags = MS_REMOUNT | (read_only ? MS_RDONLY : 0);
    if (mount(nullptr, path_.c_str(), nullptr, flags, nullptr) != 0) return Error("cannot be mounted again");
    return absl::OkStatus();
  }

  // A file takes all the room that is left.
  void Fill() {
    std::ofstream filler(Filler(), std::ios::binary);
    const std::string page(4096, 'x');
    while (filler.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {
    }
  }
  void MakeRoom() { std::filesystem::remove(Filler()); }

 private:
  explicit SmallDisk(const std::string& path) : path_(path) {}
  std::string Filler() const { return path_ + "/filler"; }
  static absl::Status Error(const std::string& what) {
    return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
  }

  const std::string path_;
};

}  // namespace penstock
