#include "planner/cli/import_progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

constexpr absl::Duration kShortImport = absl::Seconds(3);
constexpr const char* kClearedLine = "\r\x1b[K";

std::string WithSamples(const ImportProgress& progress) {
  const double share =
      progress.bytes == 0
          ? 0
          : std::floor(100 * static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes));
  return absl::StrCat(std::min(share, 100.0), " % of ",
                      WithThousands(static_cast<double>(progress.bytes) / kBytesPerMegabyte), " MB (file ",
                      std::min(progress.files_done + 1, progress.files), " of ", progress.files, "), ",
                      WithThousands(static_cast<double>(progress.samples)), " samples");
}

absl::Duration SinceStart() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

}  // namespace

std::optional<std::string> ImportProgressLines::Next(const ImportProgress& progress, absl::Duration now) {
  if (!first_.has_value()) {
    first_ = First{.time = now, .bytes = progress.bytes_done};
    last_ = now;
  }
  const absl::Duration passed = now - first_->time;
  if (passed < kShortImport || now - last_ < every_) return std::nullopt;
  last_ = now;
  std::string line = WithSamples(progress);
  if (progress.bytes_done <= first_->bytes) return line;
  const double rate =
      static_cast<double>(progress.bytes_done - first_->bytes) / absl::ToDoubleSeconds(passed);
  absl::StrAppendFormat(&line, ", %.3g MB/s", rate / kBytesPerMegabyte);
  const uint64_t left = progress.bytes - std::min(progress.bytes, progress.bytes_done);
  absl::StrAppend(&line, ", ", TimeLeft(absl::Seconds(static_cast<double>(left) / rate)), " left");
  return line;
}

std::string TimeLeft(absl::Duration time) {
  const int64_t seconds = absl::ToInt64Seconds(time + absl::Milliseconds(500));
  if (seconds < 100) return absl::StrCat(seconds, " s");
  const int64_t minutes = (seconds + 30) / 60;
  if (minutes < 100) return absl::StrCat(minutes, " min");
  return absl::StrCat(minutes / 60, " h ", minutes % 60, " min");
}

ImportProgressPrinter::ImportProgressPrinter()
    : on_terminal_(isatty(STDERR_FILENO) != 0), lines_(absl::Seconds(on_terminal_ ? 1 : 30)) {}

ImportProgressPrinter::~ImportProgressPrinter() {
  if (on_terminal_ && shown_) std::cerr << kClearedLine << std::flush;
}

void ImportProgressPrinter::Show(const ImportProgress& progress) {
  const std::optional<std::string> line = lines_.Next(progress, SinceStart());
  if (!line.has_value()) return;
  shown_ = true;
  if (on_terminal_)
    std::cerr << kClearedLine << *line << std::flush;
  else
    std::cerr << *line << "\n";
}

}  // namespace penstock::cli
