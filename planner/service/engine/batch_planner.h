// What the service needs of planning: a planner for each job, and a checker that did not make the plan.
// fake_batch_planner.h implements both for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/compact/packed_plan.h"
#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/core/calibrate/calibration.h"
#include "planner/core/footprint/planning_footprint.h"
#include "planner/core/parallel/stop.h"
#include "planner/service/engine/iteration_values.h"

namespace penstock {

// An iteration, and which ranks were slow by the costs that it was planned with.
struct CostedIteration {
  HeldIteration values;
  google::protobuf::RepeatedPtrField<v1::SlowRank> slow_ranks = {};
};

// Plans the batches of one job. Thread-safe, deterministic, and without side effects. What may take long
// takes a token and ends with CANCELLED soon after it is stopped (planner/core/parallel/stop.h).
class BatchPlanner {
 public:
  virtual ~BatchPlanner() = default;

  // Whether the batch can be planned at all. Linear in the samples, well below a microsecond for each and
  // stage. Messages name `batch.samples[j]`.
  // Possible errors: INVALID_ARGUMENT (malformed, or a sample that no rank has memory for).
  virtual absl::Status CheckBatch(const v1::Batch& batch, core::StopToken stop) const = 0;

  // The same; a refusal also says what would fit, which takes up to seconds to find.
  virtual absl::Status ValidateBatch(const v1::Batch& batch, core::StopToken stop) const = 0;

  // What planning the batch takes. Linear in the samples.
  // Possible errors: INVALID_ARGUMENT (malformed).
  virtual absl::StatusOr<core::PlanningShape> ShapeOf(const v1::Batch& batch) const = 0;

  // Who is where in every plan, by strategy, of those that it plans on in the order of their numbers; one
  // where the job has none.
  virtual std::vector<v1::Topology> Topologies() const = 0;

  // Of what computing takes in its plans, what is really waiting (CostProfile).
  virtual double waiting_share() const = 0;

  // Computes for milliseconds to seconds.
  // Possible errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (no plan fits in memory), CANCELLED.
  virtual absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, core::StopToken stop) const = 0;

  // Simulated devices take something else than what the costs of its plans say: costs are wrong on purpose.
  virtual bool devices_have_other_costs() const { return false; }

  // What the instructions of a rank take by this planner's costs, or by those of the devices where these are
  // others, in a plan that was made with other ones; by number, nanoseconds. Where passes hide some of what
  // ranks do together, the first rank that is asked of takes as long as unpacking the whole plan. Possible
  // errors: INVALID_ARGUMENT (not a plan of this job), INTERNAL (as of PackedPlan).
  virtual absl::StatusOr<std::vector<int64_t>> Durations(const v1::Batch& batch, const PackedPlan& plan,
                                                         uint32_t rank) const = 0;
};

class BatchPlannerFactory {
 public:
  virtual ~BatchPlannerFactory() = default;

  // What can be said about the specification at once: every field is there and within its bounds.
  // Possible errors: INVALID_ARGUMENT (a field, named).
  virtual absl::Status Check(const v1::JobSpec& job) const = 0;

  // What planning the batch takes with a job that has no planner; takes milliseconds. `batch` null: the
  // batches that are planned to choose stages, no samples where none are. Possible errors: INVALID_ARGUMENT
  // (as Create and BatchPlanner::ShapeOf, without what would fit).
  virtual absl::StatusOr<core::PlanningShape> ShapeOf(const v1::JobSpec& job,
                                                      const v1::Batch* batch) const = 0;

  // Checks the whole specification; a job that has a planner has at least one rank. Computes for up to
  // minutes where the stages are left to the planner. Thread-safe.
  // Possible errors: INVALID_ARGUMENT (a field of the specification, named), CANCELLED.
  // `topologies`: the stages that were chosen before, by strategy; plans are the same. Those of strategies
  // behind its end are chosen. `strategies`: the numbers of those that it plans on; empty: all.
  virtual absl::StatusOr<std::unique_ptr<BatchPlanner>> Create(const v1::JobSpec& job,
                                                               absl::Span<const v1::Topology> topologies,
                                                               absl::Span<const uint32_t> strategies,
                                                               core::StopToken stop) const = 0;

  // Costs that would have foretold the iterations, all of which have batch, plan and the reports of all
  // ranks; nothing: those in effect are as good. `job` with its own profile, prepared with `topologies`.
  // Computes for milliseconds to seconds; pure. Thread-safe. Possible errors: INVALID_ARGUMENT (an iteration
  // of another job), CANCELLED.
  virtual absl::StatusOr<std::optional<core::Calibration>> Calibrate(
      const v1::JobSpec& job, absl::Span<const v1::Topology> topologies, const v1::CostProfile& in_effect,
      const std::vector<HeldIteration>& iterations, core::StopToken stop) const = 0;

  // Where the time of iterations went, without what right costs would bring. Computes for up to seconds;
  // pure. Thread-safe. Possible errors: INVALID_ARGUMENT (what was reported of an iteration does not go
  // together), CANCELLED.
  virtual absl::StatusOr<v1::JobDiagnosis> Diagnose(const std::vector<CostedIteration>& iterations,
                                                    core::StopToken stop) const = 0;

  // The same of single passes. Possible errors: INVALID_ARGUMENT (job, or passes[i]: named), CANCELLED.
  virtual absl::StatusOr<core::Calibration> CalibratePasses(const v1::ReviseCostsRequest& request,
                                                            core::StopToken stop) const = 0;
};

class PlanChecker {
 public:
  virtual ~PlanChecker() = default;

  // Possible errors: INTERNAL (the plan breaks a rule, named with the instruction), CANCELLED. Thread-safe.
  virtual absl::Status Check(const v1::Batch& batch, const v1::Plan& plan, core::StopToken stop) const = 0;
};

}  // namespace penstock
