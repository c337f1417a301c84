// The planner: from the lengths of a global batch to a plan that every rank can execute.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<core::Planner> planner, core::Planner::Create(job));
//   PENSTOCK_RETURN_IF_ERROR(planner->ValidateBatch(batch));
//   PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, planner->MakePlan(batch));
//
// Pure: the same job and batch give the same plan, bit for bit. Nothing blocks, and all that takes long can
// be stopped and paused (parallel/stop.h). A planner never changes, so any number of threads may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/bound/lower_bound.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/footprint/planning_footprint.h"
#include "planner/core/model/sample_estimate.h"
#include "planner/core/model/types.h"
#include "planner/core/parallel/run_tasks.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

class PlanLook;
class ScheduleSpace;

class Planner {
 public:
  // Whether errors about memory and shapes end with the smallest changes that would fit
  // (feasibility/smallest_changes.h). Finding them plans the batch several times.
  enum class Explain : uint8_t { kCauseAlone, kChanges };

  // Validates every field of the job.
  // Possible errors: INVALID_ARGUMENT ("job.mesh.pipeline: 0; use at least 1"), UNIMPLEMENTED (a policy or
  // degree that this version cannot plan). The message names the field. Stages that the job leaves to the
  // planner take seconds; `run_tasks` may use threads for them: they are the same. CANCELLED when `stop` says
  // so. `stages`: of a planner for the same job, whose choice is taken; null: chosen anew. `world`: of a job
  // that is planned beside others, whose plans it is merged with.
  static absl::StatusOr<std::unique_ptr<Planner>> Create(
      const v1::JobSpec& job, Explain explain = Explain::kChanges, const RunTasks& run_tasks = RunSerially,
      StopToken stop = {}, const v1::Topology* stages = nullptr, const World& world = {});
  // All of that which is known at once: whether every field is there and within its bounds.
  static absl::Status CheckJob(const v1::JobSpec& job, const World& world = {});

  // What can be said about a batch without planning it.
  // Possible errors: INVALID_ARGUMENT: no samples; a sample without tokens, longer than the model's maximum,
  // outside of the profile, or too large for the memory of a stage even alone. The message names the sample,
  // and, with kChanges, what would fit: finding that takes up to seconds, else it is linear in the samples.
  // CANCELLED when `stop` says so.
  absl::Status ValidateBatch(const v1::Batch& batch, Explain explain = Explain::kChanges,
                             StopToken stop = {}) const;

  // planning_time_ns is left 0: the core has no clock. plan_version is 1.
  // Possible errors: those of ValidateBatch; RESOURCE_EXHAUSTED (every sample fits alone, but the
  // micro-batches that the job asks for do not); INTERNAL (our bug). `run_tasks` may use threads: the plan is
  // the same. CANCELLED, and never a part of a plan, when `stop` says so: within about 0.1 s.
  absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, const RunTasks& run_tasks = RunSerially,
                                    StopToken stop = {}) const;

  // Of a mesh that has none of an iteration's samples, while those that it is merged with have them: its
  // ranks bring parameters and gradients, and step. Possible errors: INTERNAL (our bug), CANCELLED.
  absl::StatusOr<v1::Plan> MakeIdlePlan(uint64_t iteration, StopToken stop = {}) const;

  // To see what a plan is about to take before it is made (plan_look.h). The planner must outlive it.
  // Possible errors: those of ValidateBatch.
  absl::StatusOr<std::unique_ptr<PlanLook>> Look(const v1::Batch& batch, StopToken stop = {}) const;

  // Of samples that are not learnt (Plan.forward_only, execution.md, section 16). Possible errors:
  // as MakePlan.
  absl::StatusOr<v1::Plan> MakeForwardPlan(const v1::Batch& batch, const RunTasks& run_tasks = RunSerially,
                                           StopToken stop = {}) const;

  // By rank, what it needs at least beside its share: its stages, and of the samples that fit its replica
  // with these limits of its ranks and without shares the one that takes most, alone. Possible errors:
  // INVALID_ARGUMENT (the batch is malformed), CANCELLED.
  absl::StatusOr<std::vector<int64_t>> LeastBytesBesideShares(const v1::Batch& batch,
                                                              absl::Span<const int64_t> limits,
                                                              StopToken stop) const;

  // From which follows how much memory planning it takes (foresee/foreseen_batch.h, with how long that
  // takes). Possible errors: INVALID_ARGUMENT (malformed: what ValidateBatch says of it).
  absl::StatusOr<PlanningShape> ShapeOf(const v1::Batch& batch) const;

  // What no plan for the batch with these stages and options can beat, nanoseconds: quick, where many ways to
  // train are compared. Possible errors: those of ValidateBatch.
  absl::StatusOr<int64_t> LowerBoundNs(const v1::Batch& batch) const;

  // Of each sample. Possible errors: INVALID_ARGUMENT (the batch is malformed), CANCELLED.
  absl::StatusOr<std::vector<SampleEstimate>> EstimateSamples(const v1::Batch& batch, StopToken stop) const;

  // See contract/content_hash.h.
  static std::string ContentHash(const v1::Plan& plan);

  // Who is where in every plan.
  v1::Topology topology() const;

  // Before any plan: searches for a part of the time, with answers that are as good but not the same
  // (Job::judges_evenly).
  void SearchQuickly() { job_.judges_evenly = job_.effort != Effort::kThorough; }

  const v1::JobSpec& spec() const { return spec_; }
  const Job& job() const { return job_; }
  const CostModel& costs() const { return costs_; }

 private:
  friend class PlanLook;
  enum class Passes : uint8_t { kForwardAndBackward, kForwardAlone };

  Planner(v1::JobSpec spec, Job job, Profile profile, Explain explain);

  // All of Create but whether the stages fit in memory.
  static absl::StatusOr<std::unique_ptr<Planner>> Make(const v1::JobSpec& job, Explain explain,
                                                       const RunTasks& run_tasks, StopToken stop,
                                                       const v1::Topology* stages = nullptr,
                                                       const World& world = {});
  absl::Status CheckStages() const;
  // Of one sample.
  absl::Status CheckSample(const ScheduleSpace& space, const Batch& batch, uint32_t sample) const;
  absl::Status CheckSamples(const Batch& batch, StopToken stop) const;
  absl::StatusOr<v1::Plan> PlanPasses(Passes passes, const v1::Batch& batch, const RunTasks& run_tasks,
                                      StopToken stop) const;
  absl::StatusOr<v1::Plan> PlanSamples(Passes passes, const Batch& batch, const RunTasks& run_tasks,
                                       StopToken stop) const;
  // `status` with the smallest changes that would fit. `plan_them`: whether it is enough that all samples fit
  // alone, or a plan must be found.
  absl::Status WithChanges(const absl::Status& status, const v1::Batch& batch, bool plan_them, StopToken stop,
                           Passes passes = Passes::kForwardAndBackward) const;

  v1::JobSpec spec_;
  Job job_;
  CostModel costs_;
  LowerBound lower_bound_;
  Explain explain_;
};

}  // namespace penstock::core
