#include "planner/cli/up/tensorboard_events.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

// TensorBoard knows such files by "tfevents" in their names.
constexpr absl::string_view kBeginning = "events.out.tfevents.";
constexpr absl::string_view kEnd = ".penstock";

// Of our files in the folder, by the seconds in their names.
std::map<int64_t, fs::path> FilesIn(const std::string& folder) {
  std::map<int64_t, fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    absl::string_view seconds = name;
    int64_t number = 0;
    if (absl::ConsumePrefix(&seconds, kBeginning) && absl::ConsumeSuffix(&seconds, kEnd) &&
        absl::SimpleAtoi(seconds, &number))
      files[number] = entry.path();
  }
  return files;
}

absl::Status EventsError(absl::string_view what, const std::string& path, const std::error_code& error) {
  return absl::PermissionDeniedError(absl::StrCat(what, " '", path, "': ", error.message()));
}

absl::Status RemoveAll(const std::map<int64_t, fs::path>& files) {
  for (const auto& [seconds, path] : files) {
    std::error_code error;
    fs::remove(path, error);
    if (error) return EventsError("removing", path.string(), error);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TensorboardEvents> TensorboardEvents::Open(const std::string& folder, uint64_t first_step,
                                                          Clock clock) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return EventsError("making folder", folder, error);
  std::map<int64_t, fs::path> earlier = FilesIn(folder);
  if (first_step == 0) {
    PENSTOCK_RETURN_IF_ERROR(RemoveAll(earlier));
    earlier.clear();
  }
  // Behind the others, whatever the clock says.
  int64_t seconds = absl::ToUnixSeconds(clock());
  if (!earlier.empty()) seconds = std::max(seconds, earlier.rbegin()->first + 1);
  const std::string path = absl::StrFormat("%s/%s%010d%s", folder, kBeginning, seconds, kEnd);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return absl::PermissionDeniedError(absl::StrCat("cannot write '", path, "'"));
  TensorboardEvents events(path, std::move(file), std::move(clock));
  PENSTOCK_RETURN_IF_ERROR(events.Write(VersionEvent(events.clock_())));
  PENSTOCK_RETURN_IF_ERROR(events.GoBackTo(first_step));
  return events;
}

absl::Status TensorboardEvents::Add(uint64_t step, const std::vector<Scalar>& scalars) {
  return Write(ScalarsEvent(clock_(), step, scalars));
}

absl::Status TensorboardEvents::GoBackTo(uint64_t step) { return Write(StartEvent(clock_(), step)); }

absl::Status TensorboardEvents::Write(const std::string& event) {
  file_ << RecordOf(event) << std::flush;
  if (file_) return absl::OkStatus();
  file_.clear();
  return absl::UnavailableError(absl::StrCat("cannot write '", path_, "'"));
}

}  // namespace penstock::cli
