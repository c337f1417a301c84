#include "common/dataset/import_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/partial_file.h"
#include "common/dataset/system_error.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr mode_t kNewLock = 0644;

// Whether the open file is still the one of that name: who had the lock before removes it.
bool IsThere(const FileDescriptor& file, const std::string& path) {
  struct stat opened = {}, named = {};
  return fstat(file.get(), &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

absl::StatusOr<ImportLock> ImportLock::Take(const std::string& prefix) {
  PENSTOCK_RETURN_IF_ERROR(MakeFolderOf(prefix));
  const std::string path = absl::StrCat(prefix, ".import.lock");
  for (;;) {
    FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kNewLock));
    if (file.get() < 0) return SystemError("create", path);
    const bool locked = flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK) {
      return absl::AlreadyExistsError(absl::StrCat("another import is writing '", prefix,
                                                   "': wait until it has ended, or write to another path"));
    }
    if (IsThere(file, path)) return ImportLock(path, std::move(file));
  }
}

ImportLock::~ImportLock() {
  if (file_.get() >= 0) unlink(path_.c_str());
}

}  // namespace penstock
