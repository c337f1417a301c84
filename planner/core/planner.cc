#include "planner/core/planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/contract/content_hash.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/search/policies.h"
#include "planner/core/simulate/bubble.h"
#include "planner/core/simulate/simulator.h"

namespace penstock::core {
namespace {

// How often memory is tightened when the exact account of the programs is above the conservative one of the
// search.
constexpr int kMemoryAttempts = 8;

// Bytes that micro-batches may take on each stage.
std::vector<int64_t> AvailableBytes(const Job& job, const CostModel& costs) {
  std::vector<int64_t> available;
  available.reserve(costs.stages());
  for (int stage = 0; stage < costs.stages(); ++stage) {
    available.push_back(job.memory_limit_bytes - costs.StaticBytes(stage));
  }
  return available;
}

// Fits every replica and makes the programs.
absl::StatusOr<ProgramSet> MakePrograms(const CostModel& costs, const Candidate& candidate,
                                        ReplicaEvaluator* evaluator,
                                        std::vector<ReplicaPipeline>* pipelines) {
  pipelines->assign(candidate.replicas.size(), ReplicaPipeline());
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    const int first_rank = static_cast<int>(replica) * costs.ranks();
    if (!evaluator->MakePipeline(candidate.table, candidate.replicas[replica], first_rank,
                                 &(*pipelines)[replica])) {
      return absl::ResourceExhaustedError(
          "no plan fits in memory: allow recompute (job.planning.recompute: auto or full), use more pipeline "
          "stages, smaller "
          "micro-batches or a larger job.planning.memory_limit_bytes");
    }
  }
  return BuildPrograms(costs, *pipelines);
}

// Takes what the programs use above the limit away from the stages; false when nothing was above it.
bool Tighten(const ProgramSet& programs, const Job& job, std::vector<int64_t>* available) {
  bool above = false;
  const std::vector<RankMemory> memory = AccountMemory(programs);
  std::vector<int64_t> excess(job.pipeline, 0);
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    int64_t& position = excess[rank % excess.size()];
    position = std::max(position, memory[rank].peak_bytes - job.memory_limit_bytes);
  }
  for (size_t stage = 0; stage < available->size(); ++stage) {
    const int64_t bytes = excess[job.rank_of_stage[stage]];
    if (bytes > 0) above = true;
    (*available)[stage] -= bytes;
  }
  return above;
}

Assignment MakeAssignment(const Candidate& candidate, const std::vector<ReplicaPipeline>& pipelines,
                          int stages) {
  Assignment assignment(candidate.replicas.size());
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    const std::vector<int>& slots = candidate.replicas[replica];
    for (size_t m = 0; m < slots.size(); ++m) {
      MicroBatch micro_batch;
      micro_batch.samples = candidate.table.samples(slots[m]);
      micro_batch.layout = candidate.table.layout(slots[m]);
      micro_batch.row = candidate.table.row(slots[m]);
      const auto recompute = pipelines[replica].recompute.begin() + static_cast<std::ptrdiff_t>(m * stages);
      micro_batch.recompute.assign(recompute, recompute + stages);
      assignment[replica].push_back(std::move(micro_batch));
    }
  }
  return assignment;
}

}  // namespace

Planner::Planner(v1::JobSpec spec, Job job, Profile profile)
    : spec_(std::move(spec)),
      job_(std::move(job)),
      costs_(std::move(profile), job_),
      lower_bound_(costs_, job_) {}

absl::StatusOr<std::unique_ptr<Planner>> Planner::Create(const v1::JobSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(Job job, JobFromProto(spec));
  absl::StatusOr<Profile> profile = ProfileFromProto(spec.profile(), job.architecture);
  if (!profile.ok()) {
    return absl::Status(profile.status().code(), absl::StrCat("job.", profile.status().message()));
  }
  std::unique_ptr<Planner> planner(new Planner(spec, std::move(job), *std::move(profile)));
  if (planner->job_.recompute == RecomputeMode::kSelective && !planner->costs_.has_selective()) {
    return absl::InvalidArgumentError("job.planning.recompute: the profile has no figures for 'selective'");
  }
  for (int stage = 0; stage < planner->costs_.stages(); ++stage) {
    const int64_t bytes = planner->costs_.StaticBytes(stage);
    if (bytes < planner->job_.memory_limit_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job.mesh.pipeline: weights, gradients and optimizer state of stage ", stage, " take ",
                     bytes, " bytes, the limit is ", planner->job_.memory_limit_bytes,
                     "; use more stages or set job.planning.shard_optimizer_state"));
  }
  return planner;
}

absl::Status Planner::SampleTooLarge(const Batch& batch, uint32_t sample, int stage) const {
  const TokenSums sums = SumsOf({&sample, 1}, batch.samples, Layout::kPacked);
  const StageMemory memory = costs_.Memory(stage, sums);
  const RecomputeMode most = job_.recompute == RecomputeMode::kAuto ? RecomputeMode::kFull : job_.recompute;
  const int64_t needed = costs_.StaticBytes(stage) + PassingBytes(memory) +
                         HeldBytes(costs_, stage, memory, InitialRecompute(costs_.stage(stage), most));
  const bool may_recompute =
      job_.recompute == RecomputeMode::kNone || job_.recompute == RecomputeMode::kSelective;
  return absl::InvalidArgumentError(absl::StrCat(
      "batch.samples[", sample, "]: ", sums.source + sums.target, " tokens do not fit on stage ", stage,
      ": needs ", needed, " bytes, limit ", job_.memory_limit_bytes, "; try ",
      may_recompute ? "recompute full, " : "", "more pipeline stages or a shorter maximum length"));
}

absl::Status Planner::CheckSamples(const Batch& batch) const {
  const ReplicaEvaluator evaluator(costs_, AvailableBytes(job_, costs_));
  MicroBatchTable table(costs_, batch.samples, job_.recompute);
  const bool padded = job_.policy == Policy::kPadding || job_.policy == Policy::kConcatenated ||
                      (job_.policy == Policy::kDynamic && job_.layout == LayoutChoice::kPadded);
  const int slot = table.Add({}, padded ? Layout::kPadded : Layout::kPacked);
  for (uint32_t sample = 0; sample < batch.samples.size(); ++sample) {
    table.samples(slot).assign(1, sample);
    table.Update(slot);
    if (!table.known(slot)) {
      const TokenSums& sums = table.sums(slot);
      return absl::InvalidArgumentError(
          absl::StrCat("batch.samples[", sample, "]: shape [1, ", sums.source, ", ", sums.target,
                       "] is outside of the profile's grid, and the profile has no closed form for it"));
    }
    for (int stage = 0; stage < costs_.stages(); ++stage) {
      if (!evaluator.FitsAlone(table, slot, stage)) return SampleTooLarge(batch, sample, stage);
    }
  }
  return absl::OkStatus();
}

absl::Status Planner::ValidateBatch(const v1::Batch& batch) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch samples, BatchFromProto(batch, job_));
  return CheckSamples(samples);
}

absl::StatusOr<v1::Plan> Planner::MakePlan(const v1::Batch& proto) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch batch, BatchFromProto(proto, job_));
  PENSTOCK_RETURN_IF_ERROR(CheckSamples(batch));
  ReplicaEvaluator evaluator(costs_, AvailableBytes(job_, costs_));
  const Candidate candidate = PlanByPolicy(costs_, job_, batch.samples, &evaluator);
  std::vector<ReplicaPipeline> pipelines;
  PENSTOCK_ASSIGN_OR_RETURN(ProgramSet programs, MakePrograms(costs_, candidate, &evaluator, &pipelines));
  for (int attempt = 0; Tighten(programs, job_, &evaluator.available_bytes()); ++attempt) {
    if (attempt == kMemoryAttempts) return absl::ResourceExhaustedError("no plan fits in memory");
    PENSTOCK_ASSIGN_OR_RETURN(programs, MakePrograms(costs_, candidate, &evaluator, &pipelines));
  }
  Simulator simulator;
  PENSTOCK_RETURN_IF_ERROR(simulator.Run(programs));
  const Assignment assignment = MakeAssignment(candidate, pipelines, costs_.stages());
  v1::Plan plan =
      PlanToProto({spec_, job_, batch, costs_, assignment, programs, simulator, lower_bound_(batch.samples)});
  plan.set_content_hash(core::ContentHash(plan));
  return plan;
}

std::string Planner::ContentHash(const v1::Plan& plan) { return core::ContentHash(plan); }

}  // namespace penstock::core
