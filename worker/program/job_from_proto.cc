#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"
#include "worker/program/require_positive.h"

namespace penstock::worker {
namespace {

// As the contract bounds them (job.proto, Mesh).
constexpr uint64_t kMaxRanks = 1 << 16;

double ValueOr(double value, double fallback) { return value != 0 ? value : fallback; }

TrainingConfig TrainingFromProto(const v1::TrainingSpec& training) {
  const TrainingConfig defaults;
  const v1::LearningRate& rate = training.learning_rate();
  return {.seed = training.seed(),
          .learning_rate = {.peak = rate.peak(),
                            .minimum = rate.minimum(),
                            .warmup_iterations = rate.warmup_iterations(),
                            .decay_iterations = rate.decay_iterations()},
          .beta1 = ValueOr(training.beta1(), defaults.beta1),
          .beta2 = ValueOr(training.beta2(), defaults.beta2),
          .epsilon = ValueOr(training.epsilon(), defaults.epsilon),
          .weight_decay = training.weight_decay(),
          .clip_norm = training.clip_norm(),
          .checkpoint_interval = training.checkpoint_interval(),
          .iterations = training.iterations()};
}

}  // namespace

absl::StatusOr<JobConfig> JobFromProto(const v1::JobSpec& job) {
  const v1::Mesh& mesh = job.mesh();
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.pipeline(), "mesh.pipeline"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.data(), "mesh.data"));
  if (uint64_t{mesh.pipeline()} * mesh.data() > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh of ", mesh.pipeline(), " x ", mesh.data(), " is more than ", kMaxRanks, " ranks"));
  }
  if (mesh.tensor() > 1 || mesh.context() > 1) {
    return absl::UnimplementedError("mesh.tensor and mesh.context above 1 are not known to this worker");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ModelConfig model, ModelFromProto(job.model()));
  return JobConfig{.job_id = job.job_id(),
                   .model = model,
                   .pipeline = mesh.pipeline(),
                   .replicas = mesh.data(),
                   .training = TrainingFromProto(job.training()),
                   .shard_optimizer_state = job.planning().shard_optimizer_state(),
                   .first_iteration = job.first_iteration()};
}

}  // namespace penstock::worker
