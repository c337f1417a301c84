#include "common/grpc/library_log.h"

#include <grpc/support/log.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/sync/sync.h"

namespace penstock {
namespace {

constexpr uint64_t kMostLines = 20;
constexpr absl::Duration kWindow = absl::Seconds(10);
// An error tells of its causes at any length.
constexpr size_t kLongestMessage = 500;

LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      return LogLevel::kWarning;
  }
  return LogLevel::kWarning;
}

std::optional<uint64_t> Admit() {
  static auto& mutex = *new Mutex;
  static auto& limit = *new LineLimit(kMostLines, kWindow);
  MutexLock lock(&mutex);
  return limit.Take(absl::Now());
}

void OnLine(gpr_log_func_args* line) {
  const std::optional<uint64_t> left_out = Admit();
  if (!left_out.has_value()) return;
  absl::string_view file(line->file);
  if (const size_t slash = file.rfind('/'); slash != absl::string_view::npos) file.remove_prefix(slash + 1);
  Log(LevelOf(line->severity), "grpc says",
      {{"what", absl::string_view(line->message).substr(0, kLongestMessage)},
       {"where", absl::StrCat(file, ":", line->line)},
       {"left_out_before", *left_out}});
}

}  // namespace

std::optional<uint64_t> LineLimit::Take(absl::Time now) {
  if (now >= window_end_) {
    window_end_ = now + window_;
    taken_ = 0;
  }
  if (taken_ >= most_) {
    ++left_out_;
    return std::nullopt;
  }
  ++taken_;
  return std::exchange(left_out_, 0);
}

void LogWhatGrpcSays() {
  // What GRPC_VERBOSITY asks for, errors by default.
  gpr_log_verbosity_init();
  gpr_set_log_function(OnLine);
}

}  // namespace penstock
