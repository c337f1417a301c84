#include "planner/core/contract/job_limits.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/names/job_id.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"

namespace penstock::core {
namespace {

absl::Status NotNegative(absl::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, "; use a number of at least 0"));
}

// Decay of a moving average.
absl::Status BelowOne(absl::string_view field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();  // NaN is not
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, "; use at least 0 and less than 1"));
}

absl::Status CheckLayerCount(const v1::ModelSpec& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.layers", model.layers(), kMostLayers));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.encoder_layers", model.encoder_layers(), kMostLayers));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.decoder_layers", model.decoder_layers(), kMostLayers));
  const uint32_t both = model.encoder_layers() + model.decoder_layers();
  return CheckAtMost("job.model.encoder_layers and decoder_layers", both, kMostLayers);
}

absl::Status CheckModelLimits(const v1::ModelSpec& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckLayerCount(model));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.hidden", model.hidden(), kMostWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.heads", model.heads(), kMostWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.key_value_heads", model.key_value_heads(), kMostWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.attention_inner", model.attention_inner(), kMostWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.ffn", model.ffn(), kMostFeedForwardWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.experts", model.experts(), kMostExperts));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.model.shared_expert_ffn", model.shared_expert_ffn(), kMostFeedForwardWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.dense_ffn", model.dense_ffn(), kMostFeedForwardWidth));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.vocab", model.vocab(), kMostVocab));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.model.max_sequence_length", model.max_sequence_length(), kMostSequenceLength));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.model.relative_position_buckets",
                                       model.relative_position_buckets(), kMostRelativePositionBuckets));
  return CheckAtMost("job.model.relative_position_max_distance", model.relative_position_max_distance(),
                     kMostSequenceLength);
}

absl::Status CheckMeshLimits(const v1::Mesh& mesh) {
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.mesh.pipeline", mesh.pipeline(), kMostPipelineRanks));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.mesh.data", mesh.data(), kMostRanks));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.mesh.tensor", mesh.tensor(), kMostTensorRanks));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.mesh.context", mesh.context(), kMostContextRanks));
  const uint64_t group = GroupRanks(mesh);
  const uint64_t of_pipeline = PipelineRanks(mesh);
  if (group > 1 && of_pipeline > kMostPipelineRanks) {
    return absl::InvalidArgumentError(absl::StrCat("job.mesh: ", mesh.pipeline(), " positions of ", group,
                                                   " ranks are ", of_pipeline, " in a pipeline; use at most ",
                                                   kMostPipelineRanks));
  }
  const uint64_t ranks = RanksOf(mesh);
  if (ranks <= kMostRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("job.mesh: ", mesh.pipeline(), " x ", mesh.data(),
                                                 group > 1 ? absl::StrCat(" x ", group) : "", " are ", ranks,
                                                 " ranks; use at most ", kMostRanks));
}

absl::Status CheckRankMemory(const v1::PlanningOptions& planning) {
  for (int i = 0; i < planning.rank_memory_limits_size(); ++i) {
    const v1::RankMemoryLimit& limit = planning.rank_memory_limits(i);
    const std::string field = absl::StrCat("job.planning.rank_memory_limits[", i, "]");
    if (i > 0 && limit.rank() <= planning.rank_memory_limits(i - 1).rank())
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".rank: ", limit.rank(), "; ranks must ascend, each named once"));
    if (limit.bytes() < 1)
      return absl::InvalidArgumentError(absl::StrCat(field, ".bytes: ", limit.bytes(), "; use at least 1"));
    PENSTOCK_RETURN_IF_ERROR(CheckAtMost(absl::StrCat(field, ".bytes"), limit.bytes(), kMostMemoryBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckPlanning(const v1::PlanningOptions& planning) {
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.planning.layers_per_stage", planning.layers_per_stage_size(), kMostStages));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.planning.rank_of_stage", planning.rank_of_stage_size(), kMostStages));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.planning.typical_samples", planning.typical_samples_size(), kMostTypicalSamples));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.planning.typical_batch_size", planning.typical_batch_size(), kMostSamples));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.planning.token_cap", planning.token_cap(), kMostTokenCap));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.planning.most_parts", planning.most_parts(), kMostParts));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.planning.gradient_bucket_bytes", planning.gradient_bucket_bytes(),
                                       kMostGradientBucketBytes));
  const int64_t memory = planning.memory_limit_bytes();
  if (memory < 0) {
    return absl::InvalidArgumentError(absl::StrCat("job.planning.memory_limit_bytes: ", memory,
                                                   "; use at least 0 (0: that of the profile's cluster)"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.planning.memory_limit_bytes", memory, kMostMemoryBytes));
  PENSTOCK_RETURN_IF_ERROR(CheckRankMemory(planning));
  return CheckAtMost("job.planning.micro_batch_size", planning.micro_batch_size(), kMostSamples);
}

absl::Status CheckSize(absl::string_view field, absl::string_view text, size_t most) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": has ", text.size(), " bytes; use at most ", most));
}

absl::Status CheckSerializedSize(const v1::JobSpec& job) {
  const auto bytes = static_cast<int64_t>(job.ByteSizeLong());
  if (bytes <= kMostJobBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("job: has ", bytes,
                   " bytes, names and measured points of its profile included; use at most ", kMostJobBytes));
}

absl::Status CheckTraining(const v1::TrainingSpec& training) {
  const v1::LearningRate& rate = training.learning_rate();
  PENSTOCK_RETURN_IF_ERROR(NotNegative("job.training.learning_rate.peak", rate.peak()));
  PENSTOCK_RETURN_IF_ERROR(NotNegative("job.training.learning_rate.minimum", rate.minimum()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.training.learning_rate.warmup_iterations", rate.warmup_iterations(), kMostIterations));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.training.learning_rate.decay_iterations", rate.decay_iterations(), kMostIterations));
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.training.learning_rate.cooldown_iterations",
                                       rate.cooldown_iterations(), kMostIterations));
  if (!v1::RateDecay_IsValid(rate.decay())) {
    return absl::InvalidArgumentError(
        "job.training.learning_rate.decay: is unknown; use COSINE, LINEAR, CONSTANT or COOLDOWN");
  }
  if (rate.cooldown_iterations() > 0 && rate.decay() != v1::RATE_DECAY_COOLDOWN) {
    return absl::InvalidArgumentError(
        "job.training.learning_rate.cooldown_iterations: only the decay COOLDOWN has them; leave 0");
  }
  PENSTOCK_RETURN_IF_ERROR(BelowOne("job.training.beta1", training.beta1()));
  PENSTOCK_RETURN_IF_ERROR(BelowOne("job.training.beta2", training.beta2()));
  PENSTOCK_RETURN_IF_ERROR(NotNegative("job.training.epsilon", training.epsilon()));
  PENSTOCK_RETURN_IF_ERROR(NotNegative("job.training.weight_decay", training.weight_decay()));
  PENSTOCK_RETURN_IF_ERROR(NotNegative("job.training.clip_norm", training.clip_norm()));
  PENSTOCK_RETURN_IF_ERROR(
      CheckAtMost("job.training.checkpoint_interval", training.checkpoint_interval(), kMostIterations));
  return CheckAtMost("job.training.iterations", training.iterations(), kMostIterations);
}

absl::Status CheckTasks(const v1::JobSpec& job) {
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("job.tasks", job.tasks_size(), kMostTasks));
  std::set<absl::string_view> names;
  for (int i = 0; i < job.tasks_size(); ++i) {
    const std::string field = absl::StrCat("job.tasks[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckJobId(field, job.tasks(i)));
    if (!names.insert(job.tasks(i)).second)
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": '", job.tasks(i), "' is there twice; use a name of its own for each task"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAtMost(absl::string_view field, uint64_t value, uint64_t most) {
  if (value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, "; use at most ", most));
}

absl::Status CheckJobLimits(const v1::JobSpec& job) {
  PENSTOCK_RETURN_IF_ERROR(CheckSize("job.profile.comment", job.profile().comment(), kMostCommentBytes));
  PENSTOCK_RETURN_IF_ERROR(CheckSize("job.profile.name", job.profile().name(), kMostCommentBytes));
  PENSTOCK_RETURN_IF_ERROR(CheckSerializedSize(job));
  PENSTOCK_RETURN_IF_ERROR(CheckModelLimits(job.model()));
  PENSTOCK_RETURN_IF_ERROR(CheckMeshLimits(job.mesh()));
  PENSTOCK_RETURN_IF_ERROR(CheckPlanning(job.planning()));
  PENSTOCK_RETURN_IF_ERROR(CheckTraining(job.training()));
  PENSTOCK_RETURN_IF_ERROR(CheckTasks(job));
  return CheckAtMost("job.first_iteration", job.first_iteration(), kMostIterations);
}

}  // namespace penstock::core
