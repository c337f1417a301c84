#include "planner/cli/up/up_options.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

absl::Status CheckRange(absl::string_view flag, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": use ", least, " to ", most));
}

absl::Status CheckNumber(absl::string_view flag, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": use ", least, " to ", most));
}

// The planner has more policies than the workers have layouts.
absl::Status CheckPolicy(const UpOptions& options) {
  if (options.policy != v1::POLICY_CONCATENATED) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--policy concatenated: the workers cannot run attention across samples; it is there for `penstock "
      "plan` "
      "and `penstock compare`. Use dynamic, packed, token_budget or padding");
}

absl::Status CheckTraining(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--lr", options.learning_rate, 0, 1e3));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--min-lr", options.minimum_learning_rate, 0, 1e3));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--weight-decay", options.weight_decay, 0, 1e3));
  PENSTOCK_RETURN_IF_ERROR(CheckNumber("--clip-norm", options.clip_norm, 0, 1e9));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--threads", options.threads, 0, 4096));
  return CheckNumber("--profile-seconds", options.profile_seconds, 0.1, 3600);
}

// Plans that need more than the workers can do fail here, not when the workers have them.
absl::Status CheckWorkersCan(const PlanningFlags& planning) {
  const bool runs = planning.schedule == v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD ||
                    planning.schedule == v1::SCHEDULE_READY_FIRST;
  if (!runs) {
    return absl::InvalidArgumentError(
        absl::StrCat("--schedule ", ScheduleName(planning.schedule),
                     ": the workers run whole backward passes and one stage each; use 1f1b or ready-first"));
  }
  if (!planning.rank_of_stage.empty()) {
    return absl::InvalidArgumentError(
        "--rank-of-stage: the workers run one stage each; leave it and give --layers-per-stage alone");
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(const UpOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--pp", options.pipeline, 1, 1024));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--dp", options.data, 1, 4096));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--layers", options.layers, 1, 4096));
  if (options.layers < options.pipeline) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pp ", options.pipeline, " with --layers ", options.layers,
                     ": a stage needs a layer; use fewer stages or more layers"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--hidden", options.hidden, 1, 1 << 20));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--heads", options.heads, 1, options.hidden));
  if (options.hidden % options.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--hidden ", options.hidden, " is no multiple of --heads ", options.heads));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--ffn", options.ffn, 1, 1 << 22));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--global-batch", options.global_batch, 1, 1 << 20));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--max-length", options.max_length, 2, 1 << 24));
  return CheckRange("--iterations", options.iterations, 1, 1ULL << 40);
}

void FillModel(const UpOptions& options, uint32_t vocab, v1::ModelSpec& model) {
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(options.layers);
  model.set_hidden(options.hidden);
  model.set_heads(options.heads);
  model.set_ffn(options.ffn);
  model.set_vocab(vocab);
  model.set_max_sequence_length(options.max_length);
}

void FillTraining(const UpOptions& options, v1::TrainingSpec& training) {
  training.set_seed(options.seed);
  training.mutable_learning_rate()->set_peak(options.learning_rate);
  training.mutable_learning_rate()->set_minimum(options.minimum_learning_rate);
  training.mutable_learning_rate()->set_warmup_iterations(options.warmup);
  training.mutable_learning_rate()->set_decay_iterations(options.iterations);
  training.set_weight_decay(options.weight_decay);
  training.set_clip_norm(options.clip_norm);
  training.set_checkpoint_interval(options.checkpoint_every);
  training.set_iterations(options.iterations);
}

}  // namespace

uint32_t WorkerCount(const UpOptions& options) { return options.pipeline * options.data; }

uint32_t ThreadsOfEachWorker(const UpOptions& options) {
  if (options.threads != 0) return options.threads;
  return std::max(1U, std::thread::hardware_concurrency() / WorkerCount(options));
}

absl::StatusOr<v1::JobSpec> MakeJobSpec(const UpOptions& options, uint32_t vocab) {
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(options));
  PENSTOCK_RETURN_IF_ERROR(CheckPolicy(options));
  PENSTOCK_RETURN_IF_ERROR(CheckTraining(options));
  PENSTOCK_RETURN_IF_ERROR(CheckWorkersCan(options.planning));
  v1::JobSpec job;
  job.set_job_id(options.job_id);
  FillModel(options, vocab, *job.mutable_model());
  job.mutable_model()->set_dtype(options.dtype);
  job.mutable_mesh()->set_pipeline(options.pipeline);
  job.mutable_mesh()->set_data(options.data);
  *job.mutable_planning() = options.planning.ToOptions(options.policy);
  FillTraining(options, *job.mutable_training());
  job.set_look_ahead_window(options.look_ahead);
  return job;
}

}  // namespace penstock::cli
