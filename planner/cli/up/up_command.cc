// `penstock up`: flags.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/grpc/targets.h"
#include "common/simulation/simulation_flags.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/choice_flag.h"
#include "planner/cli/commands.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/recorded_flags.h"
#include "planner/cli/up/run_record.h"
#include "planner/cli/up/run_up.h"
#include "planner/cli/up/up_options.h"

namespace penstock::cli {
namespace {

const Names<v1::DataType>& DataTypes() {
  static const auto* types = new Names<v1::DataType>{{"float64", v1::DATA_TYPE_FLOAT64},
                                                     {"float32", v1::DATA_TYPE_FLOAT32},
                                                     {"bfloat16", v1::DATA_TYPE_BFLOAT16}};
  return *types;
}

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
  up.planner.AddTo(
      command,
      "host:port of a running planner, or of all that share a store: a:7070,b:7070 (default: start "
      "one)");
  command.add_option("--metrics-listen", up.metrics_listen,
                     "host:port for Prometheus metrics of the planner");
  command
      .add_option("--worker-metrics-listen", up.worker_metrics_listen,
                  "host:port for Prometheus metrics of rank 0; rank r serves its own at port + r")
      ->check(WhatIsWrongWithAddresses);
  command
      .add_option(
          "--page-listen", up.page_listen,
          "host:port of the planner's page, which shows the run in a browser; only this machine's own "
          "address. '': none")
      ->capture_default_str();
  command.add_option("--threads", up.threads, "Threads of each worker (default: cores / workers)");
  command.add_option("--trace", up.trace,
                     "Write the measured iterations in Chrome's trace format to this file");
  command.add_flag("--json", up.json, "Print the summary as JSON, and progress on stderr");
}

void AddDataFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--dataset", up.dataset,
                     "Token dataset: the path without .idx and .bin (see penstock dataset import)");
  command.add_option("--lengths", up.lengths,
                     "Simulated devices: CSV with columns input_tokens,target_tokens or tokens, instead of a "
                     "dataset");
  command.add_option(
      "--rows", up.rows,
      "With --lengths: rows A:B of the first global batch; the next ones follow, and start over "
      "at the end");
  command.add_option("--global-batch", up.global_batch, "Samples of an iteration, over all replicas")
      ->capture_default_str();
  command.add_option("--max-length", up.limits.max_length,
                     "Longer samples are cut to so many tokens; encoder-decoder: each side (2048; simulated "
                     "devices: none are cut)");
  AddCutFlag(command, up.limits.cut);
  command.add_option("--max-input", up.limits.max_input, "Encoder-decoder: cut inputs to this many tokens");
  command.add_option("--max-target", up.limits.max_target,
                     "Encoder-decoder: cut targets to this many tokens");
  command.add_option("--iterations", up.iterations, "Iterations of the whole run")->capture_default_str();
}

void AddPlanFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--pp", up.pipeline, "Pipeline stages")->capture_default_str();
  command.add_option("--dp", up.data, "Replicas of the pipeline")->capture_default_str();
  AddPolicyFlag(command, up.policy);
  up.planning.AddTo(command);
  command.add_option("--look-ahead", up.look_ahead,
                     "Iterations planned ahead of the slowest rank (default: 16)");
  command.add_option("--profile", up.profile,
                     "Cost profile (default: measured on this machine once, then cached)");
  command.add_option("--profile-seconds", up.profile_seconds, "Time for measuring a profile")
      ->capture_default_str();
}

const Names<v1::FeedForward>& FeedForwards() {
  static const auto* kinds = new Names<v1::FeedForward>{{"relu", v1::FEED_FORWARD_RELU},
                                                        {"gelu", v1::FEED_FORWARD_GELU},
                                                        {"gated-gelu", v1::FEED_FORWARD_GATED_GELU},
                                                        {"gated-silu", v1::FEED_FORWARD_GATED_SILU}};
  return *kinds;
}

const Names<UpDevice>& Devices() {
  static const auto* devices =
      new Names<UpDevice>{{"cpu", UpDevice::kCpu}, {"simulated", UpDevice::kSimulated}};
  return *devices;
}

const Names<v1::Architecture>& Architectures() {
  static const auto* architectures =
      new Names<v1::Architecture>{{"gpt", v1::ARCHITECTURE_GPT}, {"t5", v1::ARCHITECTURE_T5}};
  return *architectures;
}

void AddDeviceFlags(CLI::App& command, UpOptions& up) {
  AddChoice(command, "--device", up.device, Devices(),
            "What the workers run on; simulated: a dry run that takes model and times of --profile (cpu)");
  AddSimulationFlags(command, up.simulation);
}

void AddModelFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--model", up.model,
                     "Hugging Face's config.json, or a folder with one: GPT-2, Llama or T5; in place of the "
                     "flags below");
  command.add_option("--init-from", up.init_from,
                     "Folder of penstock model import, or of a run: the model, and the parameters to begin "
                     "with");
  AddChoice(command, "--architecture", up.architecture, Architectures(), "Kind of model (gpt)");
  command.add_option("--layers", up.layers, "Transformer blocks")->capture_default_str();
  command.add_option("--encoder-layers", up.encoder_layers, "T5: layers of the encoder")
      ->capture_default_str();
  command.add_option("--decoder-layers", up.decoder_layers, "T5: layers of the decoder")
      ->capture_default_str();
  command.add_option("--hidden", up.hidden, "Width of the model")->capture_default_str();
  command.add_option("--heads", up.heads, "Attention heads")->capture_default_str();
  command.add_option("--ffn", up.ffn, "Inner width of the feed-forward layers")->capture_default_str();
  command.add_option("--attention-inner", up.attention_inner,
                     "Inner width of attention: heads x width of a head (that of the model)");
  AddChoice(command, "--feed-forward", up.feed_forward, FeedForwards(),
            "Kind of the feed-forward layers (gpt: gelu, t5: relu)");
  command
      .add_option("--decoder-start-token", up.decoder_start_token,
                  "T5: token that the decoder's input begins with")
      ->capture_default_str();
  command.add_option("--vocab", up.vocab,
                     "Size of the vocabulary (default: the dataset's largest token id + 1)");
  AddChoice(command, "--dtype", up.dtype, DataTypes(), "Number format of model and activations (float32)");
}

void AddTrainingFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--seed", up.seed, "Seed of initial values and sample order")->capture_default_str();
  command.add_option("--lr", up.learning_rate, "Peak learning rate")->capture_default_str();
  command.add_option("--min-lr", up.minimum_learning_rate, "Learning rate at the end of the cosine")
      ->capture_default_str();
  command.add_option("--warmup", up.warmup, "Iterations of linear warm-up")->capture_default_str();
  command.add_option("--beta1", up.beta1, "AdamW: decay of the mean of the gradients")->capture_default_str();
  command.add_option("--beta2", up.beta2, "AdamW: decay of the mean of their squares")->capture_default_str();
  command.add_option("--epsilon", up.epsilon, "AdamW: what is added to the root of the mean of squares")
      ->capture_default_str();
  command.add_option("--weight-decay", up.weight_decay, "AdamW: weight decay of matrices")
      ->capture_default_str();
  command.add_option("--clip-norm", up.clip_norm, "Largest global gradient norm; 0: no clipping")
      ->capture_default_str();
  command
      .add_option("--checkpoint-every", up.checkpoint_every,
                  "Iterations between checkpoints; 0: only at the end and when the run is stopped")
      ->capture_default_str();
  command.add_flag("--no-checkpoints", up.no_checkpoints, "Write no checkpoint, not even at the end");
  command
      .add_option(
          "--stop-seconds", up.stop_seconds,
          "After Ctrl-C: seconds to finish the iteration and write a checkpoint; Ctrl-C again ends at "
          "once")
      ->capture_default_str();
}

// Flags that describe a model, and `more`, where the model is given otherwise.
absl::Status RefuseModelFlags(const CLI::App& command, std::vector<const char*> more, absl::string_view why) {
  std::vector<const char*> flags = {
      "--architecture",    "--layers", "--encoder-layers", "--decoder-layers",      "--hidden", "--heads",
      "--attention-inner", "--ffn",    "--feed-forward",   "--decoder-start-token", "--vocab"};
  flags.insert(flags.end(), more.begin(), more.end());
  for (const char* flag : flags) {
    if (command.get_option(flag)->count() == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
  }
  return absl::OkStatus();
}

// A flag that would have no effect is a misunderstanding.
absl::Status CheckFlagsFitDevice(const CLI::App& command, const UpOptions& up) {
  if (up.device != UpDevice::kSimulated) {
    if (!SimulationFlagsGiven(command)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--time-scale, --noise, --noise-seed, --slow-rank, --slow-link and --stall are for --device "
        "simulated");
  }
  return RefuseModelFlags(command, {"--model", "--init-from", "--dtype"},
                          "with --device simulated the model is that of --profile");
}

bool GivesWholeModel(const UpOptions& up) { return !up.model.empty() || !up.init_from.empty(); }

absl::Status CheckModelIsGivenOnce(const CLI::App& command, const UpOptions& up) {
  if (!up.model.empty() && !up.init_from.empty())
    return absl::InvalidArgumentError("--model: the model is that of --init-from; leave it out");
  if (!GivesWholeModel(up)) return absl::OkStatus();
  return RefuseModelFlags(
      command, {}, absl::StrCat("the model is that of ", up.model.empty() ? "--init-from" : "--model"));
}

// Of one command line, and not of the run.
bool BelongsToTheRun(const std::string& flag) {
  static const auto* others = new std::set<std::string>{"--help",  "--resume", "--fresh",        "--run-dir",
                                                        "--trace", "--json",   "--allow-change", "--job-id"};
  return !others->contains(flag);
}

// The run may be resumed from another folder.
void MakePathsAbsolute(FlagValues& flags) {
  for (const char* flag : {"--dataset", "--lengths", "--model", "--init-from", "--profile", "--tls-ca",
                           "--tls-cert", "--tls-key", "--token-file"}) {
    const auto given = flags.find(flag);
    if (given == flags.end()) continue;
    for (std::string& path : given->second)
      path = std::filesystem::absolute(path).lexically_normal().string();
  }
}

// With --resume the flags of the run, as far as no others are given.
absl::Status CompleteFlags(CLI::App& command, UpOptions& up) {
  if (up.resume) {
    const bool model_given = GivesWholeModel(up);
    if (up.run_dir.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(up.run_dir, NewestRunFolder(kRunsFolder));
    }
    const absl::StatusOr<RunRecord> record = ReadRunRecord(up.run_dir);
    if (absl::IsNotFound(record.status())) {
      return absl::NotFoundError(
          absl::StrCat("--resume: no run was started in '", up.run_dir, "', which has no run.json"));
    }
    if (!record.ok()) return AnnotateError(record.status(), "--resume");
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(GiveFlags(record->flags, command), up.run_dir + "/run.json"));
    up.model_of_run = !model_given && GivesWholeModel(up);
  }
  for (auto& [flag, values] : GivenFlags(command))
    if (BelongsToTheRun(flag)) up.flags[flag] = values;
  MakePathsAbsolute(up.flags);
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
           "penstock up --run-dir runs/mix --resume --lr 1e-4 --allow-change lr\n"
           "penstock up --init-from models/llama --dataset data/mix --max-length 1024 --lr 1e-5\n"
           "penstock up --device simulated --profile gpt.json --lengths lengths.csv --rows 0:256 --pp 8 --dp "
           "4 "
           "--time-scale 0.1 --slow-rank 5:1.3"});
  // A later flag wins, so that scripts with flags of their own can pass on their user's.
  command->option_defaults()->take_last();
  AddDataFlags(*command, *up);
  AddPlanFlags(*command, *up);
  AddDeviceFlags(*command, *up);
  AddModelFlags(*command, *up);
  AddTrainingFlags(*command, *up);
  AddRunFlags(*command, *up);
  commands.OnRun(command, [up, command] {
    PENSTOCK_RETURN_IF_ERROR(CompleteFlags(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CheckFlagsFitDevice(*command, *up));
    PENSTOCK_RETURN_IF_ERROR(CheckModelIsGivenOnce(*command, *up));
    up->dtype_given = command->get_option("--dtype")->count() > 0;
    return RunUp(*up);
  });
}

}  // namespace penstock::cli
