// `penstock status`, `penstock jobs` and `penstock workers`: what a planner is doing.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/job_details.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/text_table.h"

namespace penstock::cli {
namespace {

struct StatusFlags {
  PlannerFlags planner;
  std::string job;
  bool json = false;
};

// "running" for JOB_STATE_RUNNING.
std::string StateName(v1::JobState state) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

// The jobs that --job asks for: that one, or all.
struct WantedJobs {
  std::vector<v1::JobStatus> jobs;
  // Of their owners.
  std::vector<v1::QuotaUse> quotas;
  // Of a planner that does not lead.
  std::optional<StandbyWords> standby;
};

absl::StatusOr<WantedJobs> ListWantedJobs(const StatusFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  WantedJobs wanted;
  client->TakeStandbys([&wanted](const StandbyWords& words) { wanted.standby = words; });
  const absl::StatusOr<v1::ListJobsResponse> response = client->ListJobs();
  if (!response.ok())
    return AnnotateError(response.status(), absl::StrCat("--planner ", flags.planner.address));
  for (const v1::JobStatus& job : response->jobs()) {
    if (flags.job.empty() || job.job_id() == flags.job) wanted.jobs.push_back(job);
  }
  std::set<std::string> owners;
  for (const v1::JobStatus& job : wanted.jobs) owners.insert(job.owner());
  for (const v1::QuotaUse& quota : response->quotas())
    if (owners.contains(quota.owner())) wanted.quotas.push_back(quota);
  if (wanted.jobs.empty() && !flags.job.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--job ", flags.job, ": the planner has no such job (see penstock jobs)"));
  }
  return wanted;
}

using DetailsByJob = std::map<std::string, JobDetails>;

// Of a job; nothing where the planner no longer has it, or does not tell.
std::optional<JobDetails> AskForDetails(PlannerClient& client, const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  const absl::StatusOr<v1::GetJobResponse> response = client.GetJob(request);
  if (!response.ok()) return std::nullopt;
  JobDetails details = DetailsOf(*response);
  details.active = AskForStrategies(client, response->job());
  return details;
}

// Of each job; what could not be had is missing.
absl::StatusOr<DetailsByJob> AskForDetails(const StatusFlags& flags, const std::vector<v1::JobStatus>& jobs) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  client->TakeStandbys([](const StandbyWords&) {});
  DetailsByJob details;
  for (const v1::JobStatus& job : jobs) {
    if (std::optional<JobDetails> of_job = AskForDetails(*client, job.job_id()))
      details[job.job_id()] = *std::move(of_job);
  }
  return details;
}

// "as a standby says that read the store 0.4 s ago; 'planner-a:7070' leads"
std::string StandbyText(const StandbyWords& words) {
  return absl::StrCat(
      "as a standby says that read the store ", absl::StrFormat("%.1f", absl::ToDoubleSeconds(words.age)),
      " s ago; ",
      words.leader.empty() ? "nobody is known to lead" : absl::StrCat("'", words.leader, "' leads"));
}

nlohmann::ordered_json StandbyJson(const std::optional<StandbyWords>& words) {
  if (!words.has_value()) return nullptr;
  return {{"leader", words->leader}, {"age_ms", absl::ToInt64Milliseconds(words->age)}};
}

// `heard`: the planner hears the workers, which a standby does not.
nlohmann::ordered_json WorkerJson(const v1::JobStatus& job, const v1::WorkerStatus& worker, bool heard) {
  return {{"job", job.job_id()},
          {"rank", worker.rank()},
          {"host", worker.host()},
          {"incarnation", worker.incarnation()},
          {"heartbeat_age_ms", heard ? nlohmann::ordered_json(worker.heartbeat_age_ms()) : nullptr},
          {"last_iteration", worker.last_iteration()},
          {"slow_factor", worker.slow_factor() > 0 ? worker.slow_factor() : 1}};
}

nlohmann::ordered_json ExpertLoadsJson(const v1::JobStatus& job) {
  nlohmann::ordered_json loads = nlohmann::ordered_json::array();
  for (const v1::ExpertLoad& load : job.expert_loads())
    loads.push_back({{"expert_ranks", load.ranks()}, {"fullest", load.fullest()}});
  return loads;
}

nlohmann::ordered_json SlowLinksJson(const v1::JobStatus& job) {
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  for (const v1::SlowLink& link : job.slow_links())
    links.push_back({{"from", link.from()}, {"to", link.to()}, {"factor", link.factor()}});
  return links;
}

nlohmann::ordered_json CausesJson(const v1::JobStatus& job) {
  nlohmann::ordered_json causes = nlohmann::ordered_json::array();
  for (const v1::DiagnosedCause& cause : job.diagnosis().causes()) {
    causes.push_back({{"cause", cause.cause()},
                      {"gain", cause.gain()},
                      {"ranks", std::vector<uint32_t>(cause.ranks().begin(), cause.ranks().end())},
                      {"description", cause.description()},
                      {"advice", cause.advice()}});
  }
  return causes;
}

// Before costs were fitted there are no errors.
nlohmann::ordered_json CostsJson(const v1::JobStatus& job) {
  nlohmann::ordered_json json = {
      {"version", job.costs_version()}, {"error_before", nullptr}, {"error_after", nullptr}};
  if (!job.has_costs_errors()) return json;
  json["error_before"] = job.costs_errors().before();
  json["error_after"] = job.costs_errors().after();
  return json;
}

nlohmann::ordered_json JobJson(const v1::JobStatus& job) {
  return {{"job", job.job_id()},
          {"owner", job.owner()},
          {"state", StateName(job.state())},
          {"failure", job.failure()},
          {"store_failure", job.store_failure()},
          {"epoch", job.epoch()},
          {"submitted", job.next_iteration()},
          {"planned", job.planned_iteration()},
          {"completed", job.completed_iteration()},
          {"workers", job.workers_size()},
          {"costs", CostsJson(job)},
          {"expert_loads", ExpertLoadsJson(job)},
          {"slow_links", SlowLinksJson(job)},
          {"causes", CausesJson(job)},
          {"length_drift", job.has_length_drift() ? nlohmann::ordered_json(job.length_drift()) : nullptr}};
}

std::string JobTable(const std::vector<v1::JobStatus>& jobs) {
  TextTable table({"job", "owner", "state", "submitted", "planned", "completed", "workers"});
  for (const v1::JobStatus& job : jobs) {
    table.AddRow({job.job_id(), job.owner(), StateName(job.state()), absl::StrCat(job.next_iteration()),
                  absl::StrCat(job.planned_iteration()), absl::StrCat(job.completed_iteration()),
                  absl::StrCat(job.workers_size())});
  }
  return table.ToString();
}

std::string WorkerTable(const WantedJobs& wanted) {
  TextTable table({"job", "rank", "host", "heartbeat ms ago", "last iteration", "slow"});
  for (const v1::JobStatus& job : wanted.jobs) {
    for (const v1::WorkerStatus& worker : job.workers()) {
      table.AddRow({job.job_id(), absl::StrCat(worker.rank()), worker.host(),
                    wanted.standby.has_value() ? "-" : absl::StrCat(worker.heartbeat_age_ms()),
                    absl::StrCat(worker.last_iteration()),
                    worker.slow_factor() > 0 ? absl::StrFormat("%.2f x", worker.slow_factor()) : ""});
    }
  }
  return table.ToString();
}

// How much a quota has left is what people look for: the used part, of what is allowed.
std::string QuotaTable(const std::vector<v1::QuotaUse>& quotas) {
  TextTable table({"owner", "quota", "used", "of"});
  for (const v1::QuotaUse& quota : quotas) {
    table.AddRow({quota.owner(), quota.quota(), absl::StrFormat("%.4g", quota.used()),
                  quota.allowed() > 0 ? absl::StrFormat("%.6g", quota.allowed()) : "no limit"});
  }
  return table.ToString();
}

nlohmann::ordered_json QuotasJson(const std::vector<v1::QuotaUse>& quotas) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const v1::QuotaUse& quota : quotas) {
    rows.push_back({{"owner", quota.owner()},
                    {"quota", quota.quota()},
                    {"used", quota.used()},
                    {"allowed", quota.allowed() > 0 ? nlohmann::ordered_json(quota.allowed()) : nullptr}});
  }
  return rows;
}

// In ASCII, so that a terminal takes no character of it for a command.
void PrintJson(const nlohmann::ordered_json& json) {
  PrintOut(json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace) +
           "\n");
}

// Of lists, whose JSON has no room for it.
void PrintStandby(const StatusFlags& flags, const WantedJobs& wanted) {
  if (!wanted.standby.has_value()) return;
  const std::string text = absl::StrCat(StandbyText(*wanted.standby), "\n");
  if (flags.json) {
    std::fputs(PrintableText(text).c_str(), stderr);
  } else {
    PrintOut(text);
  }
}

absl::Status RunJobs(const StatusFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const WantedJobs wanted, ListWantedJobs(flags));
  PrintStandby(flags, wanted);
  if (flags.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const v1::JobStatus& job : wanted.jobs) rows.push_back(JobJson(job));
    PrintJson(rows);
  } else {
    PrintOut(JobTable(wanted.jobs));
  }
  return absl::OkStatus();
}

nlohmann::ordered_json WorkersJson(const WantedJobs& wanted, const v1::JobStatus& job) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const v1::WorkerStatus& worker : job.workers())
    rows.push_back(WorkerJson(job, worker, !wanted.standby.has_value()));
  return rows;
}

absl::Status RunWorkers(const StatusFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const WantedJobs wanted, ListWantedJobs(flags));
  PrintStandby(flags, wanted);
  if (flags.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const v1::JobStatus& job : wanted.jobs)
      for (nlohmann::ordered_json& row : WorkersJson(wanted, job)) rows.push_back(std::move(row));
    PrintJson(rows);
  } else {
    PrintOut(WorkerTable(wanted));
  }
  return absl::OkStatus();
}

// How many ranks of each job do what.
std::string MeshTable(const std::vector<v1::JobStatus>& jobs, const DetailsByJob& details) {
  TextTable table({"job", "mesh", "ranks"});
  for (const v1::JobStatus& job : jobs) {
    const auto found = details.find(job.job_id());
    if (found == details.end()) continue;
    table.AddRow({job.job_id(), MeshesText(found->second), absl::StrCat(RankCount(found->second))});
  }
  return table.ToString();
}

std::string LossesTexts(const std::vector<v1::JobStatus>& jobs, const DetailsByJob& details) {
  std::string text;
  for (const v1::JobStatus& job : jobs) {
    const auto found = details.find(job.job_id());
    if (found != details.end()) text += LossesText(job.job_id(), found->second);
  }
  return text;
}

// "experts of job mix: of 4 ranks that divide them the fullest has 1.75 times its share of rows".
std::string ExpertLoadsText(const std::vector<v1::JobStatus>& jobs) {
  std::string text;
  for (const v1::JobStatus& job : jobs)
    for (const v1::ExpertLoad& load : job.expert_loads())
      absl::StrAppendFormat(
          &text,
          "\nexperts of job %s: of %d ranks that divide them the fullest has %.2f times its share of rows\n",
          job.job_id(), load.ranks(), load.fullest());
  return text;
}

// "costs of job mix: version 3, fitted: off by 12.1 % before and 2.3 % after"; nothing of costs that were
// not.
std::string CostsText(const std::vector<v1::JobStatus>& jobs) {
  std::string text;
  for (const v1::JobStatus& job : jobs) {
    if (!job.has_costs_errors()) continue;
    absl::StrAppendFormat(&text,
                          "\ncosts of job %s: version %d, fitted: off by %.1f %% before and %.1f %% after\n",
                          job.job_id(), job.costs_version(), 100 * job.costs_errors().before(),
                          100 * job.costs_errors().after());
  }
  return text;
}

// "links of job mix: from rank 1 to rank 2 transfers take 20.00 times as long as others".
std::string SlowLinksText(const std::vector<v1::JobStatus>& jobs) {
  std::string text;
  for (const v1::JobStatus& job : jobs)
    for (const v1::SlowLink& link : job.slow_links())
      absl::StrAppendFormat(
          &text, "\nlinks of job %s: from rank %d to rank %d transfers take %.2f times as long as others\n",
          job.job_id(), link.from(), link.to(), link.factor());
  return text;
}

// Below it a cause is looked at when somebody asks.
constexpr double kGainWorthNaming = 0.05;

// "causes in job mix: rank 5 ... computes 1.30 times as long ...: mending it would save 14%; penstock ..."
std::string CausesText(const std::vector<v1::JobStatus>& jobs) {
  std::string text;
  for (const v1::JobStatus& job : jobs) {
    for (const v1::DiagnosedCause& cause : job.diagnosis().causes()) {
      if (cause.gain() < kGainWorthNaming) continue;
      absl::StrAppendFormat(&text,
                            "\njob %s: %s: mending it would save %.0f%% (penstock diagnose --job %s)\n",
                            job.job_id(), cause.description(), 100 * cause.gain(), job.job_id());
    }
  }
  return text;
}

// What is worth asking for others, by far more than batches of one distribution differ.
constexpr double kDrifted = 0.25;

// "lengths of job mix: 31% of the tokens are in samples of other lengths than those that ...".
std::string DriftText(const std::vector<v1::JobStatus>& jobs) {
  std::string text;
  for (const v1::JobStatus& job : jobs) {
    if (job.length_drift() < kDrifted) continue;
    absl::StrAppendFormat(
        &text,
        "\nlengths of job %s: %.0f%% of the tokens are in samples of other lengths than those that "
        "its stages and strategies were chosen for; what others would gain: penstock advise --job "
        "%s, or with --strategies 4\n",
        job.job_id(), 100 * job.length_drift(), job.job_id());
  }
  return text;
}

absl::Status RunStatus(const StatusFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const WantedJobs wanted, ListWantedJobs(flags));
  const std::vector<v1::JobStatus>& jobs = wanted.jobs;
  PENSTOCK_ASSIGN_OR_RETURN(const DetailsByJob details, AskForDetails(flags, jobs));
  if (flags.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const v1::JobStatus& job : jobs) {
      nlohmann::ordered_json row = JobJson(job);
      const auto found = details.find(job.job_id());
      row.update(ToJson(found != details.end() ? std::optional(found->second) : std::nullopt));
      row["workers"] = WorkersJson(wanted, job);
      rows.push_back(row);
    }
    PrintJson({{"planner", flags.planner.address},
               {"standby", StandbyJson(wanted.standby)},
               {"jobs", rows},
               {"quotas", QuotasJson(wanted.quotas)}});
    return absl::OkStatus();
  }
  const std::string count = absl::StrCat(jobs.size(), jobs.size() == 1 ? " job" : " jobs");
  PrintOut(wanted.standby.has_value()
               ? absl::StrCat("planner ", flags.planner.address, " serves no job; ", count, ", ",
                              StandbyText(*wanted.standby), "\n")
               : absl::StrCat("planner ", flags.planner.address, " serves ", count, "\n"));
  if (jobs.empty()) return absl::OkStatus();
  PrintOut(absl::StrCat("\n", JobTable(jobs), "\n", MeshTable(jobs, details), LossesTexts(jobs, details),
                        CostsText(jobs), ExpertLoadsText(jobs), SlowLinksText(jobs), CausesText(jobs),
                        DriftText(jobs), "\n", WorkerTable(wanted)));
  if (!wanted.quotas.empty()) PrintOut(absl::StrCat("\n", QuotaTable(wanted.quotas)));
  // Of the planner: the same for all its jobs.
  if (const std::string& failure = jobs.front().store_failure(); !failure.empty())
    PrintOut(absl::StrCat("\nstore: ", failure, "\n"));
  for (const v1::JobStatus& job : jobs) {
    if (!job.failure().empty()) PrintOut(absl::StrCat("\n", job.job_id(), ": ", job.failure(), "\n"));
  }
  return absl::OkStatus();
}

void AddOne(CommandSet& commands, const CommandText& text, absl::Status (*run)(const StatusFlags&)) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command = commands.Add(text);
  flags->planner.AddTo(*command, kPlannerHelp)->required();
  command->add_option("--job", flags->job, "Only this job");
  command->add_flag("--json", flags->json, "Print JSON");
  commands.OnRun(command, [flags, run] { return run(*flags); });
}

}  // namespace

void AddStatusCommands(CommandSet& commands) {
  AddOne(commands,
         {.name = "status",
          .purpose = "Shows what a planner is doing: its jobs, their workers and what failed",
          .examples = "penstock status --planner localhost:7070"},
         RunStatus);
  AddOne(commands,
         {.name = "jobs",
          .purpose = "Lists the jobs of a planner",
          .examples = "penstock jobs --planner localhost:7070 --json"},
         RunJobs);
  AddOne(commands,
         {.name = "workers",
          .purpose = "Lists the workers of a planner's jobs, with the age of their heartbeat",
          .examples = "penstock workers --planner localhost:7070 --job mix"},
         RunWorkers);
}

}  // namespace penstock::cli
