// Plans each batch on whichever of a job's strategies is fastest for it (Li et al. 2024, "Hydraulis", section
// 5: a strategy is chosen each iteration, by the lengths that came).
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<core::StrategyPlanner> planner,
//                             core::StrategyPlanner::Create(job));
//   PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, planner->MakePlan(batch));  // plan.strategy() says which
//
// A job without strategies has one: its mesh. Plans do not depend on the iteration before: parameters come
// from shares that no strategy changes, and what that takes is in each plan's makespan. Pure, as Planner is.
//
// Of a job whose strategies were changed while it runs some are there for plans that were made before: a
// planner of the others alone is made with their numbers.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/planner.h"
#include "planner/core/strategies/mesh_planners.h"

namespace penstock::core {

class StrategyPlanner {
 public:
  // As Planner::Create, for every strategy. `stages`: who is where by strategy, of a planner for the same
  // job; empty: stages are chosen, and so are those of strategies behind its end. `numbers`: the strategies
  // that plans are made on, by their numbers in the job, in any order; empty: all. Messages about one of
  // several strategies begin with "job.strategies[i]".
  // Possible errors, also: INVALID_ARGUMENT (the job has no strategy of a number).
  static absl::StatusOr<std::unique_ptr<StrategyPlanner>> Create(
      const v1::JobSpec& job, Planner::Explain explain = Planner::Explain::kChanges,
      const RunTasks& run_tasks = RunSerially, StopToken stop = {},
      absl::Span<const v1::Topology> stages = {}, absl::Span<const uint32_t> numbers = {});
  static absl::Status CheckJob(const v1::JobSpec& job);

  // As Planner's, for the first strategy that takes the batch. Where none does, the first one's error; of one
  // of several without what would fit, as that names other meshes. The same of batch.validation.
  absl::Status ValidateBatch(const v1::Batch& batch, Planner::Explain explain = Planner::Explain::kChanges,
                             StopToken stop = {}) const;

  // The plan with the smallest makespan, of the first such strategy. One that cannot be faster by its bound,
  // or, with less effort than thorough, is not as far as can be seen (plan_look.h), is not planned; of more
  // than four strategies only the one that seems to be the fastest is, unless its plan disappoints. Possible
  // errors: as Planner::MakePlan, of the first strategy, where no strategy has a plan. With it the plan of
  // batch.validation: on the same strategy where that can hold it, else on the first one that can.
  absl::StatusOr<v1::Plan> MakePlan(const v1::Batch& batch, const RunTasks& run_tasks = RunSerially,
                                    StopToken stop = {}) const;

  // That of the strategy whose planning takes most memory: they are planned one after another. Possible
  // errors: as Planner::ShapeOf.
  absl::StatusOr<PlanningShape> ShapeOf(const v1::Batch& batch) const;

  // Who is where in every plan, in the order of numbers().
  std::vector<v1::Topology> topologies() const;

  int strategies() const { return static_cast<int>(planners_.size()); }
  // Of the strategies that it plans on, ascending.
  const std::vector<uint32_t>& numbers() const { return numbers_; }
  // Possible errors: INVALID_ARGUMENT (it does not plan on this strategy).
  absl::StatusOr<const MeshPlanners*> Of(const v1::Plan& plan) const;
  // `place`: among numbers(), as all indices below.
  const MeshPlanners& planner(int place) const { return *planners_[place]; }

 private:
  StrategyPlanner(std::vector<uint32_t> numbers, std::vector<std::unique_ptr<MeshPlanners>> planners)
      : numbers_(std::move(numbers)), planners_(std::move(planners)) {}

  static constexpr int64_t kNothingSeen = std::numeric_limits<int64_t>::max();

  // A strategy that can hold the batch.
  struct Candidate {
    int strategy = 0;
    std::unique_ptr<MeshLook> look;
    int64_t bound_ns = 0;
    // As it was seen last.
    int64_t seen_ns = kNothingSeen;
    bool ruled_out = false;
  };
  // Those with the lowest bound first.
  std::vector<Candidate> Candidates(const v1::Batch& batch, StopToken stop) const;
  // Looks at all that may be the fastest, closer and closer, and has the one that seems to be come first and
  // those that are ruled out come last.
  static absl::Status LookAt(const RunTasks& run_tasks, StopToken stop, std::vector<Candidate>* candidates);
  // Besides the best plan so far.
  static bool AreFew(const std::vector<Candidate>& candidates);
  bool IsWorthPlanning(const Candidate& candidate, bool few, const v1::Plan& best) const;
  // Bounds alone rule a strategy out.
  bool thorough() const;

  double pass_noise() const;
  // What the plan takes in the mean, where there is noise. Possible errors: those of RunUnderNoise.
  absl::Status AddExpected(StopToken stop, v1::Plan* plan) const;

  absl::Status ValidateSamples(const v1::Batch& batch, Planner::Explain explain, StopToken stop) const;
  // Of a batch's validation: that some strategy can hold it.
  absl::Status CheckValidation(const v1::Batch& validation, StopToken stop) const;
  // Of a batch's samples alone, as the next one.
  absl::StatusOr<PlanningShape> ShapeOfSamples(const v1::Batch& batch) const;
  absl::StatusOr<v1::Plan> PlanTraining(const v1::Batch& batch, const RunTasks& run_tasks,
                                        StopToken stop) const;
  // Gives a plan of this strategy its number. The first strategy of a job is what plans have anyway.
  void SetStrategy(int strategy, v1::Plan* plan) const;
  // Where a plan's strategy is among numbers(); nothing: it is none of them.
  std::optional<int> PlaceOf(const v1::Plan& plan) const;
  // Of a batch's validation. `first`: the strategy that is tried first.
  absl::StatusOr<v1::Plan> PlanValidation(const v1::Batch& validation, int first, const RunTasks& run_tasks,
                                          StopToken stop) const;
  // What the first strategy says of a batch that no strategy can hold.
  absl::Status WhyNone(const absl::Status& status) const;

  const std::vector<uint32_t> numbers_;
  // In their order; at least one.
  const std::vector<std::unique_ptr<MeshPlanners>> planners_;
};

}  // namespace penstock::core
