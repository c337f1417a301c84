#include "planner/cli/up/run_folder.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <sys/file.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/up/checkpoints.h"

namespace penstock::cli {
namespace {

constexpr const char* kPlannerStore = "planner.db";

std::string RunFile(const std::string& path) { return absl::StrCat(path, "/run.json"); }

absl::Status WriteRunFile(const std::string& path, v1::JobSpec job) {
  job.clear_profile();
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  const auto printed = google::protobuf::util::MessageToJsonString(job, &json, options);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return WriteFileAtomically(RunFile(path), json);
}

// What may not change between the parts of a run: the model, and the seed that its values and sample order
// come from.
absl::Status CheckSameTraining(const std::string& path, const v1::JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string json, ReadFile(RunFile(path)));
  v1::JobSpec before;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json, &before);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat(RunFile(path), ": ", parsed.ToString()));
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  if (!differencer.Compare(before.model(), job.model())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: the run in '", path, "' has another model: ", difference));
  }
  if (before.training().seed() != job.training().seed()) {
    return absl::InvalidArgumentError(absl::StrCat("--seed ", job.training().seed(), ": the run in '", path,
                                                   "' was started with ", before.training().seed()));
  }
  return absl::OkStatus();
}

// Removes what earlier runs left, by name: the user's folder may hold other things.
void RemoveOld(const std::string& folder, absl::string_view prefix, absl::string_view extension) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, prefix) && absl::EndsWith(name, extension)) {
      std::filesystem::remove_all(entry.path(), ignored);
    }
  }
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("--run-dir: making folder '", path, "': ", error.message()));
}

// A lock that goes away with the process, whatever its end.
absl::StatusOr<FileDescriptor> Lock(const std::string& path) {
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(path));
  const std::string file = absl::StrCat(path, "/lock");
  FileDescriptor lock(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.get() < 0)
    return absl::PermissionDeniedError(absl::StrCat("--run-dir: cannot write '", file, "'"));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("--run-dir '", path, "' is in use by another run"));
  }
  return lock;
}

}  // namespace

absl::StatusOr<RunFolder> PrepareRunFolder(const RunFolderOptions& options, const v1::JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(FileDescriptor lock, Lock(options.path));
  RunFolder folder{.path = options.path,
                   .logs = absl::StrCat(options.path, "/logs"),
                   .checkpoints = absl::StrCat(options.path, "/checkpoints"),
                   .planner_store = absl::StrCat(options.path, "/", kPlannerStore),
                   .first_iteration = 0,
                   .lock = std::move(lock)};
  const std::optional<CheckpointFolder> newest = NewestCheckpoint(folder.checkpoints);
  if (options.resume) {
    if (!newest.has_value()) {
      return absl::NotFoundError(absl::StrCat("--resume: no checkpoint in '", folder.checkpoints, "'"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckSameTraining(options.path, job));
    folder.first_iteration = newest->next_iteration;
  } else if (newest.has_value() && !options.fresh) {
    return absl::AlreadyExistsError(
        absl::StrCat("--run-dir '", options.path, "' holds ", newest->path,
                     ": use --resume to go on, --fresh to begin anew, or another folder"));
  } else {
    RemoveOld(folder.checkpoints, "iteration-", "");
  }
  RemoveOld(folder.logs, "", ".log");
  // Of a run that is over: what counts of it is in its checkpoints.
  RemoveOld(options.path, kPlannerStore, "");
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(folder.logs));
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(folder.checkpoints));
  PENSTOCK_RETURN_IF_ERROR(WriteRunFile(options.path, job));
  return folder;
}

}  // namespace penstock::cli
