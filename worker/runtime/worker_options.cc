#include "worker/runtime/worker_options.h"

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/grpc/security/client_flags.h"
#include "common/grpc/targets.h"
#include "common/secret/incarnation.h"
#include "common/simulation/clock_error.h"
#include "common/simulation/simulation_flags.h"
#include "common/tracing/otlp_transport.h"
#include "common/version/version.h"

namespace penstock::worker {
namespace {

constexpr int kWrongUsage = 2;
// As planners have it.
constexpr int kMostTensorRanks = 64;
constexpr int kMostContextRanks = 1024;
constexpr int kMostExpertRanks = 1 << 16;

// "cuda:0".
bool IsCudaDevice(const std::string& name) {
  uint32_t number = 0;
  return absl::StartsWith(name, "cuda:") && absl::SimpleAtoi(name.substr(5), &number);
}

void AddDataFlags(CLI::App& app, RunOptions& run) {
  CLI::Option* const dataset = app.add_option_function<std::string>(
      "--dataset", [&run](const std::string& path) { run.datasets = {path}; },
      "Prefix of the dataset's .bin and .idx");
  app.add_option_function<std::string>(
         "--mix",
         [&run](const std::string& mix) {
           run.datasets = PathsOf(ParseMixture(mix).value_or(std::vector<MixtureTask>()));
         },
         "The mixture of datasets that penstock up or penstock feed was given: the same tasks in the same "
         "order")
      ->check([](const std::string& mix) { return std::string(ParseMixture(mix).status().message()); })
      ->excludes(dataset);
  app.add_option_function<std::string>(
         "--validation",
         [&run](const std::string& text) {
           for (const NamedDataset& of : ParseDatasets(text).value_or(std::vector<NamedDataset>()))
             run.validation.push_back(of.path);
         },
         "The datasets that penstock up validates on the ranks (--validate-every), in the same order")
      ->check([](const std::string& text) { return std::string(ParseDatasets(text).status().message()); });
}

void AddRunFlags(CLI::App& app, RunOptions& run) {
  app.add_option("--planner", run.planner,
                 "Address of the planner, HOST:PORT; of all that share a store: A:7070,B:7070")
      ->check(WhatIsWrongWithAddresses);
  AddClientSecurityFlags(app, run.security);
  app.add_option("--job", run.job_id, "Id of the job");
  app.add_option("--rank", run.rank,
                 "The wanted rank (default: RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID or "
                 "JOB_COMPLETION_INDEX of the environment, the first that is set; else any that is free)");
  AddDataFlags(app, run);
  app.add_option_function<std::string>(
         "--cut",
         [&run](const std::string& cut) {
           run.cut_input_start = cut == "input-start" || cut == "target-end";
         },
         "What samples lost that are longer than planned, as penstock up --cut says (input-end)")
      ->check(CLI::IsMember({"input-start", "input-end", "target-end", "drop"}));
  app.add_option("--checkpoint-dir", run.checkpoint_dir,
                 "Folder of the checkpoints (default: none are written)");
  app.add_flag("--no-checkpoints", run.no_checkpoints, "Read checkpoints for --resume, but write none");
  app.add_option("--keep-checkpoints", run.kept_checkpoints,
                 "So many of the newest complete checkpoints stay; 0: all. The same on all ranks")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--checkpoint-failures", run.checkpoint_failures,
                 "What a checkpoint that cannot be written does while training goes on: continue tries the "
                 "next one, stop ends the epoch. The same on all ranks")
      ->check(CLI::IsMember({"continue", "stop"}))
      ->capture_default_str();
  app.add_flag(
      "--no-rescue", run.no_rescue,
      "When another rank is lost, go back to the newest checkpoint, and do not write one of what the "
      "ranks that are left hold. The same on all ranks");
  app.add_flag("--resume", run.resume, "Continue from the newest complete checkpoint, if there is one");
  app.add_option("--init-from", run.init_from,
                 "Folder of a checkpoint whose parameters training begins with, where there is none to "
                 "continue from (default: drawn by the seed)")
      ->check(CLI::ExistingDirectory);
  app.add_option("--base", run.base,
                 "Of a model with adapters: folder of a checkpoint with all other parameters, which do not "
                 "learn (default: drawn by the seed)")
      ->check(CLI::ExistingDirectory);
  app.add_option("--host", run.host, "Address under which other workers reach this one")
      ->capture_default_str();
  app.add_option("--metrics-listen", run.metrics_listen,
                 "host:port for Prometheus metrics of this rank (default: none)");
  app.add_option("--otlp-endpoint", run.otlp_endpoint,
                 "HOST:PORT of a collector of OpenTelemetry that takes OTLP over gRPC, without TLS: each "
                 "iteration is exported as a span (default: none)")
      ->check(WhatIsWrongWithCollector);
  app.add_option("--threads", run.threads, "Threads that compute")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--device", run.device,
                 "cpu, cuda:N, or simulated: takes the times of the plan and computes nothing")
      ->check([](const std::string& value) {
        const bool known = value == "cpu" || value == kSimulatedDevice || IsCudaDevice(value);
        return known ? std::string() : "'" + value + "': use cpu, cuda:N or simulated";
      })
      ->capture_default_str();
  AddSimulationFlags(app, run.simulation);
  AddClockErrorFlag(app, run.clock_errors);
  app.add_option("--dump-gradients", run.gradients_dir,
                 "Folder for the reduced gradients of every iteration");
  app.add_option("--ready-timeout", run.ready_timeout_s, "Seconds to wait for the other ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--connect-timeout", run.connect_timeout_s, "Seconds to wait for connections to them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--planner-timeout", run.planner_timeout_s,
                 "Seconds that the planner may be away: the worker reconnects by itself")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option(
         "--stop-seconds", run.stop_seconds,
         "With --checkpoint-dir: after SIGTERM or SIGINT, seconds to finish the iteration and write a "
         "checkpoint; a second signal ends at once, 0 does so with the first")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  app.add_option("--max-rejoins", run.max_rejoins,
                 "When another rank is lost: how often to go on from the newest checkpoint, in this process, "
                 "without getting any further; 0: end at the first loss")
      ->check(CLI::Range(0u, 1000000u))
      ->capture_default_str();
  app.add_option("--transfer-timeout", run.transfer_timeout_s, "Seconds that one transfer may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddDeviceOf(CLI::App* command, uint32_t& threads, std::string& device) {
  command->add_option("--threads", threads, "Threads that compute")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  command->add_option("--device", device, "cpu, or cuda:N: what the model's passes run on")
      ->check([](const std::string& value) {
        return value == "cpu" || IsCudaDevice(value) ? std::string() : "'" + value + "': use cpu or cuda:N";
      })
      ->capture_default_str();
}

void AddMeasureFlags(CLI::App* command, ProfileOptions& profile) {
  command->add_option("--model-json", profile.model_json, "The model, a penstock.v1.ModelSpec as JSON")
      ->required();
  command->add_option("--out", profile.out, "Where the result is written")->required();
  command->add_option("--seconds", profile.seconds, "Time to spend")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddDeviceOf(command, profile.threads, profile.device);
  command->add_flag("--shared-cores", profile.shared_cores,
                    "Measure the time that passes, not what the thread gets of it: where several ranks will "
                    "train on one core, and measure side by side");
  command
      ->add_option("--side-by-side", profile.side_by_side,
                   "Workers that measure on this machine at the same time, this one among them: the profile "
                   "says so, and collectives are measured over as many ranks")
      ->check(CLI::Range(1U, 1U << 10))
      ->capture_default_str();
  command
      ->add_option("--context", profile.context,
                   "Measure too what one of so many context ranks computes, such as 2,4")
      ->delimiter(',')
      ->check(CLI::Range(2, kMostContextRanks));
}

CLI::App* AddProfileCheckCommand(CLI::App& app, ProfileOptions& profile) {
  CLI::App* command = app.add_subcommand(
      "profile-check", "Measure passes that no profile is fitted to (see penstock profile check)");
  AddMeasureFlags(command, profile);
  return command;
}

CLI::App* AddProfileCommand(CLI::App& app, ProfileOptions& profile) {
  CLI::App* command = app.add_subcommand("profile", "Measure what a model costs on this machine");
  AddMeasureFlags(command, profile);
  command
      ->add_option(
          "--tensor", profile.tensor,
          "Tensor degrees to measure too, such as 2,8; 1: whole layers alone; not given: 2 and 4, where "
          "they can divide the model")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostTensorRanks));
  command
      ->add_option("--expert", profile.expert,
                   "Measure too what one of so many ranks that divide the experts computes")
      ->check(CLI::Range(1, kMostExpertRanks))
      ->capture_default_str();
  command->add_flag("--without-links", profile.without_links,
                    "Leave links out: for one that computes beside another, which measures them");
  command->add_option(
      "--so-far", profile.so_far,
      "Keep what is measured in this file until all is, and go on from it after an interruption");
  return command;
}

void AddInferenceFlags(CLI::App* command, InferenceOptions& inference) {
  command->add_option("--model-json", inference.model_json, "The model, a penstock.v1.ModelSpec as JSON")
      ->required();
  command->add_option("--checkpoint", inference.checkpoint, "Folder of a checkpoint of it")->required();
  command->add_option("--base", inference.base,
                      "Of a model with adapters, which --checkpoint has: folder of a checkpoint of all else");
  AddDeviceOf(command, inference.threads, inference.device);
}

CLI::App* AddGenerateCommand(CLI::App& app, GenerateOptions& generate) {
  CLI::App* command = app.add_subcommand("generate", "Go on with a text (see penstock generate)");
  AddInferenceFlags(command, generate.inference);
  command->add_option("--tokens", generate.tokens, "The prompt")->delimiter(',')->required();
  command->add_option("--max-tokens", generate.max_tokens, "Tokens to ask for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--temperature", generate.temperature, "0: the most probable token")
      ->check(CLI::Range(0.0, 1e3))
      ->capture_default_str();
  command->add_option("--top-p", generate.top_p, "Share of the probability that is drawn from")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command->add_option("--seed", generate.seed, "What tokens are drawn by")->capture_default_str();
  command->add_option("--stop-tokens", generate.stop_tokens, "Tokens that end the text")->delimiter(',');
  CLI::Option* const bytes =
      command->add_flag("--as-bytes", generate.as_bytes, "Tokens are bytes, and printed as such");
  command->add_option("--tokenizer", generate.tokenizer, "Folder of the tokenizer whose text is printed")
      ->excludes(bytes);
  return command;
}

CLI::App* AddEvaluateCommand(CLI::App& app, EvaluateOptions& evaluate) {
  CLI::App* command = app.add_subcommand("evaluate", "The loss on a dataset (see penstock evaluate)");
  AddInferenceFlags(command, evaluate.inference);
  command
      ->add_option_function<std::string>(
          "--dataset",
          [&evaluate](const std::string& text) {
            evaluate.datasets = ParseDatasets(text).value_or(std::vector<NamedDataset>());
          },
          "Prefix of the dataset's .bin and .idx; of several, [NAME:]PREFIX,..., also the loss of each")
      ->check([](const std::string& text) { return std::string(ParseDatasets(text).status().message()); })
      ->required();
  command->add_option("--samples", evaluate.samples, "Samples of each dataset, spread over it; 0: all")
      ->capture_default_str();
  command->add_option("--max-length", evaluate.max_length, "Longer samples are cut; 0: the model's positions")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_flag("--json", evaluate.json, "One JSON object");
  return command;
}

// These belong to running a rank alone, so that subcommands do not ask for them.
void RequireRunFlags(const CLI::App& app, const RunOptions& run) {
  if (run.planner.empty()) throw CLI::RequiredError("--planner");
  if (run.job_id.empty()) throw CLI::RequiredError("--job");
  if (run.device != kSimulatedDevice) {
    if (run.datasets.empty()) throw CLI::RequiredError("--dataset");
    if (SimulationFlagsGiven(app)) {
      throw CLI::ValidationError(
          "--device " + run.device,
          "--time-scale, --noise, --slow-rank, --slow-link and --stall are for simulated");
    }
  } else if (!run.init_from.empty()) {
    throw CLI::ValidationError("--init-from", "simulated devices have no parameters");
  } else if (!run.base.empty()) {
    throw CLI::ValidationError("--base", "simulated devices have no parameters");
  }
  if (run.resume && run.checkpoint_dir.empty()) throw CLI::RequiresError("--resume", "--checkpoint-dir");
}

// --rank wins.
void TakeRank(RunOptions& run, const Environment& environment) {
  if (run.rank.has_value()) {
    run.rank_from = "--rank";
    return;
  }
  const absl::StatusOr<std::optional<LauncherRank>> launcher = RankOfLauncher(environment);
  if (!launcher.ok()) throw CLI::ValidationError("--rank", std::string(launcher.status().message()));
  if (!launcher->has_value()) return;
  run.rank = (*launcher)->rank;
  run.rank_from = (*launcher)->variable;
}

}  // namespace

CommandLine ParseCommandLine(int argc, char** argv, const Environment& environment) {
  CommandLine result;
  ProfileOptions profile;
  CLI::App app("One rank of a Penstock job: registers with a planner and executes its programs.",
               "penstock-worker");
  app.set_version_flag("--version", VersionOf("penstock-worker"));
  AddRunFlags(app, result.run);
  GenerateOptions generate;
  EvaluateOptions evaluate;
  const CLI::App* const profile_command = AddProfileCommand(app, profile);
  ProfileOptions check;
  const CLI::App* const check_command = AddProfileCheckCommand(app, check);
  const CLI::App* const generate_command = AddGenerateCommand(app, generate);
  const CLI::App* const evaluate_command = AddEvaluateCommand(app, evaluate);
  // CLI11 reports by exceptions; they end here.
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) {
      RequireRunFlags(app, result.run);
      TakeRank(result.run, environment);
      if (const char* key = environment(kIncarnationKeyVariable); key != nullptr)
        result.run.incarnation_key = key;
    }
  } catch (const CLI::ParseError& error) {
    result.exit_status = app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (profile_command->parsed()) result.profile = profile;
  if (check_command->parsed()) result.profile_check = check;
  if (generate_command->parsed()) result.generate = generate;
  if (evaluate_command->parsed()) result.evaluate = evaluate;
  return result;
}

}  // namespace penstock::worker
