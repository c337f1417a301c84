// `penstock restore`: a store for a planner, from a backup.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/files/scratch_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/store/store_commands.h"
#include "planner/cli/text_table.h"
#include "planner/service/state/job_state.h"
#include "planner/service/store/sqlite/sqlite_event_store.h"

namespace penstock::cli {
namespace {

struct RestoreFlags {
  std::string from;
  std::string to;
};

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The last event of a job: workers may have gone on since the backup.
JobChange Restored(const StoredJob& job) {
  store::v1::Event event;
  event.set_unix_ns(absl::ToUnixNanos(absl::Now()));
  event.mutable_job_restored();
  return {.job = job.job,
          .first_sequence = job.first_sequence + job.events.size(),
          .events = {event.SerializeAsString()}};
}

// Opens it as a planner does, and reads every job: what is damaged is found now, and not when it is needed.
absl::StatusOr<std::vector<JobState>> TakeUp(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<SqliteEventStore> store, SqliteEventStore::Open(path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredJob> stored, store->Load());
  std::vector<JobState> jobs;
  std::vector<JobChange> changes;
  for (const StoredJob& one : stored) {
    std::optional<std::string> snapshot;
    if (one.snapshot.has_value()) snapshot = one.snapshot->bytes;
    absl::StatusOr<JobState> job = ReplayJob(snapshot, one.events);
    if (!job.ok()) return AnnotateError(job.status(), absl::StrCat("job '", one.job_id, "'"));
    jobs.push_back(*std::move(job));
    changes.push_back(Restored(one));
  }
  PENSTOCK_RETURN_IF_ERROR(store->Commit(changes));
  return jobs;
}

std::string JobTable(const std::vector<JobState>& jobs) {
  TextTable table({"job", "submitted", "planned", "completed", "finished"});
  for (const JobState& job : jobs) {
    table.AddRow({job.spec().job_id(), absl::StrCat(job.admission().next_iteration()),
                  absl::StrCat(job.planned()), absl::StrCat(job.progress().completed()),
                  job.finished() ? "yes" : "no"});
  }
  return table.ToString();
}

absl::Status RunRestore(const RestoreFlags& flags) {
  absl::string_view path_text = flags.to;
  if (!absl::ConsumePrefix(&path_text, "sqlite:") || path_text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--to ", flags.to, ": use sqlite:PATH, as the planner's --store (PostgreSQL has tools of its own)"));
  }
  const std::string path(path_text);
  for (const char* beside : {"", "-wal"}) {
    if (!Exists(path + beside)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--to: '", path, beside, "' is there: end its planner and move the store away first"));
  }
  // In which the store is made, and which is gone afterwards whatever happens.
  const absl::StatusOr<ScratchFolder> workplace = ScratchFolder::MakeBeside(absl::StrCat(path, ".restoring"));
  if (!workplace.ok())
    return absl::UnavailableError(
        absl::StrCat("--to: no folder can be made beside '", path, "': ", workplace.status().message()));
  const std::string made = absl::StrCat(workplace->path(), "/store");
  std::error_code failed;
  std::filesystem::copy_file(flags.from, made, failed);
  if (failed)
    return absl::UnavailableError(
        absl::StrCat("--from ", flags.from, ": cannot be copied: ", failed.message()));
  const absl::StatusOr<std::vector<JobState>> jobs = TakeUp(made);
  if (!jobs.ok()) return AnnotateError(jobs.status(), absl::StrCat("--from ", flags.from));
  PENSTOCK_RETURN_IF_ERROR(SyncFile(made));
  if (std::rename(made.c_str(), path.c_str()) != 0)
    return absl::UnavailableError(absl::StrCat("--to: '", path, "': ", std::strerror(errno)));
  PrintOut(absl::StrCat(path, ": ", jobs->size(), jobs->size() == 1 ? " job\n" : " jobs\n"));
  if (!jobs->empty()) PrintOut(absl::StrCat("\n", JobTable(*jobs)));
  return absl::OkStatus();
}

}  // namespace

void AddRestoreCommand(CommandSet& commands) {
  auto flags = std::make_shared<RestoreFlags>();
  CLI::App* command =
      commands.Add({.name = "restore",
                    .purpose = "Makes a store of a backup, checks all of it, and says what it holds",
                    .examples = "penstock restore --from planner.backup --to sqlite:planner.db"});
  command->add_option("--from", flags->from, "The backup")->required()->check(CLI::ExistingFile);
  command->add_option("--to", flags->to, "sqlite:PATH, the planner's --store; nothing may be there")
      ->required();
  commands.OnRun(command, [flags] { return RunRestore(*flags); });
}

}  // namespace penstock::cli
