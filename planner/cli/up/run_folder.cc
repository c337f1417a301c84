#include "planner/cli/up/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/up/checkpoints.h"
#include "planner/cli/up/log_rotation.h"

namespace penstock::cli {
namespace {

constexpr const char* kPlannerStore = "planner.db";

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

// Where the run that is resumed goes on. `record` gets what is kept of the one before.
absl::StatusOr<uint64_t> Resume(const RunFolderOptions& options, const std::string& checkpoints,
                                RunRecord& record) {
  PENSTOCK_ASSIGN_OR_RETURN(const RunRecord before, ReadRunRecord(options.path));
  PENSTOCK_RETURN_IF_ERROR(CheckSameRun(before, record, options.allowed_changes, options.path));
  record.auto_tune = before.auto_tune;
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest,
                            CheckpointToResume(checkpoints, options.kept_checkpoints, options.say));
  if (newest.has_value()) return newest->manifest.next_iteration;
  return absl::NotFoundError(absl::StrCat("--resume: no checkpoint in '", checkpoints, "'"));
}

// Where nobody has asked to begin anew, nothing that somebody may miss is removed.
absl::Status CheckHoldsNone(const std::string& run_dir, const std::string& checkpoints) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint64_t> there, ListCheckpoints(checkpoints));
  if (!there.empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("--run-dir '", run_dir, "' holds ", CheckpointPath(checkpoints, there.front()),
                     ": use --resume to go on, --fresh to begin anew, or another folder"));
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints, ignored)) {
    if (entry.path().extension() != kSetAside) continue;
    return absl::AlreadyExistsError(
        absl::StrCat("--run-dir '", run_dir, "' holds ", entry.path().string(),
                     ", a damaged checkpoint, and no other: use --fresh to begin anew, or another folder"));
  }
  return absl::OkStatus();
}

absl::Status BeginAnew(const RunFolderOptions& options, const std::string& checkpoints) {
  if (!options.fresh) PENSTOCK_RETURN_IF_ERROR(CheckHoldsNone(options.path, checkpoints));
  RemoveOld(checkpoints, "iteration-", "");
  for (const char* name : {"measured.json", "costs.json"}) RemoveOld(options.path, name, name);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunFolder> PrepareRunFolder(const RunFolderOptions& options, RunRecord record) {
  PENSTOCK_ASSIGN_OR_RETURN(FileDescriptor lock, Lock(options.path));
  RunFolder folder{.path = options.path,
                   .logs = absl::StrCat(options.path, "/logs"),
                   .checkpoints = absl::StrCat(options.path, "/checkpoints"),
                   .planner_store = absl::StrCat(options.path, "/", kPlannerStore),
                   .first_iteration = 0,
                   .lock = std::move(lock)};
  if (options.resume) {
    PENSTOCK_ASSIGN_OR_RETURN(folder.first_iteration, Resume(options, folder.checkpoints, record));
  } else {
    PENSTOCK_RETURN_IF_ERROR(BeginAnew(options, folder.checkpoints));
  }
  RemoveOld(folder.logs, "", ".log");
  for (int number = 1; number <= LogRotationOptions().files; ++number)
    RemoveOld(folder.logs, "", absl::StrCat(".log.", number));
  // Of a run that is over: what counts of it is in its checkpoints.
  RemoveOld(options.path, kPlannerStore, "");
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(folder.logs));
  PENSTOCK_RETURN_IF_ERROR(MakeFolder(folder.checkpoints));
  PENSTOCK_RETURN_IF_ERROR(WriteModel(options.path, record.job.model()));
  PENSTOCK_RETURN_IF_ERROR(WriteRunRecord(options.path, record));
  return folder;
}

}  // namespace penstock::cli
