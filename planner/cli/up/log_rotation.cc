#include "planner/cli/up/log_rotation.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace penstock::cli {

namespace fs = std::filesystem;

void LogRotation::Look(absl::Time now) {
  if (now < next_) return;
  next_ = now + options_.every;
  std::error_code error;
  for (fs::directory_iterator file(folder_, error), end; !error && file != end; file.increment(error)) {
    std::error_code gone;
    if (file->path().extension() == ".log" && file->file_size(gone) > options_.most_bytes && !gone)
      Rotate(file->path().string());
  }
}

void LogRotation::Rotate(const std::string& log) const {
  std::error_code error;
  for (int number = options_.files - 1; number >= 1; --number)
    fs::rename(absl::StrCat(log, ".", number), absl::StrCat(log, ".", number + 1), error);
  fs::copy_file(log, absl::StrCat(log, ".1"), fs::copy_options::overwrite_existing, error);
  if (!error) fs::resize_file(log, 0, error);
}

}  // namespace penstock::cli
