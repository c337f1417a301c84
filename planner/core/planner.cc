#include "planner/core/planner.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/content_hash.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/feasibility/misfit.h"
#include "planner/core/feasibility/smallest_changes.h"
#include "planner/core/fit/plan_forward.h"
#include "planner/core/fit/plan_in_memory.h"
#include "planner/core/foresee/foreseen_batch.h"
#include "planner/core/search/policies.h"
#include "planner/core/simulate/simulator.h"
#include "planner/core/stages/stage_balance.h"
#include "planner/core/stages/stage_choice.h"

namespace penstock::core {
namespace {

// A grid knows rectangles alone; packed micro-batches need a closed form.
absl::Status ResolveLayout(const Profile& profile, Job* job) {
  // Shares of samples have no rectangles.
  if (job->topology.shape().group.context > 1 && job->layout == LayoutChoice::kAuto)
    job->layout = LayoutChoice::kPacked;
  if (profile.has_closed_form()) return absl::OkStatus();
  if (job->policy == Policy::kPacked || job->policy == Policy::kTokenBudget) {
    return absl::InvalidArgumentError(
        "job.planning.policy: it packs samples end to end, which needs a profile with a closed form, and "
        "this "
        "one has a grid only; use padding, or dynamic with job.planning.layout padded");
  }
  if (job->policy == Policy::kDynamic && job->layout == LayoutChoice::kPacked) {
    return absl::InvalidArgumentError(
        "job.planning.layout: 'packed' needs a profile with a closed form, and this one has a grid only; use "
        "padded");
  }
  if (job->layout == LayoutChoice::kAuto) job->layout = LayoutChoice::kPadded;
  return absl::OkStatus();
}

struct JobAndProfile {
  Job job;
  Profile profile;
};

absl::StatusOr<JobAndProfile> ReadJob(const v1::JobSpec& spec, const World& world) {
  PENSTOCK_ASSIGN_OR_RETURN(Job job, JobFromProto(spec, world));
  absl::StatusOr<Profile> profile = ProfileFromProto(spec.profile(), job.architecture, job.windows);
  if (!profile.ok()) {
    return absl::Status(profile.status().code(), absl::StrCat("job.", profile.status().message()));
  }
  PENSTOCK_RETURN_IF_ERROR(ResolveLayout(*profile, &job));
  return JobAndProfile{std::move(job), *std::move(profile)};
}

// Of a topology that TopologyToProto made: all replicas look alike, and the ranks of a stage group follow
// each other.
StageLayout LayoutOf(const v1::Topology& topology) {
  StageLayout layout;
  for (const v1::StageTopology& stage : topology.replicas(0).stages()) {
    layout.layers.push_back(stage.encoder_layers() + stage.decoder_layers());
    layout.position_of_stage.push_back(static_cast<int32_t>(stage.ranks(0)) / stage.ranks_size());
  }
  return layout;
}

// Rows of one part follow each other; a row is a sample where there are several. One that is cut comes last
// in its first part, and so first in the next one.
void PutPartsTogether(const PartOfRow& part_of_row, MicroBatch* micro_batch) {
  if (part_of_row.empty()) return;
  const MicroBatch apart = *micro_batch;
  micro_batch->samples.clear();
  micro_batch->spans.clear();
  micro_batch->part_rows = {0};
  micro_batch->part_chunks = {0};
  for (int part = 0; part < PartsIn(part_of_row); ++part) {
    int32_t chunk = 0;
    for (const bool cut : {false, true}) {
      for (size_t row = 0; row < part_of_row.size(); ++row) {
        if (part_of_row[row].part != part || part_of_row[row].cut != cut) continue;
        micro_batch->samples.push_back(apart.samples[row]);
        if (!apart.spans.empty()) micro_batch->spans.push_back(apart.spans[row]);
        if (cut) chunk = apart.spans[row].ranks;
      }
    }
    micro_batch->part_rows.push_back(static_cast<int32_t>(micro_batch->samples.size()) - (chunk > 0 ? 1 : 0));
    micro_batch->part_chunks.push_back(chunk);
  }
  if (std::ranges::all_of(micro_batch->part_chunks, [](int32_t chunk) { return chunk == 0; }))
    micro_batch->part_chunks.clear();
}

Assignment MakeAssignment(const Candidate& candidate, const std::vector<ReplicaPipeline>& pipelines,
                          int stages) {
  Assignment assignment(candidate.replicas.size());
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    const std::vector<int32_t>& slots = candidate.replicas[replica].slots;
    for (size_t m = 0; m < slots.size(); ++m) {
      MicroBatch micro_batch;
      micro_batch.samples = candidate.table.samples(slots[m]);
      micro_batch.layout = candidate.table.layout(slots[m]);
      micro_batch.row = candidate.table.row(slots[m]);
      micro_batch.spans = candidate.table.spans(slots[m]);
      PutPartsTogether(candidate.table.part_of_row(slots[m]), &micro_batch);
      micro_batch.whole_backward = candidate.table.whole_backward(slots[m]);
      const auto recompute = pipelines[replica].recompute.begin() + static_cast<std::ptrdiff_t>(m * stages);
      micro_batch.recompute.assign(recompute, recompute + stages);
      assignment[replica].push_back(std::move(micro_batch));
    }
  }
  return assignment;
}

// What the programs belong to: a split backward pass shows, and so do several stages a rank.
ScheduleFamily FamilyOf(const Job& job, const std::vector<ReplicaPipeline>& pipelines) {
  for (const ReplicaPipeline& pipeline : pipelines) {
    for (const Pass& pass : pipeline.passes.passes) {
      if (pass.kind == PassKind::kBackwardWeight) return ScheduleFamily::kSplitBackward;
    }
  }
  if (static_cast<int32_t>(job.topology.shape().stages.size()) > job.topology.shape().positions)
    return ScheduleFamily::kInterleaved;
  return job.schedule == ScheduleFamily::kOneForwardOneBackward ? job.schedule : ScheduleFamily::kReadyFirst;
}

// A plan that takes longer is none that anybody wants, and its times could not be added up.
absl::Status CheckTime(absl::string_view what, int64_t time_ns) {
  if (time_ns <= kMostPlanNs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " takes ", time_ns,
                                                 " ns or more, which is above the limit of ", kMostPlanNs,
                                                 " ns (nearly ten hours): are the times of job.profile in "
                                                 "nanoseconds, and its tables in milliseconds?"));
}

// Forward and backward pass of a stage.
int64_t StageNs(const CostModel& costs, int stage, const LayerCosts& layers) {
  return costs.ForwardNs(stage, layers) + costs.BackwardNs(stage, layers, StageRecompute());
}

// Of all stages, one after the other.
int64_t PassesNs(const CostModel& costs, const LayerCosts& layers) {
  int64_t time = 0;
  for (int stage = 0; stage < costs.stages(); ++stage) time += StageNs(costs, stage, layers);
  return time;
}

// Of a sample that is a micro-batch of its own.
TokenSums SumsAlone(const Job& job, const Batch& batch, uint32_t sample) {
  const bool padded = job.policy == Policy::kPadding || job.policy == Policy::kConcatenated ||
                      (job.policy == Policy::kDynamic && job.layout == LayoutChoice::kPadded);
  return SumsOf({&sample, 1}, batch.samples, padded ? Layout::kPadded : Layout::kPacked);
}

}  // namespace

Planner::Planner(v1::JobSpec spec, Job job, Profile profile, Explain explain)
    : spec_(std::move(spec)),
      job_(std::move(job)),
      costs_(std::move(profile), job_),
      lower_bound_(costs_, job_),
      explain_(explain) {}

absl::Status Planner::CheckJob(const v1::JobSpec& spec, const World& world) {
  return ReadJob(spec, world).status();
}

absl::StatusOr<std::unique_ptr<Planner>> Planner::Make(const v1::JobSpec& spec, Explain explain,
                                                       const RunTasks& run_tasks, StopToken stop,
                                                       const v1::Topology* stages, const World& world) {
  PENSTOCK_ASSIGN_OR_RETURN(JobAndProfile read, ReadJob(spec, world));
  auto& [job, profile] = read;
  if (job.stage_split_auto) {
    job = stages != nullptr
              ? WithStages(job, LayoutOf(*stages))
              : ChooseStages(profile, job, /*probe=*/explain == Explain::kChanges, run_tasks, stop);
  }
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  std::unique_ptr<Planner> planner(new Planner(spec, std::move(job), std::move(profile), explain));
  if (planner->job_.recompute == RecomputeMode::kSelective && !planner->costs_.has_selective()) {
    return absl::InvalidArgumentError("job.planning.recompute: the profile has no figures for 'selective'");
  }
  return planner;
}

absl::StatusOr<std::unique_ptr<Planner>> Planner::Create(const v1::JobSpec& spec, Explain explain,
                                                         const RunTasks& run_tasks, StopToken stop,
                                                         const v1::Topology* stages, const World& world) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Planner> planner,
                            Make(spec, explain, run_tasks, stop, stages, world));
  const absl::Status fits = planner->CheckStages();
  if (!fits.ok()) return planner->WithChanges(fits, v1::Batch(), /*plan_them=*/false, stop);
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  return planner;
}

absl::Status Planner::CheckStages() const {
  const bool alike = job_.memory_limits.alike();
  for (int rank = 0; rank < job_.topology.ranks(); ++rank) {
    const int position = job_.topology.PlaceOf(rank).position;
    const int64_t bytes = alike ? costs_.RankStaticBytes(position) : costs_.StaticBytesOfRank(rank);
    const int64_t limit = job_.memory_limits.Of(rank);
    if (bytes < limit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("job.mesh.pipeline: weights, gradients and optimizer state of ",
                     DescribeStages(costs_, position), " need ", bytes, " bytes, limit ", limit,
                     alike ? "" : absl::StrCat(" of rank ", job_.world.first_rank + rank)));
  }
  return absl::OkStatus();
}

absl::Status Planner::WithChanges(const absl::Status& status, const v1::Batch& batch, bool plan_them,
                                  StopToken stop, Passes passes) const {
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  if (explain_ == Explain::kCauseAlone) return status;
  const auto ask = [&](const v1::JobSpec& other, const v1::Batch& changed, bool plan) {
    v1::JobSpec job = other;
    // They are of these ranks, and of those of the meshes beside this one.
    if (job_.world.ranks > 0 || RanksOf(job) != RanksOf(spec_)) job.mutable_planning()->clear_share_weights();
    const auto planner = Make(job, Explain::kCauseAlone, RunSerially, stop);
    if (!planner.ok() || !(*planner)->CheckStages().ok()) return false;
    if (changed.samples().empty()) return true;
    const absl::StatusOr<Batch> samples = BatchFromProto(changed, (*planner)->job_);
    if (!samples.ok() || !(*planner)->CheckSamples(*samples, stop).ok()) return false;
    return !plan || (*planner)->PlanSamples(passes, *samples, RunSerially, stop).ok();
  };
  const Attempts attempts = {
      .may_plan = [&](const v1::JobSpec& changed, const v1::Batch& b) { return ask(changed, b, false); },
      .plans = [&](const v1::JobSpec& changed, const v1::Batch& b) { return ask(changed, b, plan_them); }};
  const SmallestChanges changes = FindSmallestChanges(spec_, batch, attempts, stop);
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  return absl::Status(status.code(), absl::StrCat(status.message(), Describe(changes)));
}

absl::Status Planner::CheckSample(const ScheduleSpace& space, const Batch& batch, uint32_t sample) const {
  const TokenSums sums = SumsAlone(job_, batch, sample);
  LayerCosts layers;
  if (!costs_.Layers(costs_.EvenShare(sums), &layers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.samples[", sample, "]: ", DescribeUnknownShape(sums)));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckTime(absl::StrCat("batch.samples[", sample, "]: it alone"), PassesNs(costs_, layers)));
  if (space.FitsSomewhere(sums)) return absl::OkStatus();
  return absl::InvalidArgumentError(DescribeSample(space, job_, sample, sums));
}

absl::Status Planner::CheckSamples(const Batch& batch, StopToken stop) const {
  const ScheduleSpace space(costs_, job_, AvailableBytes(job_, costs_));
  // Of samples that are as long the first one: large batches have few lengths, and who submits one waits.
  absl::flat_hash_set<std::tuple<uint32_t, uint32_t, uint32_t>> checked;
  for (uint32_t sample = 0; sample < batch.samples.size(); ++sample) {
    const SampleTokens& tokens = batch.samples[sample];
    if (!checked.insert({tokens.source, tokens.target, tokens.loss}).second) continue;
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    PENSTOCK_RETURN_IF_ERROR(CheckSample(space, batch, sample));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SampleEstimate>> Planner::EstimateSamples(const v1::Batch& proto,
                                                                     StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch batch, BatchFromProto(proto, job_));
  const ScheduleSpace space(costs_, job_, AvailableBytes(job_, costs_));
  std::vector<SampleEstimate> estimates(batch.samples.size());
  for (uint32_t sample = 0; sample < batch.samples.size(); ++sample) {
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!CheckSample(space, batch, sample).ok()) continue;
    LayerCosts layers;
    costs_.Layers(costs_.EvenShare(SumsAlone(job_, batch, sample)), &layers);
    std::vector<double> of_position(costs_.positions(), 0);
    for (int stage = 0; stage < costs_.stages(); ++stage)
      of_position[costs_.position_of(stage)] += static_cast<double>(StageNs(costs_, stage, layers));
    estimates[sample] = {.fits = true,
                         .busiest_ns = *std::ranges::max_element(of_position),
                         .path_ns = std::accumulate(of_position.begin(), of_position.end(), 0.0),
                         .least_alone_ns = static_cast<double>(lower_bound_({&batch.samples[sample], 1})),
                         .least_work_ns = lower_bound_.WorkNs(batch.samples[sample])};
  }
  return estimates;
}

absl::StatusOr<std::vector<int64_t>> Planner::LeastBytesBesideShares(const v1::Batch& proto,
                                                                     absl::Span<const int64_t> limits,
                                                                     StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch batch, BatchFromProto(proto, job_));
  const ScheduleSpace space(costs_, job_, AvailableBytes(job_, costs_));
  const Topology& topology = costs_.topology();
  std::vector<int64_t> of_stages, least;
  for (int position = 0; position < costs_.positions(); ++position) {
    const int rank = topology.RankAt(0, position);
    of_stages.push_back(costs_.StaticBytesOfRank(rank) - costs_.ShareBytes(rank));
  }
  for (int rank = 0; rank < topology.ranks(); ++rank)
    least.push_back(of_stages[topology.PlaceOf(rank).position]);
  for (uint32_t sample = 0; sample < batch.samples.size(); ++sample) {
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    const TokenSums sums = SumsAlone(job_, batch, sample);
    std::vector<int64_t> bytes = of_stages;
    for (int position = 0; position < costs_.positions(); ++position)
      bytes[position] += space.BytesAlone(position, sums);
    for (int replica = 0; replica < topology.replicas(); ++replica) {
      const std::vector<int32_t> ranks = topology.PipelineGroup(replica);
      const auto takes = [&](int rank) { return bytes[topology.PlaceOf(rank).position]; };
      if (!std::ranges::all_of(ranks, [&](int rank) { return takes(rank) <= limits[rank]; })) continue;
      for (const int rank : ranks) least[rank] = std::max(least[rank], takes(rank));
    }
  }
  return least;
}

absl::Status Planner::ValidateBatch(const v1::Batch& batch, Explain explain, StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch samples, BatchFromProto(batch, job_));
  const absl::Status status = CheckSamples(samples, stop);
  if (status.ok() || explain == Explain::kCauseAlone) return status;
  return WithChanges(status, batch, /*plan_them=*/false, stop);
}

absl::StatusOr<int64_t> Planner::LowerBoundNs(const v1::Batch& batch) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch samples, BatchFromProto(batch, job_));
  PENSTOCK_RETURN_IF_ERROR(CheckSamples(samples, StopToken()));
  return lower_bound_(samples.samples);
}

absl::StatusOr<v1::Plan> Planner::MakePlan(const v1::Batch& batch, const RunTasks& run_tasks,
                                           StopToken stop) const {
  return PlanPasses(Passes::kForwardAndBackward, batch, run_tasks, stop);
}

absl::StatusOr<v1::Plan> Planner::MakeIdlePlan(uint64_t iteration, StopToken stop) const {
  Batch none;
  none.iteration = iteration;
  return PlanSamples(Passes::kForwardAndBackward, none, RunSerially, stop);
}

absl::StatusOr<v1::Plan> Planner::MakeForwardPlan(const v1::Batch& batch, const RunTasks& run_tasks,
                                                  StopToken stop) const {
  return PlanPasses(Passes::kForwardAlone, batch, run_tasks, stop);
}

absl::StatusOr<v1::Plan> Planner::PlanPasses(Passes passes, const v1::Batch& proto, const RunTasks& run_tasks,
                                             StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch batch, BatchFromProto(proto, job_));
  const absl::Status status = CheckSamples(batch, stop);
  if (!status.ok()) return WithChanges(status, proto, /*plan_them=*/true, stop, passes);
  absl::StatusOr<v1::Plan> plan = PlanSamples(passes, batch, run_tasks, stop);
  if (!absl::IsResourceExhausted(plan.status())) return plan;
  return WithChanges(plan.status(), proto, /*plan_them=*/true, stop, passes);
}

absl::StatusOr<v1::Plan> Planner::PlanSamples(Passes passes, const Batch& batch, const RunTasks& run_tasks,
                                              StopToken stop) const {
  const bool forward_only = passes == Passes::kForwardAlone;
  const auto fit = forward_only ? PlanForward : PlanInMemory;
  const Job job = AsForeseen(job_, costs_, batch);
  v1::Plan plan;
  {
    // What it is made of is gone before it is hashed, which takes memory, too.
    PENSTOCK_ASSIGN_OR_RETURN(const FittedPlan fitted, fit(costs_, job, batch.samples, run_tasks, stop));
    Simulator simulator;
    PENSTOCK_RETURN_IF_ERROR(simulator.Run(fitted.programs, stop));
    PENSTOCK_RETURN_IF_ERROR(CheckTime("batch.samples: the plan", simulator.makespan_ns()));
    const Assignment assignment = MakeAssignment(fitted.candidate, fitted.pipelines, costs_.stages());
    plan = PlanToProto({.spec = spec_,
                        .job = job_,
                        .batch = batch,
                        .costs = costs_,
                        .assignment = assignment,
                        .programs = fitted.programs,
                        .simulator = simulator,
                        .lower_bound_ns = forward_only ? 0 : lower_bound_(batch.samples, stop),
                        .schedule = FamilyOf(job_, fitted.pipelines),
                        .forward_only = forward_only,
                        .stop = stop});
  }
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  plan.set_content_hash(core::ContentHash(plan));
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  return plan;
}

absl::StatusOr<PlanningShape> Planner::ShapeOf(const v1::Batch& proto) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Batch batch, BatchFromProto(proto, job_));
  return ShapeOfBatch(job_, costs_, batch);
}

v1::Topology Planner::topology() const { return TopologyToProto(job_.topology); }

std::string Planner::ContentHash(const v1::Plan& plan) { return core::ContentHash(plan); }

}  // namespace penstock::core
