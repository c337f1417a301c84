#include "planner/core/contract/job_from_proto.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/names/job_id.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/adapters.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/check_group.h"
#include "planner/core/contract/check_model.h"
#include "planner/core/contract/element_bytes.h"
#include "planner/core/contract/job_limits.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/model_experts.h"
#include "planner/core/contract/model_heads.h"
#include "planner/core/contract/model_windows.h"
#include "planner/core/contract/rank_memory.h"
#include "planner/core/contract/total_layers.h"
#include "planner/core/contract/wrong_in_job.h"
#include "planner/core/topology/stage_list.h"

namespace penstock::core {
namespace {

absl::Status CheckMesh(const v1::Mesh& mesh) {
  if (mesh.pipeline() == 0) return Wrong("job.mesh.pipeline", "0; use at least 1");
  if (mesh.data() == 0) return Wrong("job.mesh.data", "0; use at least 1");
  return absl::OkStatus();
}

GroupShape GroupOf(const v1::JobSpec& spec) {
  const v1::Mesh& mesh = spec.mesh();
  return {static_cast<int32_t>(ContextRanks(mesh)), static_cast<int32_t>(TensorRanks(mesh)),
          static_cast<int32_t>(ExpertRanks(mesh)), spec.model().shared_expert_ffn() > 0};
}

// Gradients of T5's [buckets, heads] in the type that they are summed in.
int64_t SharedTableBytes(const v1::ModelSpec& model) {
  if (model.architecture() != v1::ARCHITECTURE_T5) return 0;
  const int64_t buckets =
      model.relative_position_buckets() > 0 ? model.relative_position_buckets() : kRelativePositionBuckets;
  return buckets * model.heads() * (model.dtype() == v1::DATA_TYPE_FLOAT64 ? 8 : 4);
}

TokenTable TokenTableOf(const v1::ModelSpec& model, int64_t element_bytes) {
  const int64_t elements = int64_t{model.vocab()} * model.hidden();
  return {.with_head = model.tied_head(),
          .of_both_embeddings = model.tied_embeddings(),
          .parameter_bytes = elements * element_bytes,
          .gradient_bytes = elements * (model.dtype() == v1::DATA_TYPE_FLOAT64 ? 8 : 4)};
}

// Of all ranks of the job, of which the topology may have some alone.
absl::Status ReadShareWeights(const v1::PlanningOptions& planning, Job* job) {
  const auto& weights = planning.share_weights();
  if (weights.empty()) return absl::OkStatus();
  constexpr const char* kField = "job.planning.share_weights";
  if (!job->parameter_shares) {
    return Wrong(kField,
                 "there are no shares without job.planning.parameter_shares; set it, or leave them out");
  }
  const int32_t ranks = job->world.ranks > 0 ? job->world.ranks : job->topology.ranks();
  if (weights.size() != ranks || job->world.first_rank + job->topology.ranks() > ranks) {
    return Wrong(kField, absl::StrCat(weights.size(), " of them; the job has ", ranks,
                                      " ranks, and each needs its own"));
  }
  const auto at = static_cast<int>(std::max_element(weights.begin(), weights.end()) - weights.begin());
  if (weights[at] == 0) return Wrong(kField, "all are 0; at least one rank must have a share");
  if (weights[at] > kMostShareWeight) {
    return Wrong(absl::StrCat(kField, "[", at, "]"),
                 absl::StrCat(weights[at], "; use at most ", kMostShareWeight));
  }
  job->share_weights = ShareWeightsOf({weights.data(), static_cast<size_t>(weights.size())},
                                      job->world.first_rank, job->topology.ranks());
  return absl::OkStatus();
}

// What is frozen has no gradients that stages could share.
absl::Status ReadAdapters(const v1::JobSpec& spec, Job* job) {
  job->adapted = spec.model().has_adapters();
  if (!job->adapted) return absl::OkStatus();
  if (spec.planning().parameter_shares()) {
    return Wrong(
        "job.planning.parameter_shares",
        "with job.model.adapters little learns that could be shared; leave it out, and give one mesh "
        "in place of strategies");
  }
  const bool t5 = job->architecture == Architecture::kT5;
  for (const bool decoder : {false, true}) {
    job->adapter_layer_bytes[decoder ? 1 : 0] =
        AdapterElements(spec.model(), /*cross=*/t5 && decoder, TensorRanks(spec.mesh())) *
        job->bytes_per_element;
  }
  job->shared_table_bytes = 0;
  job->token_table.gradient_bytes = 0;
  return absl::OkStatus();
}

// The given split, or an even one whose first stages have the remainder.
absl::StatusOr<std::vector<uint32_t>> LayersPerStage(const v1::JobSpec& job) {
  const uint32_t pipeline = job.mesh().pipeline();
  const uint32_t total = TotalLayers(job.model());
  const auto& given = job.planning().layers_per_stage();
  if (given.empty()) {
    if (pipeline > total) {
      return Wrong("job.mesh.pipeline",
                   absl::StrCat(pipeline, " stages for ", total, " layers; use at most ", total));
    }
    std::vector<uint32_t> layers(pipeline, total / pipeline);
    for (uint32_t stage = 0; stage < total % pipeline; ++stage) ++layers[stage];
    return layers;
  }
  const bool placed = !job.planning().rank_of_stage().empty();
  if (!placed && static_cast<uint32_t>(given.size()) != pipeline) {
    return Wrong("job.planning.layers_per_stage",
                 absl::StrCat(given.size(), " numbers for ", pipeline,
                              " stages; set job.planning.rank_of_stage for several stages a rank"));
  }
  uint64_t sum = 0;
  for (const uint32_t layers : given) {
    if (layers == 0) return Wrong("job.planning.layers_per_stage", "every stage needs at least one layer");
    sum += layers;
  }
  if (sum != total) {
    return Wrong("job.planning.layers_per_stage",
                 absl::StrCat("their sum is ", sum, ", the model has ", total));
  }
  return std::vector<uint32_t>(given.begin(), given.end());
}

// The given placement, or one stage a rank. Every rank has a stage.
absl::StatusOr<std::vector<int32_t>> RankOfStage(const v1::JobSpec& job, size_t stages) {
  const uint32_t pipeline = job.mesh().pipeline();
  const auto& given = job.planning().rank_of_stage();
  std::vector<int32_t> ranks(stages);
  std::iota(ranks.begin(), ranks.end(), 0);
  if (given.empty()) return ranks;
  constexpr char kField[] = "job.planning.rank_of_stage";
  if (job.planning().layers_per_stage().empty()) {
    return Wrong(kField, "needs job.planning.layers_per_stage");
  }
  if (static_cast<size_t>(given.size()) != stages) {
    return Wrong(kField, absl::StrCat(given.size(), " ranks for ", stages, " stages"));
  }
  std::vector<char> used(pipeline, 0);
  for (size_t stage = 0; stage < stages; ++stage) {
    const uint32_t rank = given[static_cast<int>(stage)];
    if (rank >= pipeline) {
      return Wrong(kField, absl::StrCat("stage ", stage, " is on rank ", rank, " of ", pipeline));
    }
    ranks[stage] = static_cast<int32_t>(rank);
    used[rank] = 1;
  }
  for (uint32_t rank = 0; rank < pipeline; ++rank) {
    if (used[rank] == 0) return Wrong(kField, absl::StrCat("rank ", rank, " has no stage"));
  }
  return ranks;
}

absl::StatusOr<Topology> TopologyFromProto(const v1::JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint32_t> layers, LayersPerStage(job));
  PipelineShape shape;
  shape.stages = MakeStages(layers, LayerOrderOf(job.model()));
  shape.positions = static_cast<int32_t>(job.mesh().pipeline());
  shape.group = GroupOf(job);
  PENSTOCK_ASSIGN_OR_RETURN(shape.position_of_stage, RankOfStage(job, shape.stages.size()));
  return Topology(shape, static_cast<int>(job.mesh().data()));
}

absl::Status ReadPolicy(const v1::PlanningOptions& options, Job* job) {
  switch (options.policy()) {
    case v1::POLICY_PADDING:
      job->policy = Policy::kPadding;
      return absl::OkStatus();
    case v1::POLICY_PACKED:
      job->policy = Policy::kPacked;
      return absl::OkStatus();
    case v1::POLICY_TOKEN_BUDGET:
      job->policy = Policy::kTokenBudget;
      return absl::OkStatus();
    case v1::POLICY_DYNAMIC:
      job->policy = Policy::kDynamic;
      return absl::OkStatus();
    case v1::POLICY_CONCATENATED:
      job->policy = Policy::kConcatenated;
      return absl::OkStatus();
    default:
      return Wrong("job.planning.policy",
                   "is not set; use padding, concatenated, packed, token_budget or dynamic");
  }
}

absl::Status ReadChoices(const v1::PlanningOptions& options, Job* job) {
  PENSTOCK_RETURN_IF_ERROR(ReadPolicy(options, job));
  switch (options.layout()) {
    case v1::LAYOUT_CHOICE_PADDED:
      job->layout = LayoutChoice::kPadded;
      break;
    case v1::LAYOUT_CHOICE_PACKED:
      job->layout = LayoutChoice::kPacked;
      break;
    case v1::LAYOUT_CHOICE_UNSPECIFIED:
    case v1::LAYOUT_CHOICE_AUTO:
      job->layout = LayoutChoice::kAuto;
      break;
    default:
      return Wrong("job.planning.layout", "is unknown");
  }
  switch (options.recompute()) {
    case v1::RECOMPUTE_NONE:
      job->recompute = RecomputeMode::kNone;
      break;
    case v1::RECOMPUTE_SELECTIVE:
      job->recompute = RecomputeMode::kSelective;
      break;
    case v1::RECOMPUTE_FULL:
      job->recompute = RecomputeMode::kFull;
      break;
    case v1::RECOMPUTE_UNSPECIFIED:
    case v1::RECOMPUTE_AUTO:
      job->recompute = RecomputeMode::kAuto;
      break;
    default:
      return Wrong("job.planning.recompute", "is unknown");
  }
  switch (options.schedule()) {
    case v1::SCHEDULE_UNSPECIFIED:
    case v1::SCHEDULE_AUTO:
      job->schedule = ScheduleFamily::kAuto;
      break;
    case v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD:
      job->schedule = ScheduleFamily::kOneForwardOneBackward;
      break;
    case v1::SCHEDULE_READY_FIRST:
      job->schedule = ScheduleFamily::kReadyFirst;
      break;
    case v1::SCHEDULE_SPLIT_BACKWARD:
      job->schedule = ScheduleFamily::kSplitBackward;
      break;
    case v1::SCHEDULE_INTERLEAVED:
      job->schedule = ScheduleFamily::kInterleaved;
      break;
    default:
      return Wrong("job.planning.schedule", "is unknown");
  }
  switch (options.effort()) {
    case v1::EFFORT_FAST:
      job->effort = Effort::kFast;
      break;
    case v1::EFFORT_THOROUGH:
      job->effort = Effort::kThorough;
      break;
    case v1::EFFORT_UNSPECIFIED:
    case v1::EFFORT_NORMAL:
      job->effort = Effort::kNormal;
      break;
    default:
      return Wrong("job.planning.effort", "is unknown");
  }
  return absl::OkStatus();
}

absl::Status ReadMemory(const v1::JobSpec& spec, Job* job) {
  MemoryLimits& limits = job->memory_limits;
  limits.common = CommonMemoryLimit(spec);
  if (limits.common <= 0) {
    return Wrong("job.planning.memory_limit_bytes",
                 "is 0, and so is profile.cluster.memory_bytes; set one of them");
  }
  const auto ranks = static_cast<uint32_t>(job->topology.ranks());
  std::vector<int64_t> of_ranks(ranks, limits.common);
  for (const v1::RankMemoryLimit& limit : spec.planning().rank_memory_limits()) {
    if (limit.rank() >= ranks)
      return Wrong("job.planning.rank_memory_limits",
                   absl::StrCat("rank ", limit.rank(), "; job.mesh has ", ranks, " ranks"));
    of_ranks[limit.rank()] = limit.bytes();
  }
  limits.common = of_ranks.front();
  const bool alike = std::ranges::all_of(of_ranks, [&](int64_t limit) { return limit == limits.common; });
  if (!alike) limits.of_ranks = std::move(of_ranks);
  return absl::OkStatus();
}

absl::Status ReadStageSplit(const v1::PlanningOptions& options, Job* job) {
  switch (options.stage_split()) {
    case v1::STAGE_SPLIT_UNSPECIFIED:
    case v1::STAGE_SPLIT_AUTO:
      job->stage_split_auto = options.layers_per_stage().empty();
      break;
    case v1::STAGE_SPLIT_EVEN:
      break;
    default:
      return Wrong("job.planning.stage_split", "is unknown");
  }
  constexpr char kField[] = "job.planning.typical_samples";
  for (int i = 0; i < options.typical_samples_size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const SampleTokens tokens,
        SampleFromProto(options.typical_samples(i), absl::StrCat(kField, "[", i, "]"), *job));
    job->typical_samples.push_back(tokens);
  }
  job->typical_batch_size = static_cast<int32_t>(options.typical_batch_size());
  return absl::OkStatus();
}

absl::Status ReadGradientBuckets(const v1::PlanningOptions& planning, Job* job) {
  job->gradient_bucket_bytes = static_cast<int64_t>(planning.gradient_bucket_bytes());
  if (job->gradient_bucket_bytes == 0 || !job->parameter_shares) return absl::OkStatus();
  return Wrong("job.planning.gradient_bucket_bytes",
               "with job.planning.parameter_shares gradients go to shares in rounds; leave it out");
}

}  // namespace

absl::StatusOr<Job> JobFromProto(const v1::JobSpec& spec, const World& world) {
  Job job;
  PENSTOCK_RETURN_IF_ERROR(CheckJobLimits(spec));
  PENSTOCK_RETURN_IF_ERROR(CheckJobId("job.job_id", spec.job_id()));
  PENSTOCK_RETURN_IF_ERROR(CheckModel(spec.model()));
  PENSTOCK_RETURN_IF_ERROR(CheckMesh(spec.mesh()));
  PENSTOCK_RETURN_IF_ERROR(CheckGroup(spec));
  job.job_id = spec.job_id();
  job.architecture =
      spec.model().architecture() == v1::ARCHITECTURE_GPT ? Architecture::kGpt : Architecture::kT5;
  job.hidden = spec.model().hidden();
  job.key_value_heads = KeyValueHeads(spec.model());
  job.head_width = HeadWidth(spec.model());
  job.windows = WindowsOf(spec.model());
  job.max_sequence_length = spec.model().max_sequence_length();
  job.tasks = spec.tasks_size();
  job.bytes_per_element = ElementBytes(spec.model().dtype());
  job.shared_table_bytes = SharedTableBytes(spec.model());
  job.token_table = TokenTableOf(spec.model(), job.bytes_per_element);
  PENSTOCK_RETURN_IF_ERROR(ReadAdapters(spec, &job));
  ReadExperts(spec.model(), &job);
  const int64_t profiled = spec.profile().bytes_per_element();
  if (profiled != 0 && profiled != job.bytes_per_element) {
    return Wrong("job.profile.bytes_per_element",
                 absl::StrCat(profiled, "; job.model.dtype has ", job.bytes_per_element,
                              ": profile the model in the number format that it trains in"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckProfiledLayers(spec));
  PENSTOCK_ASSIGN_OR_RETURN(job.topology, TopologyFromProto(spec));
  for (const v1::SlowRank& slow : spec.profile().slow_ranks()) {
    if (slow.rank() >= static_cast<uint32_t>(job.topology.ranks())) {
      return Wrong("job.profile.slow_ranks",
                   absl::StrCat("rank ", slow.rank(), "; job.mesh has ", job.topology.ranks(), " ranks"));
    }
  }
  for (const v1::SlowLink& slow : spec.profile().slow_links()) {
    const uint32_t rank = std::max(slow.from(), slow.to());
    if (rank < static_cast<uint32_t>(job.topology.ranks())) continue;
    return Wrong("job.profile.slow_links",
                 absl::StrCat("rank ", rank, "; job.mesh has ", job.topology.ranks(), " ranks"));
  }
  PENSTOCK_RETURN_IF_ERROR(ReadChoices(spec.planning(), &job));
  PENSTOCK_RETURN_IF_ERROR(ReadStageSplit(spec.planning(), &job));
  PENSTOCK_RETURN_IF_ERROR(ReadMemory(spec, &job));
  job.shard_optimizer_state = spec.planning().shard_optimizer_state();
  job.parameter_shares = spec.planning().parameter_shares();
  if (job.parameter_shares && job.shard_optimizer_state) {
    return Wrong("job.planning.shard_optimizer_state",
                 "with job.planning.parameter_shares all ranks divide parameters and state already; leave it "
                 "out");
  }
  PENSTOCK_RETURN_IF_ERROR(ReadGradientBuckets(spec.planning(), &job));
  job.world = world;
  PENSTOCK_RETURN_IF_ERROR(ReadShareWeights(spec.planning(), &job));
  job.micro_batch_size = static_cast<int32_t>(spec.planning().micro_batch_size());
  job.token_cap = spec.planning().token_cap();
  const uint32_t most_parts = spec.planning().most_parts();
  job.most_parts = static_cast<int32_t>(most_parts > 0 ? most_parts : kMostParts);
  if (spec.look_ahead_window() > 4096) return Wrong("job.look_ahead_window", "use at most 4096");
  return job;
}

}  // namespace penstock::core
