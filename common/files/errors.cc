#include "common/files/errors.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace penstock {

absl::Status FileError(const std::string& path, absl::string_view doing, int error) {
  const std::string message = absl::StrCat(doing, " '", path, "': ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
    case EISDIR:
    case ELOOP:
    case ENOTEMPTY:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace penstock
