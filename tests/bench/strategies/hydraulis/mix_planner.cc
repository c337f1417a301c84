#include "tests/bench/strategies/hydraulis/mix_planner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/strategy_list.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/search/candidate.h"
#include "planner/core/simulate/memory_account.h"
#include "planner/core/simulate/simulator.h"
#include "planner/core/strategies/merge_plans.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::hydraulis {
namespace {

struct Made {
  core::Assignment assignment;
  core::ProgramSet programs;
  core::ScheduleFamily schedule = core::ScheduleFamily::kOneForwardOneBackward;
};

// What the passes are, where a stage is a rank.
core::ScheduleFamily FamilyOf(const core::Job& job, const std::vector<core::ReplicaPipeline>& pipelines) {
  for (const core::ReplicaPipeline& pipeline : pipelines)
    for (const core::Pass& pass : pipeline.passes.passes)
      if (pass.kind == core::PassKind::kBackwardWeight) return core::ScheduleFamily::kSplitBackward;
  const bool strict = job.schedule == core::ScheduleFamily::kOneForwardOneBackward;
  return strict ? job.schedule : core::ScheduleFamily::kReadyFirst;
}

// Packed, on one context rank, not in parts.
core::Assignment AssignmentOf(const core::Candidate& candidate,
                              const std::vector<core::ReplicaPipeline>& pipelines, int stages) {
  core::Assignment assignment(candidate.replicas.size());
  for (size_t replica = 0; replica < candidate.replicas.size(); ++replica) {
    const std::vector<int32_t>& slots = candidate.replicas[replica].slots;
    for (size_t m = 0; m < slots.size(); ++m) {
      core::MicroBatch& micro_batch = assignment[replica].emplace_back();
      micro_batch.samples = candidate.table.samples(slots[m]);
      const auto recompute = pipelines[replica].recompute.begin() + static_cast<ptrdiff_t>(m * stages);
      micro_batch.recompute.assign(recompute, recompute + stages);
    }
  }
  return assignment;
}

absl::StatusOr<Made> Make(const core::Planner& planner, absl::Span<const core::SampleTokens> tokens,
                          const std::vector<MicroBatches>& replicas, core::Caution caution) {
  const core::CostModel& costs = planner.costs();
  const core::ScheduleSpace space(costs, planner.job(), core::AvailableBytes(planner.job(), costs), caution);
  core::Candidate candidate =
      core::MakeCandidate(space, tokens, std::vector<core::Groups>(replicas), core::Layout::kPacked);
  core::ReplicaEvaluator evaluator(space);
  core::Evaluate(&evaluator, &candidate);
  std::vector<core::ReplicaPipeline> pipelines(candidate.replicas.size());
  for (size_t replica = 0; replica < pipelines.size(); ++replica) {
    const core::CandidateReplica& part = candidate.replicas[replica];
    if (!evaluator.MakePipeline(candidate.table, part.slots, part.rules, candidate.orders[replica],
                                static_cast<int>(replica), &pipelines[replica]))
      return absl::ResourceExhaustedError(absl::StrCat("replica ", replica, " has no room for its samples"));
  }
  Made made;
  PENSTOCK_ASSIGN_OR_RETURN(made.programs, core::BuildPrograms(costs, pipelines));
  for (const core::RankMemory& memory : core::AccountMemory(made.programs))
    if (memory.peak_bytes > planner.job().memory_limits.common)
      return absl::ResourceExhaustedError("programs need more memory than there is");
  made.schedule = FamilyOf(planner.job(), pipelines);
  made.assignment = AssignmentOf(candidate, pipelines, costs.stages());
  return made;
}

}  // namespace

absl::StatusOr<v1::Plan> PlanOnMesh(const core::Planner& planner, const v1::Batch& batch,
                                    const std::vector<MicroBatches>& replicas) {
  PENSTOCK_ASSIGN_OR_RETURN(const core::Batch samples, core::BatchFromProto(batch, planner.job()));
  absl::StatusOr<Made> made = Make(planner, samples.samples, replicas, core::Caution::kLittle);
  if (absl::IsResourceExhausted(made.status()))
    made = Make(planner, samples.samples, replicas, core::Caution::kMuch);
  PENSTOCK_RETURN_IF_ERROR(made.status());
  core::Simulator simulator;
  PENSTOCK_RETURN_IF_ERROR(simulator.Run(made->programs));
  v1::Plan plan = core::PlanToProto({.spec = planner.spec(),
                                     .job = planner.job(),
                                     .batch = samples,
                                     .costs = planner.costs(),
                                     .assignment = made->assignment,
                                     .programs = made->programs,
                                     .simulator = simulator,
                                     .schedule = made->schedule});
  plan.set_content_hash(core::Planner::ContentHash(plan));
  return plan;
}

v1::Strategy StrategyOf(absl::Span<const Scheme> schemes, const Mix& mix) {
  v1::Strategy strategy;
  for (const ReplicaGroup& group : mix) {
    v1::Mesh& mesh = *strategy.add_meshes()->mutable_mesh();
    mesh.set_tensor(static_cast<uint32_t>(schemes[group.scheme].tensor));
    mesh.set_pipeline(static_cast<uint32_t>(schemes[group.scheme].pipeline));
    mesh.set_data(static_cast<uint32_t>(group.replicas));
  }
  return strategy;
}

absl::StatusOr<MixPlanner> MixPlanner::Create(const v1::JobSpec& base, absl::Span<const Scheme> schemes,
                                              const Mix& mix) {
  v1::JobSpec job = base;
  cli::SetStrategies({StrategyOf(schemes, mix)}, &job);
  PENSTOCK_ASSIGN_OR_RETURN(auto planners,
                            core::MeshPlanners::Create(job, 0, core::Planner::Explain::kCauseAlone,
                                                       core::RunSerially, {}, nullptr));
  return MixPlanner(std::move(job), std::move(planners));
}

absl::StatusOr<v1::Plan> MixPlanner::Plan(const v1::Batch& batch,
                                          absl::Span<const PackedReplica> replicas) const {
  std::vector<core::MeshPlan> plans(planners_->meshes());
  size_t next = 0;
  for (int mesh = 0; mesh < planners_->meshes(); ++mesh) {
    const core::Planner& planner = planners_->planner(mesh);
    v1::Batch own;
    own.set_iteration(batch.iteration());
    std::vector<MicroBatches> micro_batches;
    for (int replica = 0; replica < planner.job().topology.replicas(); ++replica, ++next) {
      micro_batches.push_back(replicas[next].micro_batches);
      for (std::vector<uint32_t>& micro_batch : micro_batches.back()) {
        for (uint32_t& sample : micro_batch) {
          plans[mesh].samples.push_back(sample);
          *own.add_samples() = batch.samples(static_cast<int>(sample));
          sample = static_cast<uint32_t>(own.samples_size()) - 1;
        }
      }
    }
    absl::StatusOr<v1::Plan> plan = own.samples().empty() ? planner.MakeIdlePlan(batch.iteration(), {})
                                                          : PlanOnMesh(planner, own, micro_batches);
    PENSTOCK_RETURN_IF_ERROR(plan.status());
    plans[mesh].plan = *std::move(plan);
  }
  const core::Planner& first = planners_->planner(0);
  v1::Plan plan;
  if (plans.size() == 1) {
    // Samples as the batch numbers them.
    plan = std::move(plans[0].plan);
    for (v1::Replica& replica : *plan.mutable_replicas())
      for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches())
        for (uint32_t& sample : *micro_batch.mutable_samples()) sample = plans[0].samples[sample];
  } else {
    plan = core::MergePlans(job_, first.costs().ReshardTimes(), std::move(plans));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const core::Batch samples, core::BatchFromProto(batch, first.job()));
  plan.set_loss_weight(samples.loss_weight);
  plan.set_content_hash(core::Planner::ContentHash(plan));
  PENSTOCK_RETURN_IF_ERROR(core::ViolationsToStatus(core::CheckPlan(batch, plan)));
  return plan;
}

}  // namespace penstock::hydraulis
