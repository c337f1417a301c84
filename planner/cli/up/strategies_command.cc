// `penstock strategies`: on which strategies a job's iterations run, and on which its next ones are to.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/active_strategies.h"
#include "planner/cli/advise/measured_run.h"
#include "planner/cli/commands.h"
#include "planner/cli/plan_request.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/text_table.h"
#include "planner/cli/up/run_record.h"

namespace penstock::cli {
namespace {

// Whose lengths the new strategies are compared with, as those of `advise`.
constexpr uint64_t kTypicalBatches = 4;

struct StrategiesFlags {
  PlannerFlags planner;
  std::string job;
  std::string run_dir;
  std::string set;
  bool json = false;
};

absl::Status CheckSource(const StrategiesFlags& flags) {
  const bool of_planner = !flags.job.empty() || !flags.planner.address.empty();
  if (!flags.run_dir.empty() && of_planner)
    return absl::InvalidArgumentError(
        "--run-dir names a run with its planner: leave --planner and --job out");
  if (!flags.run_dir.empty() || (!flags.job.empty() && !flags.planner.address.empty()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--planner and --job say whose strategies; or --run-dir, of a run of penstock up on this machine");
}

// The address of the planner that a run on this machine has started.
absl::StatusOr<std::string> PlannerOfRun(const std::string& run_dir) {
  const std::string file = absl::StrCat(run_dir, "/logs/planner.ports.json");
  const absl::StatusOr<std::string> text = ReadFile(file);
  const nlohmann::json ports =
      nlohmann::json::parse(text.ok() ? *text : "", nullptr, /*allow_exceptions=*/false);
  if (!ports.is_object() || !ports.contains("planner_port") || !ports["planner_port"].is_number_unsigned()) {
    return absl::NotFoundError(
        absl::StrCat("--run-dir: '", file, "' does not say where the run's planner is; is it running?"));
  }
  return absl::StrCat("127.0.0.1:", ports["planner_port"].get<uint64_t>());
}

// Of a run: its job, and its planner with the flags that it was started with.
absl::Status TakeRun(StrategiesFlags& flags) {
  if (flags.run_dir.empty()) return absl::OkStatus();
  const absl::StatusOr<RunRecord> record = ReadRunRecord(flags.run_dir);
  if (!record.ok()) return AnnotateError(record.status(), "--run-dir");
  flags.job = record->job.job_id();
  const auto given = [&](const char* flag) {
    const auto found = record->flags.find(flag);
    return found == record->flags.end() || found->second.empty() ? "" : found->second.back();
  };
  flags.planner.address = given("--planner");
  if (flags.planner.address.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(flags.planner.address, PlannerOfRun(flags.run_dir));
    return absl::OkStatus();
  }
  ClientSecurity& security = flags.planner.security;
  for (const auto& [flag, value] :
       {std::pair("--tls-ca", &security.authority), std::pair("--tls-cert", &security.certificate),
        std::pair("--tls-key", &security.key), std::pair("--token-file", &security.token)})
    if (value->empty()) *value = given(flag);
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> SpecOf(PlannerClient& client, const std::string& job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse response, client.GetJob(request));
  return std::move(*response.mutable_job());
}

// Those that the job has had are there by their numbers, those that hold are marked.
std::string StrategiesTextOf(const v1::JobSpec& job, const ActiveStrategies& active) {
  TextTable table({"strategy", "meshes", "planned on"});
  for (int i = 0; i < job.strategies_size(); ++i) {
    const bool holds = std::ranges::count(active.numbers, static_cast<uint32_t>(i)) > 0;
    table.AddRow({absl::StrCat(i), StrategyName(job.strategies(i)), holds ? "yes" : ""});
  }
  return absl::StrCat("job ", job.job_id(), ", since iteration ", active.from_iteration, ":\n",
                      table.ToString());
}

nlohmann::ordered_json StrategiesJsonOf(const v1::JobSpec& job, const ActiveStrategies& active) {
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const v1::Strategy& strategy : job.strategies()) names.push_back(StrategyName(strategy));
  return {{"job", job.job_id()},
          {"strategies", names},
          {"active", active.numbers},
          {"from_iteration", active.from_iteration}};
}

void PrintStrategies(const StrategiesFlags& flags, const v1::JobSpec& job, const ActiveStrategies& active) {
  PrintOut(flags.json ? StrategiesJsonOf(job, active).dump() + "\n" : StrategiesTextOf(job, active));
}

// A planner of an earlier version has no such method.
absl::Status Explain(const StrategiesFlags& flags, const absl::Status& status) {
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "--planner ", flags.planner.address,
        ": it is of an earlier version, which changes no strategies: upgrade it, or start the run again with "
        "them (penstock up --resume --strategies)"));
  }
  return AnnotateError(status, absl::StrCat("--job ", flags.job));
}

absl::Status Show(const StrategiesFlags& flags, PlannerClient& client) {
  const absl::StatusOr<v1::JobSpec> job = SpecOf(client, flags.job);
  if (!job.ok()) return Explain(flags, job.status());
  if (job->strategies().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--job ", flags.job, ": it has one mesh and no strategies"));
  }
  v1::ChangeStrategiesRequest question;
  question.set_job_id(flags.job);
  if (const absl::Status asked = client.ChangeStrategies(question).status(); !asked.ok())
    return Explain(flags, asked);
  const std::optional<ActiveStrategies> active = AskForStrategies(client, *job);
  if (!active.has_value())
    return absl::UnavailableError(absl::StrCat("--job ", flags.job, ": changes just now; ask again"));
  PrintStrategies(flags, *job, *active);
  return absl::OkStatus();
}

// The lengths that it trains on now are those that its strategies are for from now on; those that were given
// before, where none of its iterations is done.
void AddTypicalSamples(PlannerClient& client, v1::JobSpec job, v1::ChangeStrategiesRequest* request) {
  const absl::StatusOr<MeasuredRun> run = MeasuredRunOf(client, job.job_id(), kTypicalBatches);
  if (!run.ok()) return;
  SetTypicalSamples(run->batches, &job);
  *request->mutable_typical_samples() = job.planning().typical_samples();
  request->set_typical_batch_size(job.planning().typical_batch_size());
}

absl::Status Set(const StrategiesFlags& flags, PlannerClient& client) {
  v1::ChangeStrategiesRequest request;
  request.set_job_id(flags.job);
  absl::StatusOr<std::vector<v1::Strategy>> wanted = ReadStrategies(flags.set);
  if (!wanted.ok()) {
    return absl::Status(wanted.status().code(),
                        absl::StrReplaceAll(wanted.status().message(), {{"--strategies", "--set"}}));
  }
  request.mutable_strategies()->Assign(wanted->begin(), wanted->end());
  const absl::StatusOr<v1::JobSpec> before = SpecOf(client, flags.job);
  if (!before.ok()) return Explain(flags, before.status());
  AddTypicalSamples(client, *before, &request);
  const absl::StatusOr<v1::ChangeStrategiesResponse> changed = client.ChangeStrategies(request);
  if (!changed.ok()) return Explain(flags, changed.status());
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobSpec job, SpecOf(client, flags.job));
  PrintStrategies(flags, job,
                  {.numbers = {changed->strategies().begin(), changed->strategies().end()},
                   .strategies = *std::move(wanted),
                   .from_iteration = changed->from_iteration()});
  return absl::OkStatus();
}

absl::Status RunStrategies(StrategiesFlags flags) {
  PENSTOCK_RETURN_IF_ERROR(CheckSource(flags));
  PENSTOCK_RETURN_IF_ERROR(TakeRun(flags));
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerClient> client, flags.planner.ImpatientClient());
  return flags.set.empty() ? Show(flags, *client) : Set(flags, *client);
}

}  // namespace

void AddStrategiesCommand(CommandSet& commands) {
  auto flags = std::make_shared<StrategiesFlags>();
  CLI::App* command = commands.Add(
      {.name = "strategies",
       .purpose = "Shows which strategies a job's iterations run on, or has its next ones run on others",
       .examples = "penstock strategies --run-dir penstock-runs/mix\n"
                   "penstock strategies --run-dir penstock-runs/mix --set 'pp 2 x dp 4; dp 2 x cp 4'\n"
                   "penstock strategies --planner localhost:7070 --job mix --set pool.txt"});
  flags->planner.AddTo(*command, kPlannerHelp);
  command->add_option("--job", flags->job, "The job");
  command->add_option("--run-dir", flags->run_dir,
                      "In place of --planner and --job: the folder of a run of penstock up on this machine");
  command
      ->add_option("--set", flags->set,
                   "From the first iteration without a plan on, each runs on the fastest of these, without "
                   "starting workers again: as --strategies of up, or a file with one a line")
      ->check([](const std::string& given) {
        return std::string(given.empty() ? "is empty; leave it out, or name a strategy" : "");
      });
  command->add_flag("--json", flags->json, "Print JSON");
  commands.OnRun(command, [flags] { return RunStrategies(*flags); });
}

}  // namespace penstock::cli
