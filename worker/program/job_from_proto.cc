#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

absl::Status RequirePositive(uint32_t value, absl::string_view field) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is 0: it must be positive"));
}

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

absl::StatusOr<ModelConfig> ModelFromProto(const v1::ModelSpec& model) {
  if (model.architecture() != v1::ARCHITECTURE_GPT) {
    return absl::UnimplementedError(absl::StrCat("model.architecture is ",
                                                 v1::Architecture_Name(model.architecture()),
                                                 ": this worker runs ARCHITECTURE_GPT only"));
  }
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.layers(), "model.layers"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.hidden(), "model.hidden"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.heads(), "model.heads"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.ffn(), "model.ffn"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.vocab(), "model.vocab"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(model.max_sequence_length(), "model.max_sequence_length"));
  PENSTOCK_ASSIGN_OR_RETURN(const DataType dtype, DataTypeFromProto(model.dtype(), "model.dtype"));
  const uint32_t inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
  if (inner % model.heads() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("model.heads is ", model.heads(),
                                                   ": it must divide the inner width of attention, ", inner));
  }
  return ModelConfig{.layers = model.layers(),
                     .hidden = model.hidden(),
                     .heads = model.heads(),
                     .attention_inner = inner,
                     .ffn = model.ffn(),
                     .vocab = model.vocab(),
                     .max_sequence_length = model.max_sequence_length(),
                     .dtype = dtype};
}

absl::StatusOr<JobConfig> JobFromProto(const v1::JobSpec& job) {
  const v1::Mesh& mesh = job.mesh();
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.pipeline(), "mesh.pipeline"));
  PENSTOCK_RETURN_IF_ERROR(RequirePositive(mesh.data(), "mesh.data"));
  if (mesh.tensor() > 1 || mesh.context() > 1) {
    return absl::UnimplementedError("mesh.tensor and mesh.context above 1 are not known to this worker");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ModelConfig model, ModelFromProto(job.model()));
  return JobConfig{.job_id = job.job_id(),
                   .model = model,
                   .pipeline = mesh.pipeline(),
                   .replicas = mesh.data(),
                   .training = TrainingFromProto(job.training()),
                   .first_iteration = job.first_iteration()};
}

}  // namespace penstock::worker
