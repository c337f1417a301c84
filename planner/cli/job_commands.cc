// `penstock drain` and `penstock delete`: how a job ends.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/printable_text.h"

namespace penstock::cli {
namespace {

struct JobFlags {
  PlannerFlags planner;
  std::string job;
  bool force = false;
};

absl::Status Drain(const JobFlags& flags) {
  v1::DrainJobRequest request;
  request.set_job_id(flags.job);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  const auto response = client->DrainJob(request);
  if (!response.ok()) return AnnotateError(response.status(), absl::StrCat("--job ", flags.job));
  PrintOut(absl::StrCat(
      flags.job, ": ",
      absl::AsciiStrToLower(absl::StripPrefix(v1::JobState_Name(response->state()), "JOB_STATE_")), "\n"));
  return absl::OkStatus();
}

absl::Status Delete(const JobFlags& flags) {
  v1::DeleteJobRequest request;
  request.set_job_id(flags.job);
  request.set_force(flags.force);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  const absl::Status status = client->DeleteJob(request).status();
  if (!status.ok()) return AnnotateError(status, absl::StrCat("--job ", flags.job));
  PrintOut(absl::StrCat(flags.job, ": deleted\n"));
  return absl::OkStatus();
}

std::shared_ptr<JobFlags> AddFlags(CLI::App* command) {
  auto flags = std::make_shared<JobFlags>();
  flags->planner.AddTo(*command, kPlannerHelp)->required();
  command->add_option("--job", flags->job, "The job")->required();
  return flags;
}

}  // namespace

void AddJobCommands(CommandSet& commands) {
  CLI::App* drain = commands.Add({.name = "drain",
                                  .purpose = "Lets a job finish what it has taken, and take no more",
                                  .examples = "penstock drain --planner localhost:7070 --job mix"});
  commands.OnRun(drain, [flags = AddFlags(drain)] { return Drain(*flags); });
  CLI::App* remove = commands.Add({.name = "delete",
                                   .purpose = "Has a planner forget a job and all that belongs to it",
                                   .examples = "penstock delete --planner localhost:7070 --job mix"});
  const std::shared_ptr<JobFlags> flags = AddFlags(remove);
  remove->add_flag("--force", flags->force, "Even while workers are there: they end");
  commands.OnRun(remove, [flags] { return Delete(*flags); });
}

}  // namespace penstock::cli
