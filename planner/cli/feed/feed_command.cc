// `penstock feed`: flags.
#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/names/job_id.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/feed/run_feed.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/recorded_flags.h"
#include "planner/cli/up/up_flags.h"

namespace penstock::cli {
namespace {

void AddFeedFlags(CLI::App& command, FeedOptions& feed) {
  feed.job.planner.AddTo(command, kPlannerHelp)->required();
  command.add_option("--job-id", feed.job.job_id, "Name of the job, the same when it is started again");
  command.add_option("--job-file", feed.job_file,
                     "The job as a penstock.v1.JobSpec in JSON, in place of --job-id and of the flags below "
                     "for mesh, planning, model and training");
  command.add_option("--threads", feed.job.threads,
                     "Threads of each worker, with which a cost profile is measured");
  command.add_option("--planner-timeout", feed.planner_timeout_s, "Seconds that the planner may be away")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

// A flag that would have no effect is a misunderstanding.
absl::Status CheckFlagsFitJobFile(const CLI::App& command) {
  static const auto* kept = new std::set<std::string>{"--job-file",
                                                      "--planner-timeout",
                                                      "--planner",
                                                      "--tls-ca",
                                                      "--tls-cert",
                                                      "--tls-key",
                                                      "--token-file",
                                                      "--tls-server-name",
                                                      "--dataset",
                                                      "--mix",
                                                      "--lengths",
                                                      "--rows",
                                                      "--global-batch",
                                                      "--max-length",
                                                      "--max-input",
                                                      "--max-target",
                                                      "--cut",
                                                      "--device",
                                                      "--validation",
                                                      "--validate-every",
                                                      "--validation-samples",
                                                      "--help"};
  for (const auto& [flag, values] : GivenFlags(command)) {
    if (kept->contains(flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": the job is that of --job-file; leave it out"));
  }
  return absl::OkStatus();
}

absl::Status CheckValidationFlags(const CLI::App& command, const UpOptions& job) {
  if (job.validation.empty()) {
    for (const char* flag : {"--validate-every", "--validation-samples"}) {
      if (command.get_option(flag)->count() > 0)
        return absl::InvalidArgumentError(absl::StrCat(flag, " is for --validation: give both or neither"));
    }
    return absl::OkStatus();
  }
  if (IsSimulated(job))
    return absl::InvalidArgumentError("--validation: simulated devices train nothing; leave it out");
  if (job.validate_every == 0) {
    return absl::InvalidArgumentError(
        "--validation: give --validate-every, too, after how many iterations the ranks find its loss");
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const CLI::App& command, FeedOptions& feed) {
  if (feed.job.device.gpus.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", feed.job.device.name, ": penstock feed starts no workers: use cuda, or ",
                     "cuda:N for the GPU of this machine that a cost profile is measured on"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckDataIsGivenOnce(command));
  PENSTOCK_RETURN_IF_ERROR(CheckValidationFlags(command, feed.job));
  if (!feed.job_file.empty()) return CheckFlagsFitJobFile(command);
  if (feed.job.job_id.empty()) {
    return absl::InvalidArgumentError(
        "--job-id is required: a feeder that is started again finds its job by it");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("--job-id", feed.job.job_id));
  return ReadJobFlags(command, feed.job);
}

}  // namespace

void AddFeedCommand(CommandSet& commands) {
  auto feed = std::make_shared<FeedOptions>();
  CLI::App* command = commands.Add(
      {.name = "feed",
       .purpose = "Registers a job and submits its batches to a planner; started again, it goes on with them",
       .examples = "penstock feed --planner planner:7070 --job-id mix --pp 2 --dp 2 --dataset data/mix "
                   "--global-batch 64 --iterations 300\n"
                   "penstock feed --planner planner:7070 --job-file job.json --dataset data/mix "
                   "--global-batch 64 --max-length 2048"});
  command->option_defaults()->take_last();
  AddFeedFlags(*command, *feed);
  AddJobFlags(*command, feed->job);
  AddValidationFlags(*command, "nothing does", feed->job);
  commands.OnRun(command, [feed, command] {
    PENSTOCK_RETURN_IF_ERROR(CheckFlags(*command, *feed));
    return RunFeed(*feed);
  });
}

}  // namespace penstock::cli
