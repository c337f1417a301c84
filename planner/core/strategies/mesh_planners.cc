#include "planner/core/strategies/mesh_planners.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/cost/world_reshard.h"
#include "planner/core/strategies/bound_of_meshes.h"
#include "planner/core/strategies/merge_plans.h"
#include "planner/core/strategies/strategy_specs.h"

namespace penstock::core {
namespace {

// How often samples are given out, by Effort.
constexpr int kRoundsFast = 1;
constexpr int kRoundsNormal = 3;
constexpr int kRoundsThorough = 6;

absl::Status OfMesh(int meshes, int mesh, const absl::Status& status) {
  return meshes == 1 ? status : AnnotateError(status, absl::StrCat("meshes[", mesh, "]"));
}

// The part of a strategy's topology that is a mesh's, its ranks and replicas numbered from 0.
v1::Topology TopologyOfMesh(const v1::Topology& all, int first_rank, int first_replica, int replicas) {
  v1::Topology topology;
  for (int replica = first_replica; replica < first_replica + replicas; ++replica) {
    v1::ReplicaTopology* own = topology.add_replicas();
    *own = all.replicas(replica);
    for (v1::StageTopology& stage : *own->mutable_stages())
      for (uint32_t& rank : *stage.mutable_ranks()) rank -= static_cast<uint32_t>(first_rank);
  }
  return topology;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MeshPlanners>> MeshPlanners::Create(const v1::JobSpec& job, int strategy,
                                                                   Planner::Explain explain,
                                                                   const RunTasks& run_tasks, StopToken stop,
                                                                   const v1::Topology* stages,
                                                                   bool search_quickly) {
  const int meshes = MeshCount(job, strategy);
  std::vector<std::unique_ptr<Planner>> planners;
  if (meshes == 1) {
    PENSTOCK_ASSIGN_OR_RETURN(planners.emplace_back(), Planner::Create(SpecOfMesh(job, strategy, 0), explain,
                                                                       run_tasks, stop, stages));
    if (search_quickly) planners.front()->SearchQuickly();
    return std::unique_ptr<MeshPlanners>(new MeshPlanners(job, std::move(planners)));
  }
  std::vector<v1::Topology> chosen;
  const auto create = [&](int mesh, const World& world, const v1::Topology* taken,
                          Planner::Explain how) -> absl::StatusOr<std::unique_ptr<Planner>> {
    auto planner = Planner::Create(SpecOfMesh(job, strategy, mesh), how, run_tasks, stop, taken, world);
    if (!planner.ok()) return OfMesh(meshes, mesh, planner.status());
    return planner;
  };
  int first_replica = 0;
  for (int mesh = 0; mesh < meshes; ++mesh) {
    const int replicas = static_cast<int>(job.strategies(strategy).meshes(mesh).mesh().data());
    v1::Topology taken;
    const bool has_stages = stages != nullptr && first_replica + replicas <= stages->replicas_size();
    const World world = WorldOf(job, strategy, mesh);
    if (has_stages) taken = TopologyOfMesh(*stages, world.first_rank, first_replica, replicas);
    PENSTOCK_ASSIGN_OR_RETURN(planners.emplace_back(),
                              create(mesh, world, has_stages ? &taken : nullptr, explain));
    chosen.push_back(planners.back()->topology());
    first_replica += replicas;
  }
  // Once more, now that all stages are known.
  std::vector<const CostModel*> costs;
  for (const auto& planner : planners) costs.push_back(&planner->costs());
  const WorldReshard reshard = ReshardOfWorld(costs);
  for (int mesh = 0; mesh < meshes; ++mesh) {
    World world = WorldOf(job, strategy, mesh);
    world.reshard = reshard;
    // What would fit a mesh that has some of a batch's samples is no answer for the batch.
    PENSTOCK_ASSIGN_OR_RETURN(planners[mesh],
                              create(mesh, world, &chosen[mesh], Planner::Explain::kCauseAlone));
    if (search_quickly) planners[mesh]->SearchQuickly();
  }
  return std::unique_ptr<MeshPlanners>(new MeshPlanners(job, std::move(planners)));
}

v1::Topology MeshPlanners::topology() const {
  std::vector<v1::Topology> topologies;
  for (const auto& planner : planners_) topologies.push_back(planner->topology());
  return MergeTopologies(topologies);
}

absl::StatusOr<std::vector<MeshLoad>> MeshPlanners::LoadsOf(const v1::Batch& batch, StopToken stop) const {
  std::vector<MeshLoad> loads;
  for (const auto& planner : planners_) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<SampleEstimate> estimates, planner->EstimateSamples(batch, stop));
    loads.push_back({.samples = std::move(estimates), .replicas = planner->job().topology.replicas()});
  }
  return loads;
}

absl::Status MeshPlanners::CheckAllFit(const v1::Batch& batch, const std::vector<MeshLoad>& loads,
                                       StopToken stop) const {
  for (int sample = 0; sample < batch.samples_size(); ++sample) {
    if (std::ranges::any_of(loads, [&](const MeshLoad& load) { return load.samples[sample].fits; })) continue;
    // What the first mesh says of this sample.
    v1::Batch one;
    *one.add_samples() = batch.samples(sample);
    return AnnotateError(planners_.front()->ValidateBatch(one, Planner::Explain::kCauseAlone, stop),
                         absl::StrCat("batch.samples[", sample,
                                      "] fits on none of the meshes; on the first one, where it is alone"));
  }
  return absl::OkStatus();
}

absl::Status MeshPlanners::ValidateBatch(const v1::Batch& batch, Planner::Explain explain,
                                         StopToken stop) const {
  if (meshes() == 1) return planners_.front()->ValidateBatch(batch, explain, stop);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<MeshLoad> loads, LoadsOf(batch, stop));
  return CheckAllFit(batch, loads, stop);
}

absl::StatusOr<int64_t> MeshPlanners::LowerBoundNs(const v1::Batch& batch) const {
  if (meshes() == 1) return planners_.front()->LowerBoundNs(batch);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<MeshLoad> loads, LoadsOf(batch, StopToken()));
  PENSTOCK_RETURN_IF_ERROR(CheckAllFit(batch, loads, StopToken()));
  return BoundOf(loads);
}

int64_t MeshPlanners::BoundOf(const std::vector<MeshLoad>& loads) const {
  int64_t whole = std::numeric_limits<int64_t>::max();
  for (const auto& planner : planners_)
    for (int position = 0; position < planner->costs().positions(); ++position)
      whole = std::min(whole, planner->costs().WholeIterationNs(position));
  return static_cast<int64_t>(BoundOfMeshes(loads, static_cast<double>(whole)));
}

int MeshPlanners::Rounds() const {
  switch (planners_.front()->job().effort) {
    case Effort::kFast:
      return kRoundsFast;
    case Effort::kThorough:
      return kRoundsThorough;
    case Effort::kNormal:
      break;
  }
  return kRoundsNormal;
}

v1::Batch MeshPlanners::PartOf(const v1::Batch& batch, const std::vector<int>& mesh_of_sample, int mesh) {
  v1::Batch part;
  part.set_iteration(batch.iteration());
  for (size_t sample = 0; sample < mesh_of_sample.size(); ++sample)
    if (mesh_of_sample[sample] == mesh) *part.add_samples() = batch.samples(static_cast<int>(sample));
  return part;
}

absl::StatusOr<std::unique_ptr<MeshLook>> MeshPlanners::Look(const v1::Batch& batch, StopToken stop) const {
  std::vector<std::unique_ptr<PlanLook>> looks;
  if (meshes() == 1) {
    PENSTOCK_ASSIGN_OR_RETURN(looks.emplace_back(), planners_.front()->Look(batch, stop));
    const int64_t bound = looks.front()->BoundNs();
    return std::unique_ptr<MeshLook>(new MeshLook(bound, std::move(looks)));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<MeshLoad> loads, LoadsOf(batch, stop));
  PENSTOCK_RETURN_IF_ERROR(CheckAllFit(batch, loads, stop));
  const std::vector<int> mesh_of_sample = AssignSamples(loads);
  for (int mesh = 0; mesh < meshes(); ++mesh) {
    const v1::Batch own = PartOf(batch, mesh_of_sample, mesh);
    if (own.samples().empty()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(looks.emplace_back(), planners_[mesh]->Look(own, stop));
  }
  return std::unique_ptr<MeshLook>(new MeshLook(BoundOf(loads), std::move(looks)));
}

absl::StatusOr<int64_t> MeshLook::AtNs(Sight sight, const RunTasks& run_tasks) {
  int64_t longest = 0;
  for (const auto& look : looks_) {
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t time, look->AtNs(sight, run_tasks));
    longest = std::max(longest, time);
  }
  return longest;
}

absl::StatusOr<int64_t> MeshPlanners::LookNs(const v1::Batch& batch, Sight sight, const RunTasks& run_tasks,
                                             StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<MeshLook> look, Look(batch, stop));
  return look->AtNs(sight, run_tasks);
}

absl::StatusOr<v1::Plan> MeshPlanners::PlanAssigned(const v1::Batch& batch,
                                                    const std::vector<int>& mesh_of_sample,
                                                    std::vector<MeshLoad>* loads, const RunTasks& run_tasks,
                                                    StopToken stop) const {
  std::vector<MeshPlan> plans(meshes());
  for (int mesh = 0; mesh < meshes(); ++mesh) {
    const v1::Batch own = PartOf(batch, mesh_of_sample, mesh);
    for (size_t sample = 0; sample < mesh_of_sample.size(); ++sample)
      if (mesh_of_sample[sample] == mesh) plans[mesh].samples.push_back(static_cast<uint32_t>(sample));
    absl::StatusOr<v1::Plan> plan = own.samples().empty()
                                        ? planners_[mesh]->MakeIdlePlan(batch.iteration(), stop)
                                        : planners_[mesh]->MakePlan(own, run_tasks, stop);
    if (!plan.ok()) {
      return AnnotateError(plan.status(), absl::StrCat("meshes[", mesh, "], which has ", own.samples_size(),
                                                       " of the samples, numbered among these"));
    }
    MeshLoad& load = (*loads)[mesh];
    load.factor = 1;
    const int64_t whole = planners_[mesh]->costs().WholeIterationNs(0);
    const double estimate = EndOfMesh(load, mesh_of_sample, mesh);
    if (estimate > 0)
      load.factor = std::max(1e-3, static_cast<double>(plan->predicted().makespan_ns() - whole) / estimate);
    plans[mesh].plan = *std::move(plan);
  }
  return MergePlans(job_, planners_.front()->costs().ReshardTimes(), std::move(plans));
}

absl::StatusOr<v1::Plan> MeshPlanners::MakePlan(const v1::Batch& batch, const RunTasks& run_tasks,
                                                StopToken stop) const {
  if (meshes() == 1) return planners_.front()->MakePlan(batch, run_tasks, stop);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<MeshLoad> loads, LoadsOf(batch, stop));
  PENSTOCK_RETURN_IF_ERROR(CheckAllFit(batch, loads, stop));
  std::vector<int> mesh_of_sample = AssignSamples(loads);
  const int64_t bound = BoundOf(loads);
  std::optional<v1::Plan> best;
  for (int round = 1;; ++round) {
    absl::StatusOr<v1::Plan> plan = PlanAssigned(batch, mesh_of_sample, &loads, run_tasks, stop);
    if (!plan.ok() && !best.has_value()) return plan.status();
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (!plan.ok()) break;
    if (!best.has_value() || plan->predicted().makespan_ns() < best->predicted().makespan_ns())
      best = *std::move(plan);
    if (round == Rounds()) break;
    std::vector<int> next = AssignSamples(loads);
    if (next == mesh_of_sample) break;
    mesh_of_sample = std::move(next);
  }
  best->set_lower_bound_ns(bound);
  // In the order of the batch, not of the meshes: sums of doubles depend on it.
  PENSTOCK_ASSIGN_OR_RETURN(const Batch samples, BatchFromProto(batch, planners_.front()->job()));
  best->set_loss_weight(samples.loss_weight);
  best->set_content_hash(Planner::ContentHash(*best));
  return *std::move(best);
}

absl::Status MeshPlanners::CheckForward() const {
  if (meshes() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "validation is not planned on ", meshes(),
      " meshes side by side: add a strategy of one mesh, or validate checkpoints beside the training"));
}

absl::StatusOr<v1::Plan> MeshPlanners::MakeForwardPlan(const v1::Batch& batch, const RunTasks& run_tasks,
                                                       StopToken stop) const {
  PENSTOCK_RETURN_IF_ERROR(CheckForward());
  return planners_.front()->MakeForwardPlan(batch, run_tasks, stop);
}

absl::StatusOr<PlanningShape> MeshPlanners::ShapeOf(const v1::Batch& batch) const {
  PENSTOCK_ASSIGN_OR_RETURN(PlanningShape largest, planners_.front()->ShapeOf(batch));
  for (int mesh = 1; mesh < meshes(); ++mesh) {
    PENSTOCK_ASSIGN_OR_RETURN(const PlanningShape shape, planners_[mesh]->ShapeOf(batch));
    if (FootprintOf(shape).planning_bytes > FootprintOf(largest).planning_bytes) largest = shape;
  }
  return largest;
}

}  // namespace penstock::core
