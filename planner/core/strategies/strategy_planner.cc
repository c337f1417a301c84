#include "planner/core/strategies/strategy_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/strategies/strategy_specs.h"

namespace penstock::core {
namespace {

// Of noise: half of them mirror the others, so that the mean of few is near the true one. Plans are chosen
// with other seeds, which follow from the samples.
constexpr int kExpectedDraws = 32;
constexpr uint64_t kExpectedSeed = 1;

// Of so many all that may still be faster are planned. Of more the one that seems to be the fastest, so that
// planning takes at most about twice as long as on it alone: those are looked at closer that seem to take by
// at most so much more than the fastest at a glance; and another one is planned where a plan takes by so much
// more than the other one was seen to take.
constexpr size_t kFewStrategies = 4;
constexpr double kLookedAtCloserWithin = 0.04;
constexpr double kDisappointing = 0.03;

// An error of one of several strategies says which.
absl::Status OfStrategy(const v1::JobSpec& job, int strategy, const absl::Status& status) {
  if (job.strategies().empty()) return status;
  return AnnotateError(status, absl::StrCat("job.strategies[", strategy, "]"));
}

// "batch.samples[3]: ..." of a validation becomes "batch.validation.samples[3]: ...".
absl::Status OfValidation(const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return status;
  const absl::string_view message = status.message();
  if (!absl::StartsWith(message, "batch.")) return AnnotateError(status, "batch.validation");
  return absl::Status(status.code(), absl::StrCat("batch.validation.", message.substr(6)));
}

// Ascending, each once; all where none are given.
absl::StatusOr<std::vector<uint32_t>> NumbersOf(const v1::JobSpec& job, absl::Span<const uint32_t> given) {
  std::vector<uint32_t> numbers(given.begin(), given.end());
  if (numbers.empty()) {
    numbers.resize(static_cast<size_t>(StrategyCount(job)));
    std::iota(numbers.begin(), numbers.end(), 0U);
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  if (numbers.back() < static_cast<uint32_t>(StrategyCount(job))) return numbers;
  return absl::InvalidArgumentError(
      absl::StrCat("job.strategies has ", job.strategies_size(), ", and no number ", numbers.back()));
}

}  // namespace

absl::Status StrategyPlanner::CheckJob(const v1::JobSpec& job) {
  PENSTOCK_RETURN_IF_ERROR(CheckStrategies(job));
  for (int i = 0; i < StrategyCount(job); ++i)
    for (int mesh = 0; mesh < MeshCount(job, i); ++mesh)
      PENSTOCK_RETURN_IF_ERROR(
          OfStrategy(job, i, Planner::CheckJob(SpecOfMesh(job, i, mesh), WorldOf(job, i, mesh))));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StrategyPlanner>> StrategyPlanner::Create(
    const v1::JobSpec& job, Planner::Explain explain, const RunTasks& run_tasks, StopToken stop,
    absl::Span<const v1::Topology> stages, absl::Span<const uint32_t> numbers) {
  PENSTOCK_RETURN_IF_ERROR(CheckStrategies(job));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<uint32_t> own, NumbersOf(job, numbers));
  std::vector<std::unique_ptr<MeshPlanners>> planners;
  for (const uint32_t number : own) {
    const int strategy = static_cast<int>(number);
    const v1::Topology* chosen = number < stages.size() ? &stages[number] : nullptr;
    absl::StatusOr<std::unique_ptr<MeshPlanners>> planner =
        MeshPlanners::Create(job, strategy, explain, run_tasks, stop, chosen,
                             /*search_quickly=*/own.size() > 1);
    if (!planner.ok()) return OfStrategy(job, strategy, planner.status());
    planners.push_back(*std::move(planner));
  }
  return std::unique_ptr<StrategyPlanner>(new StrategyPlanner(std::move(own), std::move(planners)));
}

absl::Status StrategyPlanner::ValidateBatch(const v1::Batch& batch, Planner::Explain explain,
                                            StopToken stop) const {
  PENSTOCK_RETURN_IF_ERROR(ValidateSamples(batch, explain, stop));
  return batch.has_validation() ? OfValidation(CheckValidation(batch.validation(), stop)) : absl::OkStatus();
}

absl::Status StrategyPlanner::CheckValidation(const v1::Batch& validation, StopToken stop) const {
  absl::Status why;
  for (const auto& planner : planners_) {
    absl::Status status = planner->CheckForward();
    if (status.ok()) status = planner->ValidateBatch(validation, Planner::Explain::kCauseAlone, stop);
    if (status.ok() || absl::IsCancelled(status)) return status;
    if (why.ok()) why = status;
  }
  return why;
}

absl::Status StrategyPlanner::ValidateSamples(const v1::Batch& batch, Planner::Explain explain,
                                              StopToken stop) const {
  for (size_t i = 1; i < planners_.size(); ++i) {
    if (planners_[i]->ValidateBatch(batch, Planner::Explain::kCauseAlone, stop).ok()) return absl::OkStatus();
  }
  if (strategies() == 1) return planners_.front()->ValidateBatch(batch, explain, stop);
  return WhyNone(planners_.front()->ValidateBatch(batch, Planner::Explain::kCauseAlone, stop));
}

absl::Status StrategyPlanner::WhyNone(const absl::Status& status) const {
  return AnnotateError(status, absl::StrCat("no strategy can hold the batch; the first: job.strategies[",
                                            numbers_.front(), "]"));
}

std::vector<StrategyPlanner::Candidate> StrategyPlanner::Candidates(const v1::Batch& batch,
                                                                    StopToken stop) const {
  std::vector<Candidate> candidates;
  for (int i = 0; i < strategies(); ++i) {
    absl::StatusOr<std::unique_ptr<MeshLook>> look = planners_[i]->Look(batch, stop);
    if (!look.ok()) continue;
    const int64_t bound = (*look)->BoundNs();
    candidates.push_back({.strategy = i, .look = *std::move(look), .bound_ns = bound});
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::bound_ns);
  return candidates;
}

absl::Status StrategyPlanner::LookAt(const RunTasks& run_tasks, StopToken stop,
                                     std::vector<Candidate>* candidates) {
  int64_t best = kNothingSeen;
  double error = 0;
  for (const Sight sight : {Sight::kGlance, Sight::kCloser}) {
    const auto is_left = [](const Candidate& candidate) { return !candidate.ruled_out; };
    if (std::ranges::count_if(*candidates, is_left) < 2) break;
    for (Candidate& candidate : *candidates) {
      const bool was_seen = candidate.seen_ns != kNothingSeen;
      const auto least = std::max(static_cast<double>(candidate.bound_ns),
                                  was_seen ? static_cast<double>(candidate.seen_ns) * (1 - error) : 0);
      candidate.ruled_out = candidate.ruled_out || least >= static_cast<double>(best);
      if (candidate.ruled_out) continue;
      const absl::StatusOr<int64_t> seen = candidate.look->AtNs(sight, run_tasks);
      PENSTOCK_RETURN_IF_ERROR(stop.status());
      if (seen.ok()) candidate.seen_ns = *seen;
      best = std::min(best, candidate.seen_ns);
    }
    error = AreFew(*candidates) ? ErrorOf(sight) : kLookedAtCloserWithin;
    std::ranges::stable_sort(*candidates, {}, [](const Candidate& candidate) {
      return std::pair(candidate.ruled_out, candidate.seen_ns);
    });
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Plan> StrategyPlanner::MakePlan(const v1::Batch& batch, const RunTasks& run_tasks,
                                                   StopToken stop) const {
  PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, PlanTraining(batch, run_tasks, stop));
  if (pass_noise() == 0 && !batch.has_validation()) return plan;
  PENSTOCK_RETURN_IF_ERROR(AddExpected(stop, &plan));
  if (batch.has_validation()) {
    absl::StatusOr<v1::Plan> validation =
        PlanValidation(batch.validation(), PlaceOf(plan).value_or(0), run_tasks, stop);
    if (!validation.ok()) return OfValidation(validation.status());
    *plan.mutable_validation() = *std::move(validation);
  }
  plan.set_content_hash(Planner::ContentHash(plan));
  return plan;
}

absl::Status StrategyPlanner::AddExpected(StopToken stop, v1::Plan* plan) const {
  if (pass_noise() == 0) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const TimesUnderNoise times,
                            RunUnderNoise(*plan, pass_noise(), kExpectedSeed, kExpectedDraws, stop));
  plan->mutable_predicted()->set_expected_ns(std::llround(times.mean_ns));
  return absl::OkStatus();
}

absl::StatusOr<v1::Plan> StrategyPlanner::PlanValidation(const v1::Batch& validation, int first,
                                                         const RunTasks& run_tasks, StopToken stop) const {
  absl::Status why;
  for (int i = 0; i < strategies(); ++i) {
    // The first one, then all others in their order.
    const int strategy = i == 0 ? first : i <= first ? i - 1 : i;
    absl::StatusOr<v1::Plan> plan = planners_[strategy]->MakeForwardPlan(validation, run_tasks, stop);
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (plan.ok()) SetStrategy(strategy, &*plan);
    if (plan.ok() || absl::IsInternal(plan.status())) return plan;
    if (why.ok()) why = plan.status();
  }
  return why;
}

absl::StatusOr<v1::Plan> StrategyPlanner::PlanTraining(const v1::Batch& batch, const RunTasks& run_tasks,
                                                       StopToken stop) const {
  if (strategies() == 1) {
    PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan, planners_.front()->MakePlan(batch, run_tasks, stop));
    SetStrategy(0, &plan);
    return plan;
  }
  std::vector<Candidate> candidates = Candidates(batch, stop);
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  if (!thorough()) PENSTOCK_RETURN_IF_ERROR(LookAt(run_tasks, stop, &candidates));
  // Planning needs the memory.
  for (Candidate& candidate : candidates) candidate.look.reset();
  std::optional<v1::Plan> best;
  absl::Status why = absl::OkStatus();
  for (const Candidate& candidate : candidates) {
    PENSTOCK_RETURN_IF_ERROR(stop.status());
    if (best.has_value() && !IsWorthPlanning(candidate, AreFew(candidates), *best)) continue;
    absl::StatusOr<v1::Plan> plan = planners_[candidate.strategy]->MakePlan(batch, run_tasks, stop);
    if (absl::IsResourceExhausted(plan.status())) {
      why = plan.status();
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(plan.status());
    plan->set_strategy(numbers_[candidate.strategy]);
    const auto key = [](const v1::Plan& of) {
      return std::pair(of.predicted().makespan_ns(), of.strategy());
    };
    if (!best.has_value() || key(*plan) < key(*best)) best = *std::move(plan);
  }
  if (!best.has_value() && !why.ok()) return WhyNone(why);
  // None could be bounded.
  if (!best.has_value()) {
    PENSTOCK_RETURN_IF_ERROR(ValidateBatch(batch, Planner::Explain::kCauseAlone, stop));
    return absl::InternalError("no strategy has a bound for a batch that one can hold");
  }
  // The first one's has been hashed as it is.
  if (best->strategy() > 0) best->set_content_hash(Planner::ContentHash(*best));
  return *std::move(best);
}

void StrategyPlanner::SetStrategy(int strategy, v1::Plan* plan) const {
  if (numbers_[strategy] == plan->strategy()) return;
  plan->set_strategy(numbers_[strategy]);
  plan->set_content_hash(Planner::ContentHash(*plan));
}

std::optional<int> StrategyPlanner::PlaceOf(const v1::Plan& plan) const {
  const auto found = std::ranges::lower_bound(numbers_, plan.strategy());
  if (found == numbers_.end() || *found != plan.strategy()) return std::nullopt;
  return static_cast<int>(found - numbers_.begin());
}

bool StrategyPlanner::AreFew(const std::vector<Candidate>& candidates) {
  return candidates.size() <= kFewStrategies;
}

bool StrategyPlanner::IsWorthPlanning(const Candidate& candidate, bool few, const v1::Plan& best) const {
  const auto makespan = static_cast<int64_t>(best.predicted().makespan_ns());
  if (candidate.bound_ns >= makespan || thorough()) return candidate.bound_ns < makespan;
  if (candidate.ruled_out) return false;
  // Where nothing was seen that fits in memory, a plan may be found all the same.
  if (candidate.seen_ns == kNothingSeen) return few;
  const double may_take_less = few ? ErrorOf(Sight::kCloser) : -kDisappointing;
  return static_cast<double>(candidate.seen_ns) * (1 - may_take_less) < static_cast<double>(makespan);
}

double StrategyPlanner::pass_noise() const {
  return planners_.front()->planner(0).costs().profile().pass_noise;
}

bool StrategyPlanner::thorough() const {
  return planners_.front()->planner(0).job().effort == Effort::kThorough;
}

absl::StatusOr<PlanningShape> StrategyPlanner::ShapeOf(const v1::Batch& batch) const {
  PENSTOCK_ASSIGN_OR_RETURN(const PlanningShape training, ShapeOfSamples(batch));
  if (!batch.has_validation()) return training;
  const absl::StatusOr<PlanningShape> validation = ShapeOfSamples(batch.validation());
  if (!validation.ok()) return OfValidation(validation.status());
  return FootprintOf(*validation).planning_bytes > FootprintOf(training).planning_bytes ? *validation
                                                                                        : training;
}

absl::StatusOr<PlanningShape> StrategyPlanner::ShapeOfSamples(const v1::Batch& batch) const {
  PENSTOCK_ASSIGN_OR_RETURN(PlanningShape largest, planners_.front()->ShapeOf(batch));
  for (size_t i = 1; i < planners_.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const PlanningShape shape, planners_[i]->ShapeOf(batch));
    if (FootprintOf(shape).planning_bytes > FootprintOf(largest).planning_bytes) largest = shape;
  }
  return largest;
}

std::vector<v1::Topology> StrategyPlanner::topologies() const {
  std::vector<v1::Topology> topologies;
  for (const auto& planner : planners_) topologies.push_back(planner->topology());
  return topologies;
}

absl::StatusOr<const MeshPlanners*> StrategyPlanner::Of(const v1::Plan& plan) const {
  if (const std::optional<int> place = PlaceOf(plan)) return planners_[*place].get();
  return absl::InvalidArgumentError(absl::StrCat("plan.strategy is ", plan.strategy(),
                                                 ", of which this planner makes no plans; it makes those of ",
                                                 absl::StrJoin(numbers_, ", ")));
}

}  // namespace penstock::core
