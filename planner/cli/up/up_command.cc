// `penstock up`: flags.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/dataset/named_datasets.h"
#include "common/grpc/targets.h"
#include "common/mesh/mesh_ranks.h"
#include "common/names/job_id.h"
#include "common/simulation/clock_error.h"
#include "common/simulation/simulation_flags.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/tracing/otlp_transport.h"
#include "planner/cli/commands.h"
#include "planner/cli/recorded_flags.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/up/run_record.h"
#include "planner/cli/up/run_up.h"
#include "planner/cli/up/up_flags.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {
namespace {

void AddRunFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--run-dir", up.run_dir,
                     "Folder of this run: logs and checkpoints (default: penstock-runs/JOB)");
  command.add_option("--job-id", up.job_id, "Name of the job (default: the dataset's name and the time)");
  command.add_flag("--resume", up.resume,
                   "Go on from the newest checkpoint in --run-dir (default: the newest run), with the flags "
                   "that the run was started with; those that are given as well take their place");
  command
      .add_option("--allow-change", up.allowed_changes,
                  absl::StrCat("With --resume: what may differ from before, separated by commas: ",
                               absl::StrJoin(ChangeableFlags(), ", ")))
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::IsMember(ChangeableFlags()));
  command.add_flag("--fresh", up.fresh, "Begin anew although --run-dir has checkpoints: they are removed");
  command
      .add_option("--max-restarts", up.max_restarts,
                  "How often processes that died are started again; healthy ones go on from the newest "
                  "checkpoint. 0: the run ends with the first")
      ->capture_default_str();
  command
      .add_option(
          "--min-ranks", up.min_ranks,
          "Where ranks are lost for good, go on with those that are left, at least so many, on the fastest "
          "mesh of them, from the newest checkpoint; with --hosts also with those that come back. 0: the "
          "run ends")
      ->capture_default_str();
  command
      .add_option("--auto-tune", up.auto_tune,
                  "Measure so many other ways to train with as many ranks (mesh, policy, schedule, stages), "
                  "those that are planned to be the fastest by the costs of the first iterations, and go on "
                  "with the one that is; every iteration is trained once. 0: none")
      ->check(CLI::Range(0U, 32U))
      ->capture_default_str();
  command
      .add_option("--auto-tune-iterations", up.auto_tune_iterations,
                  "With --auto-tune: iterations of each way")
      ->check(CLI::Range(uint64_t{4}, uint64_t{1} << 20))
      ->capture_default_str();
  command
      .add_option("--planner-timeout", up.planner_timeout_s,
                  "Seconds that the planner, or its store (a full disk, a database that is away), may fail "
                  "before the "
                  "run ends")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  up.planner.AddTo(
      command,
      "host:port of a running planner, or of all that share a store: a:7070,b:7070 (default: start "
      "one)");
  CLI::Option* const planner = command.get_option("--planner");
  command
      .add_option("--metrics-listen", up.metrics_listen,
                  "host:port for Prometheus metrics of the planner that is started")
      ->excludes(planner);
  command
      .add_option("--worker-metrics-listen", up.worker_metrics_listen,
                  "host:port for Prometheus metrics of rank 0; rank r serves its own at port + r")
      ->check(WhatIsWrongWithAddresses);
  command
      .add_option("--otlp-endpoint", up.otlp_endpoint,
                  "HOST:PORT of a collector of OpenTelemetry that takes OTLP over gRPC, without TLS: planner "
                  "and workers that are started export the way of each batch as spans. '': none")
      ->check(WhatIsWrongWithCollector);
  command
      .add_option(
          "--page-listen", up.page_listen,
          "host:port of the page of the planner that is started, which shows the run in a browser; only this "
          "machine's own address. '': none")
      ->excludes(planner)
      ->capture_default_str();
  command.add_option("--threads", up.threads, "Threads of each worker (default: cores / workers)");
  command.add_option("--trace", up.trace,
                     "Write the measured iterations in Chrome's trace format to this file");
  command.add_flag("--json", up.json, "Print the summary as JSON, and progress on stderr");
}

void AddHostFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--hosts", up.hosts_file,
                     "File of the hosts that the workers run on, with lines HOST [slots=N]; they are started "
                     "over ssh, and have programs and files where they are here (default: this machine)");
  command.add_option("--ssh", up.ssh, "With --hosts: the program in place of ssh, and flags for it")
      ->capture_default_str();
}

// A flag that would have no effect is a misunderstanding.
absl::Status CheckHostFlags(const CLI::App& command, const UpOptions& up) {
  if (up.hosts_file.empty() && command.get_option("--ssh")->count() > 0)
    return absl::InvalidArgumentError("--ssh is for --hosts: give both or neither");
  if (absl::StripAsciiWhitespace(up.ssh).empty())
    return absl::InvalidArgumentError("--ssh is empty: name a program");
  return absl::OkStatus();
}

// Whether checkpoints are written when the run ends.
void AddCheckpointFlags(CLI::App& command, UpOptions& up) {
  command.add_flag("--no-checkpoints", up.no_checkpoints, "Write no checkpoint, not even at the end");
  command
      .add_option("--keep-checkpoints", up.kept_checkpoints,
                  "So many of the newest checkpoints stay, older ones are removed; 0: all stay")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option(
          "--checkpoint-failures", up.checkpoint_failures,
          "What a checkpoint that cannot be written (a full disk) does: continue says so, trains on and "
          "tries the next one; stop ends the epoch")
      ->check(CLI::IsMember({"continue", "stop"}))
      ->capture_default_str();
  command.add_flag("--no-rescue", up.no_rescue,
                   "When a worker is lost, go back to the newest checkpoint, and do not write one of what "
                   "the others hold");
  command
      .add_option(
          "--stop-seconds", up.stop_seconds,
          "After Ctrl-C: seconds to finish the iteration and write a checkpoint; Ctrl-C again ends at "
          "once")
      ->capture_default_str();
}

void AddEvaluationFlags(CLI::App& command, UpOptions& up) {
  command
      .add_option("--validation-device", up.validation_device, "cpu, or cuda:N: what evaluates checkpoints")
      ->capture_default_str();
  command
      .add_option(
          "--patience", up.patience,
          "Training ends when so many validations in a row are no better than the best; 0: it goes on")
      ->capture_default_str();
}

// A flag that would have no effect is a misunderstanding.
absl::Status CheckValidationFlags(const CLI::App& command, const UpOptions& up) {
  if (up.validation.empty()) {
    for (const char* flag :
         {"--validate-every", "--validation-samples", "--validation-device", "--patience"}) {
      if (command.get_option(flag)->count() > 0)
        return absl::InvalidArgumentError(absl::StrCat(flag, " is for --validation: give both or neither"));
    }
    return absl::OkStatus();
  }
  if (IsSimulated(up))
    return absl::InvalidArgumentError("--validation: simulated devices train nothing; leave it out");
  if (up.validate_every > 0 && command.get_option("--validation-device")->count() > 0)
    return absl::InvalidArgumentError(
        "--validation-device: with --validate-every the ranks validate; leave it out");
  if (up.validate_every == 0 && up.no_checkpoints)
    return absl::InvalidArgumentError(
        "--validation is of checkpoints: leave --no-checkpoints out, and give --checkpoint-every; or give "
        "--validate-every");
  return absl::OkStatus();
}

// What cannot be searched, or gone on from, is refused before anything is started.
absl::Status CheckAutoTuneFlags(const CLI::App& command, const UpOptions& up) {
  if (up.auto_tune == 0) {
    // A run that is resumed without its search has the flags of it.
    const bool alone = command.get_option("--auto-tune")->count() == 0 &&
                       command.get_option("--auto-tune-iterations")->count() > 0;
    if (!alone) return absl::OkStatus();
    return absl::InvalidArgumentError("--auto-tune-iterations is for --auto-tune: give both or neither");
  }
  if (up.min_ranks > 0)
    return absl::InvalidArgumentError(
        "--auto-tune and --min-ranks: ways are compared on the same ranks; give one of them");
  for (const char* flag : {"--layers-per-stage", "--rank-of-stage", "--strategies"}) {
    if (command.get_option(flag)->count() > 0)
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " and --auto-tune: other meshes have other stages; leave one of them out"));
  }
  if (WritesCheckpoints(up)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--auto-tune: each way goes on from the checkpoint of the one before; ",
                   up.no_checkpoints ? "leave --no-checkpoints out" : "give --checkpoint-every"));
}

// The run's folder is named by it, and written to before a planner sees it.
absl::Status CheckNameOfJob(const CLI::App& command, const UpOptions& up) {
  if (command.get_option("--job-id")->count() == 0) return absl::OkStatus();
  return CheckJobId("--job-id", up.job_id);
}

// A flag that would have no effect is a misunderstanding.
absl::Status CheckSimulationFlags(const CLI::App& command, const UpOptions& up) {
  if (!up.true_profile.empty() && !IsSimulated(up))
    return absl::InvalidArgumentError(
        "--true-profile is for --device simulated: what others take is measured");
  if (!up.true_profile.empty() && !up.planner.address.empty()) {
    return absl::InvalidArgumentError(
        "--true-profile: with --planner, start that with --simulated-profile, and leave this out");
  }
  if (IsSimulated(up) || !SimulationFlagsGiven(command)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--time-scale, --noise, --noise-seed, --slow-rank, --slow-link and --stall are for --device "
      "simulated");
}

// GPUs that are named one by one are all used: as many replicas as they make, where nobody says how many.
void TakeReplicasOfGpus(const CLI::App& command, UpOptions& up) {
  const auto gpus = static_cast<uint32_t>(up.device.gpus.size());
  if (gpus == 0 || !up.hosts_file.empty() || command.get_option("--dp")->count() > 0) return;
  const uint64_t of_pipeline = PipelineRanks(MeshOf(up));
  if (of_pipeline > 0 && gpus % of_pipeline == 0) up.data = static_cast<uint32_t>(gpus / of_pipeline);
}

// Of one command line, and not of the run.
bool BelongsToTheRun(const std::string& flag) {
  static const auto* others = new std::set<std::string>{"--help",  "--resume", "--fresh",        "--run-dir",
                                                        "--trace", "--json",   "--allow-change", "--job-id"};
  return !others->contains(flag);
}

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// The run may be resumed from another folder.
void MakePathsAbsolute(const UpOptions& up, FlagValues& flags) {
  for (const char* flag : {"--dataset", "--lengths", "--model", "--init-from", "--profile", "--true-profile",
                           "--hosts", "--tls-ca", "--tls-cert", "--tls-key", "--token-file"}) {
    const auto given = flags.find(flag);
    if (given == flags.end()) continue;
    for (std::string& path : given->second) path = AbsolutePath(path);
  }
  if (!up.mix.empty()) flags["--mix"] = {ToText(WithAbsolutePaths(up.mix))};
  if (!up.validation.empty()) flags["--validation"] = {ToText(WithAbsolutePaths(up.validation))};
}

// In words: their file may be another one when the run is resumed.
void RecordStrategies(UpOptions& up) {
  if (!up.strategies.empty()) up.flags["--strategies"] = {StrategyNames(up.strategies)};
}

// What is given of the data takes the place of what the run had, whichever flag it had it from.
void ReplaceData(const CLI::App& command, FlagValues& of_run) {
  for (const auto& [given, other] : {std::pair("--dataset", "--mix"), std::pair("--mix", "--dataset")})
    if (command.get_option(given)->count() > 0) of_run.erase(other);
}

// The same of how long it is.
void ReplaceIterations(const CLI::App& command, FlagValues& of_run) {
  for (const auto& [given, other] :
       {std::pair("--epochs", "--iterations"), std::pair("--iterations", "--epochs")})
    if (command.get_option(given)->count() > 0) of_run.erase(other);
}

// The same of the mesh: that of flags, or strategies.
void ReplaceMesh(const CLI::App& command, FlagValues& of_run) {
  const auto& mesh = MeshFlags();
  const bool given =
      std::ranges::any_of(mesh, [&](const char* flag) { return command.get_option(flag)->count() > 0; });
  if (given) of_run.erase("--strategies");
  if (command.get_option("--strategies")->count() > 0)
    for (const char* flag : mesh) of_run.erase(flag);
}

// With --resume the flags of the run, as far as no others are given.
absl::Status CompleteFlags(CLI::App& command, UpOptions& up) {
  if (up.resume) {
    const bool model_given = GivesWholeModel(up);
    if (up.run_dir.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(up.run_dir, NewestRunFolder(kRunsFolder));
    }
    absl::StatusOr<RunRecord> record = ReadRunRecord(up.run_dir);
    if (absl::IsNotFound(record.status())) {
      return absl::NotFoundError(
          absl::StrCat("--resume: no run was started in '", up.run_dir, "', which has no run.json"));
    }
    if (!record.ok()) return AnnotateError(record.status(), "--resume");
    ReplaceData(command, record->flags);
    ReplaceIterations(command, record->flags);
    ReplaceMesh(command, record->flags);
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(GiveFlags(record->flags, command), up.run_dir + "/run.json"));
    up.model_of_run = !model_given && GivesWholeModel(up);
  }
  for (auto& [flag, values] : GivenFlags(command))
    if (BelongsToTheRun(flag)) up.flags[flag] = values;
  MakePathsAbsolute(up, up.flags);
  return absl::OkStatus();
}

}  // namespace

void AddUpCommand(CommandSet& commands) {
  auto up = std::make_shared<UpOptions>();
  CLI::App* command = commands.Add(
      {.name = "up",
       .purpose = "Starts a planner and a worker for each rank on this machine, trains, and shows progress",
       .examples =
           "penstock up --pp 2 --dp 2 --dataset data/mix --global-batch 64 --iterations 100\n"
           "penstock up --dataset data/mix --iterations 200 --checkpoint-every 50 --run-dir runs/mix\n"
           "penstock up --run-dir runs/mix --resume\n"
           "penstock up --dp 8 --dataset data/mix --iterations 10000 --checkpoint-every 200 --auto-tune 3\n"
           "penstock up --mix data/flan=0.7,data/code=0.3 --validation data/flan-v,data/code-v "
           "--checkpoint-every 50\n"
           "penstock up --run-dir runs/mix --resume --lr 1e-4 --allow-change lr\n"
           "penstock up --hosts hosts.txt --planner planner:7070 --tls-ca ca.crt --dataset /shared/mix --pp "
           "4 --dp 2\n"
           "penstock up --device cuda:0..3 --pp 2 --dataset data/mix --dtype bfloat16\n"
           "penstock up --init-from models/llama --dataset data/mix --max-length 1024 --lr 1e-5\n"
           "penstock up --device simulated --profile gpt.json --lengths lengths.csv --rows 0:256 --pp 8 --dp "
           "4 "
           "--time-scale 0.1 --slow-rank 5:1.3"});
  // A later flag wins, so that scripts with flags of their own can pass on their user's.
  command->option_defaults()->take_last();
  AddJobFlags(*command, *up);
  AddSimulationFlags(*command, up->simulation);
  AddClockErrorFlag(*command, up->clock_errors);
  command->add_option("--true-profile", up->true_profile,
                      "Simulated device: what ranks take, where plans are to be made with costs that are "
                      "wrong; --profile says what they are made with");
  AddCheckpointFlags(*command, *up);
  AddValidationFlags(*command, "each checkpoint is evaluated, beside the training", *up);
  AddEvaluationFlags(*command, *up);
  AddHostFlags(*command, *up);
  AddRunFlags(*command, *up);
  commands.OnRun(command, [up, command] {
    PENSTOCK_RETURN_IF_ERROR(CheckNameOfJob(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CompleteFlags(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CheckSimulationFlags(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CheckHostFlags(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CheckValidationFlags(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CheckAutoTuneFlags(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(ReadJobFlags(*command, *up));
    RecordStrategies(*up);
    TakeReplicasOfGpus(*command, *up);
    return RunUp(*up);
  });
}

}  // namespace penstock::cli
