// `penstock drain` and `penstock delete`: how a job ends.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/grpc/targets.h"
#include "common/status/annotate.h"
#include "planner/cli/commands.h"
#include "planner/client/planner_client.h"

namespace penstock::cli {
namespace {

struct JobFlags {
  std::string planner;
  std::string job;
  bool force = false;
};

absl::Status Drain(const JobFlags& flags) {
  v1::DrainJobRequest request;
  request.set_job_id(flags.job);
  const auto response = PlannerClient(flags.planner).DrainJob(request);
  if (!response.ok()) return AnnotateError(response.status(), absl::StrCat("--job ", flags.job));
  std::cout << flags.job << ": "
            << absl::AsciiStrToLower(absl::StripPrefix(v1::JobState_Name(response->state()), "JOB_STATE_"))
            << "\n";
  return absl::OkStatus();
}

absl::Status Delete(const JobFlags& flags) {
  v1::DeleteJobRequest request;
  request.set_job_id(flags.job);
  request.set_force(flags.force);
  const absl::Status status = PlannerClient(flags.planner).DeleteJob(request).status();
  if (!status.ok()) return AnnotateError(status, absl::StrCat("--job ", flags.job));
  std::cout << flags.job << ": deleted\n";
  return absl::OkStatus();
}

std::shared_ptr<JobFlags> AddFlags(CLI::App* command) {
  auto flags = std::make_shared<JobFlags>();
  command
      ->add_option("--planner", flags->planner,
                   "host:port of the planner; of all that share a store: a:7070,b:7070")
      ->check(WhatIsWrongWithAddresses)
      ->required();
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
