// Plans a batch for one strategy: on its mesh, or on several side by side, whose replicas differ.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<core::MeshPlanners> planners,
//                             core::MeshPlanners::Create(job, strategy));
//   PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, planners->MakePlan(batch));
//
// Samples are given to the meshes by estimates, each mesh is planned as if it were alone, and samples are
// given out anew with what the plans took, as long as that makes a faster plan (Li et al. 2024, "Hydraulis",
// section 5.2, assigns in two stages likewise: to replicas, then inside of each). Pure, as Planner is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/planner.h"
#include "planner/core/search/sight.h"
#include "planner/core/strategies/mesh_look.h"
#include "planner/core/strategies/sample_assignment.h"

namespace penstock::core {

class MeshPlanners {
 public:
  // As Planner::Create, for every mesh of the strategy. `stages`: who is where, of planners for the same
  // strategy; null: stages are chosen. `search_quickly`: see Planner. Of several meshes messages begin with
  // "meshes[i]: ".
  static absl::StatusOr<std::unique_ptr<MeshPlanners>> Create(const v1::JobSpec& job, int strategy,
                                                              Planner::Explain explain,
                                                              const RunTasks& run_tasks, StopToken stop,
                                                              const v1::Topology* stages,
                                                              bool search_quickly = false);

  // As Planner's. Of several meshes: that every sample fits on one of them.
  absl::Status ValidateBatch(const v1::Batch& batch, Planner::Explain explain, StopToken stop) const;
  absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, const RunTasks& run_tasks, StopToken stop) const;
  // As Planner's. Possible errors: INVALID_ARGUMENT, too, of several meshes: see CheckForward.
  absl::StatusOr<v1::Plan> MakeForwardPlan(const v1::Batch& batch, const RunTasks& run_tasks,
                                           StopToken stop) const;
  // Whether there are forward plans at all. INVALID_ARGUMENT: its meshes are side by side.
  absl::Status CheckForward() const;
  absl::StatusOr<int64_t> LowerBoundNs(const v1::Batch& batch) const;
  // Of several meshes, as samples are given to them first.
  absl::StatusOr<std::unique_ptr<MeshLook>> Look(const v1::Batch& batch, StopToken stop) const;
  absl::StatusOr<int64_t> LookNs(const v1::Batch& batch, Sight sight, const RunTasks& run_tasks,
                                 StopToken stop) const;
  // Of several meshes: of the one that needs most, with all samples.
  absl::StatusOr<PlanningShape> ShapeOf(const v1::Batch& batch) const;

  // Who is where in every plan.
  v1::Topology topology() const;

  int meshes() const { return static_cast<int>(planners_.size()); }
  const Planner& planner(int mesh) const { return *planners_[mesh]; }

 private:
  MeshPlanners(v1::JobSpec job, std::vector<std::unique_ptr<Planner>> planners)
      : job_(std::move(job)), planners_(std::move(planners)) {}

  absl::StatusOr<std::vector<MeshLoad>> LoadsOf(const v1::Batch& batch, StopToken stop) const;
  // That each sample fits on some mesh.
  absl::Status CheckAllFit(const v1::Batch& batch, const std::vector<MeshLoad>& loads, StopToken stop) const;
  // What plans of the meshes took goes into the factors of `loads`.
  absl::StatusOr<v1::Plan> PlanAssigned(const v1::Batch& batch, const std::vector<int>& mesh_of_sample,
                                        std::vector<MeshLoad>* loads, const RunTasks& run_tasks,
                                        StopToken stop) const;
  // The samples of a mesh; of an assignment.
  static v1::Batch PartOf(const v1::Batch& batch, const std::vector<int>& mesh_of_sample, int mesh);
  int64_t BoundOf(const std::vector<MeshLoad>& loads) const;
  int Rounds() const;

  v1::JobSpec job_;
  std::vector<std::unique_ptr<Planner>> planners_;
};

}  // namespace penstock::core
