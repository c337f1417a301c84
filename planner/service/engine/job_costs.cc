// Job: costs that follow what its ranks measure.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/service/engine/job.h"

namespace penstock {
namespace {

// Iterations from one fit to the next. The first ones are soon: a profile that is wrong costs most at the
// beginning, and four iterations say little where single ones are slow.
constexpr uint64_t kBetweenFirstFits[] = {4, 4, 4, 4, 8};
constexpr uint64_t kBetweenFits = 16;
// A fit is made of the iterations since the one before, at least of so many where there were as many, and at
// most of so many.
constexpr uint64_t kLeastMeasured = 8;
constexpr uint64_t kMostMeasured = 16;

// Of an instruction, while costs are fitted: the plan unpacked, and its program to be run again.
constexpr int64_t kFitInstructionBytes = 400;

// That are made of so many iterations, the first of them at the latest.
int FitsWithin(uint64_t iterations) {
  int fits = 0;
  uint64_t end = 0;
  for (const uint64_t more : kBetweenFirstFits) {
    end += more;
    if (end > iterations) break;
    ++fits;
  }
  return std::max(fits, 1);
}

// Drops the oldest until fitting to the others takes no more than `most` bytes, or one is left. Returns what
// it takes.
int64_t KeepWhatFits(int64_t most, std::vector<HeldIteration>& iterations) {
  int64_t bytes = 0;
  auto first = iterations.end();
  while (first != iterations.begin()) {
    const int64_t more = kFitInstructionBytes * static_cast<int64_t>(std::prev(first)->plan->instructions());
    if (bytes > 0 && more > most - bytes) break;
    bytes += more;
    --first;
  }
  iterations.erase(iterations.begin(), first);
  return std::min(bytes, most);
}

}  // namespace

v1::JobSpec Job::SpecLocked(const v1::CostProfile& profile) const {
  v1::JobSpec spec = spec_;
  *spec.mutable_profile() = profile;
  *spec.mutable_strategies() = state_.spec().strategies();
  return spec;
}

absl::StatusOr<std::shared_ptr<const BatchPlanner>> Job::PlannerOf(uint64_t iteration, core::StopToken stop) {
  StrategyChanges::Numbers strategies;
  v1::JobSpec spec;
  std::vector<v1::Topology> topologies;
  {
    MutexLock lock(&mutex_);
    PENSTOCK_RETURN_IF_ERROR(CheckPreparedLocked());
    strategies = state_.strategies().NumbersOf(iteration);
    const store::v1::CostsRevised* const costs = state_.CostsOf(iteration);
    if (costs == nullptr) {
      const auto found = planners_.find(strategies);
      if (found != planners_.end()) return found->second;
    } else {
      const auto found = revised_planners_.find({costs->profile().version(), strategies});
      if (found != revised_planners_.end()) return found->second;
    }
    // After a restart, or where costs and strategies changed at the same time.
    spec = SpecLocked(costs == nullptr ? spec_.profile() : costs->profile());
    topologies = state_.topologies();
  }
  const uint64_t version = spec.profile().version();
  const bool revised = version != spec_.profile().version();
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<BatchPlanner> made,
                            services_.planners->Create(spec, topologies, strategies, stop));
  MutexLock lock(&mutex_);
  if (!revised) return planners_.try_emplace(strategies, std::move(made)).first->second;
  return revised_planners_.try_emplace({version, strategies}, std::move(made)).first->second;
}

uint64_t Job::FirstUnplannedLocked() const {
  const uint64_t from = std::max(state_.planned_end(), state_.progress().completed());
  return planning_.empty() ? from : std::max(from, planning_.rbegin()->first + 1);
}

void Job::ForgetPlannersLocked() {
  const uint64_t first = state_.first_held();
  const std::set<StrategyChanges::Numbers> held = state_.strategies().HeldFrom(first);
  std::erase_if(planners_, [&](const auto& planner) { return !held.contains(planner.first); });
  const store::v1::CostsRevised* const oldest = state_.CostsOf(first);
  const uint64_t version = oldest == nullptr ? 0 : oldest->profile().version();
  std::erase_if(revised_planners_, [&](const auto& planner) {
    return planner.first.first < version || !held.contains(planner.first.second);
  });
}

std::vector<HeldIteration> Job::MeasuredLocked() const {
  const uint64_t completed = state_.progress().completed();
  const auto last = [completed](uint64_t count) { return completed - std::min(completed, count); };
  uint64_t from = std::max(std::min(fitted_before_, last(kLeastMeasured)), last(kMostMeasured));
  // Workers take memory for the first time in their first iteration: it says little about others.
  if (from <= spec_.first_iteration() && completed > spec_.first_iteration() + 1)
    from = spec_.first_iteration() + 1;
  std::vector<HeldIteration> iterations;
  for (uint64_t iteration = from; iteration < completed; ++iteration) {
    HeldIteration held = HeldLocked(iteration);
    if (IsMeasured(held, state_.ranks())) iterations.push_back(std::move(held));
  }
  return iterations;
}

void Job::Recalibrate() {
  std::vector<HeldIteration> iterations;
  int64_t bytes = 0;
  uint64_t completed = 0;
  {
    MutexLock lock(&mutex_);
    if (spec_.fixed_costs() || planner_ == nullptr || fitting_now_ || stopped_ || deleted_ ||
        state_.finished())
      return;
    if (const store::v1::CostsRevised* last = state_.LastCosts(); last != nullptr) {
      // Also those of an earlier planner.
      fitted_before_ = std::max(fitted_before_, last->measured_before());
      fits_ = std::max(fits_, FitsWithin(last->measured_before() - spec_.first_iteration()));
    }
    completed = state_.progress().completed();
    fitted_before_ =
        std::clamp(fitted_before_, spec_.first_iteration(), std::max(completed, spec_.first_iteration()));
    const uint64_t wanted =
        static_cast<size_t>(fits_) < std::size(kBetweenFirstFits) ? kBetweenFirstFits[fits_] : kBetweenFits;
    if (completed < fitted_before_ + wanted) return;
    iterations = MeasuredLocked();
    bytes = KeepWhatFits(services_.room.planning_bytes, iterations);
    // Where the pool has no place the next report tries again.
    if (!iterations.empty() && !services_.pool->TryReserve(PlanningClass::kPreparation, payer_, 1)) return;
    fitted_before_ = completed;
    if (iterations.empty()) return;
    ++fits_;
    fitting_now_ = true;
  }
  PlanningTicketPtr ticket = services_.pool->Run(
      {.kind = PlanningClass::kPreparation,
       .owner = payer_,
       .limit = services_.planning_limit,
       .bytes = bytes,
       .job = id_},
      [self = shared_from_this(), iterations = std::move(iterations),
       completed](const PlanningTicket& running) { self->FitCosts(iterations, completed, running); });
  MutexLock lock(&mutex_);
  if (fitting_now_) fitting_ = std::move(ticket);
}

std::vector<BatchPtr> Job::BatchesToPlanLocked(uint64_t from) const {
  std::vector<BatchPtr> batches;
  for (uint64_t iteration = std::max(from, state_.planned_end());
       iteration < state_.admission().next_iteration(); ++iteration) {
    if (BatchPtr batch = values_.batch(iteration); batch != nullptr) batches.push_back(std::move(batch));
  }
  return batches;
}

// Costs may need more memory than those before, for rows of uneven routers: a job that trains does not end
// for that.
absl::StatusOr<uint64_t> Job::CheckHasRoom(const BatchPlanner& planner, uint64_t from, core::StopToken stop) {
  std::vector<BatchPtr> batches;
  uint64_t end = 0;
  {
    MutexLock lock(&mutex_);
    batches = BatchesToPlanLocked(from);
    end = state_.admission().next_iteration();
  }
  for (const BatchPtr& batch : batches) PENSTOCK_RETURN_IF_ERROR(planner.CheckBatch(*batch, stop));
  return end;
}

void Job::FitCosts(std::vector<HeldIteration> iterations, uint64_t measured_before,
                   const PlanningTicket& ticket) {
  CostFit fit = {.iterations = std::move(iterations), .measured_before = measured_before};
  v1::CostProfile in_effect;
  {
    MutexLock lock(&mutex_);
    fit.spec = SpecLocked(spec_.profile());
    in_effect = state_.LastCosts() != nullptr ? state_.LastCosts()->profile() : spec_.profile();
    fit.topologies = state_.topologies();
    fit.strategies = state_.strategies().now();
  }
  LogDebug("costs are being fitted",
           {{"job", id_}, {"iterations", fit.iterations.size()}, {"measured_before", measured_before}});
  const absl::StatusOr<std::optional<core::Calibration>> fitted =
      services_.planners->Calibrate(fit.spec, fit.topologies, in_effect, fit.iterations, ticket.stop());
  absl::Status status = fitted.status();
  if (status.ok() && fitted->has_value()) status = KeepCosts(**fitted, std::move(fit), ticket.stop());
  {
    MutexLock lock(&mutex_);
    EndFitLocked();
    if (stopped_ || deleted_ || status.ok()) return;
  }
  LogWarning("costs cannot be fitted to what was measured: plans are made with those before",
             {{"job", id_}, {"reason", ticket.Explain(status).ToString()}});
}

void Job::EndFitLocked() {
  fitting_ = nullptr;
  fitting_now_ = false;
}

absl::Status Job::KeepCosts(const core::Calibration& calibration, CostFit fit, core::StopToken stop) {
  *fit.spec.mutable_profile() = calibration.profile;
  PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<const BatchPlanner> planner,
                            services_.planners->Create(fit.spec, fit.topologies, fit.strategies, stop));
  for (const HeldIteration& iteration : fit.iterations)
    PENSTOCK_RETURN_IF_ERROR(planner->CheckBatch(*iteration.batch, stop));
  uint64_t checked_before = 0;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(checked_before, CheckHasRoom(*planner, checked_before, stop));
    MutexLock lock(&mutex_);
    if (stopped_ || deleted_) return absl::OkStatus();
    // Batches that came meanwhile have to fit, too.
    if (state_.admission().next_iteration() > checked_before) continue;
    // As soon as others see the costs, they may be fitted anew.
    EndFitLocked();
    KeepCostsLocked(calibration, fit, std::move(planner));
    return absl::OkStatus();
  }
}

void Job::KeepCostsLocked(const core::Calibration& calibration, const CostFit& fit,
                          std::shared_ptr<const BatchPlanner> planner) {
  // Nobody has looked whether what waits for a plan fits on the others with these costs.
  if (fit.strategies != state_.strategies().now()) return;
  // They are of costs that are no longer in effect.
  if (calibration.profile.version() != CostsVersionLocked() + 1) return;
  // No iteration is planned with two versions.
  const uint64_t from = FirstUnplannedLocked();
  const uint64_t version = calibration.profile.version();
  store::v1::Event event;
  *event.mutable_costs_revised()->mutable_profile() = calibration.profile;
  event.mutable_costs_revised()->set_from_iteration(from);
  event.mutable_costs_revised()->set_measured_before(fit.measured_before);
  v1::PredictionErrors& errors = *event.mutable_costs_revised()->mutable_errors();
  errors.set_before(calibration.error_before);
  errors.set_after(calibration.error_after);
  RecordLocked(std::move(event));
  ForgetPlannersLocked();
  revised_planners_[{version, fit.strategies}] = std::move(planner);
  LogInfo("costs revised", {{"job", id_},
                            {"version", version},
                            {"from_iteration", from},
                            {"error_before", absl::StrFormat("%.3f", calibration.error_before)},
                            {"error_after", absl::StrFormat("%.3f", calibration.error_after)}});
}

void Job::TakeBackCostsLocked() {
  const store::v1::CostsRevised* const last = state_.LastCosts();
  if (last == nullptr) return;
  const uint64_t from = FirstUnplannedLocked();
  const uint64_t version = last->profile().version() + 1;
  store::v1::Event event;
  *event.mutable_costs_revised()->mutable_profile() = spec_.profile();
  event.mutable_costs_revised()->mutable_profile()->set_version(version);
  event.mutable_costs_revised()->set_from_iteration(from);
  event.mutable_costs_revised()->set_measured_before(last->measured_before());
  RecordLocked(std::move(event));
  ForgetPlannersLocked();
  LogWarning(
      "a batch does not fit by the costs that were measured: plans are made with those that the job "
      "was registered with",
      {{"job", id_}, {"version", version}, {"from_iteration", from}});
}

}  // namespace penstock
