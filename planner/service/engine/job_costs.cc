#include "planner/service/engine/job_costs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Iterations from one fit to the next. The first ones are soon: a profile that is wrong costs most at the
// beginning, and four iterations say little where single ones are slow.
constexpr uint64_t kBetweenFirstFits[] = {4, 4, 4, 4};
constexpr uint64_t kBetweenFits = 8;
// A fit is made of so many iterations, where there were as many. The first ones are made of fewer: what runs
// first is not like what comes later.
constexpr uint64_t kMeasuredOfFirstFits = 8;
constexpr uint64_t kMeasured = 16;

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

std::vector<HeldIteration> JobCosts::MeasuredLocked() const {
  const uint64_t completed = record_.state().progress().completed();
  const auto last = [completed](uint64_t count) { return completed - std::min(completed, count); };
  const bool is_first = static_cast<size_t>(fits_) < std::size(kBetweenFirstFits);
  uint64_t from = last(is_first ? kMeasuredOfFirstFits : kMeasured);
  // Workers take memory for the first time in their first iteration: it says little about others.
  if (from <= record_.spec().first_iteration() && completed > record_.spec().first_iteration() + 1)
    from = record_.spec().first_iteration() + 1;
  std::vector<HeldIteration> iterations;
  for (uint64_t iteration = from; iteration < completed; ++iteration) {
    HeldIteration held = record_.values().Held(iteration);
    if (IsMeasured(held, record_.state().ranks())) iterations.push_back(std::move(held));
  }
  return iterations;
}

bool JobCosts::IsDueLocked() {
  if (record_.spec().fixed_costs() || !planners_.AreThereLocked() || fitting_ || record_.ended() ||
      record_.state().finished())
    return false;
  const uint64_t begin = record_.spec().first_iteration();
  if (const store::v1::CostsRevised* last = record_.state().LastCosts(); last != nullptr) {
    // Also those of an earlier planner.
    fitted_before_ = std::max(fitted_before_, last->measured_before());
    fits_ = std::max(fits_, FitsWithin(last->measured_before() - begin));
  }
  const uint64_t completed = record_.state().progress().completed();
  fitted_before_ = std::clamp(fitted_before_, begin, std::max(completed, begin));
  const uint64_t wanted =
      static_cast<size_t>(fits_) < std::size(kBetweenFirstFits) ? kBetweenFirstFits[fits_] : kBetweenFits;
  return completed >= fitted_before_ + wanted;
}

JobCosts::DueFit JobCosts::ReserveIfDue() {
  JobLock lock(record_.mutex());
  if (!IsDueLocked()) return {};
  DueFit due = {.iterations = MeasuredLocked(), .measured_before = record_.state().progress().completed()};
  due.bytes = KeepWhatFits(record_.services().room.planning_bytes, due.iterations);
  // Where the pool has no place the next report tries again.
  if (!due.iterations.empty() && !record_.TryReserve(PlanningClass::kPreparation)) return {};
  fitted_before_ = due.measured_before;
  if (due.iterations.empty()) return {};
  ++fits_;
  fitting_ = true;
  return due;
}

void JobCosts::Recalibrate() {
  DueFit due = ReserveIfDue();
  if (due.iterations.empty()) return;
  PlanningTicketPtr ticket =
      record_.Run(PlanningClass::kPreparation, due.bytes,
                  [this, iterations = std::move(due.iterations), before = due.measured_before](
                      const PlanningTicket& running) { Run(iterations, before, running); });
  JobLock lock(record_.mutex());
  if (fitting_) ticket_ = std::move(ticket);
}

void JobCosts::Cancel() {
  PlanningTicketPtr ticket;
  {
    JobLock lock(record_.mutex());
    ticket = std::move(ticket_);
  }
  if (ticket != nullptr) record_.services().pool->Cancel(ticket);
}

std::vector<BatchPtr> JobCosts::BatchesToPlanLocked(uint64_t from) const {
  std::vector<BatchPtr> batches;
  for (uint64_t iteration = std::max(from, record_.state().planned_end());
       iteration < record_.state().admission().next_iteration(); ++iteration) {
    if (BatchPtr batch = record_.values().batch(iteration); batch != nullptr)
      batches.push_back(std::move(batch));
  }
  return batches;
}

// Costs may need more memory than those before, for rows of uneven routers: a job that trains does not end
// for that.
absl::StatusOr<uint64_t> JobCosts::CheckHasRoom(const BatchPlanner& planner, uint64_t from,
                                                core::StopToken stop) {
  std::vector<BatchPtr> batches;
  uint64_t end = 0;
  {
    JobLock lock(record_.mutex());
    batches = BatchesToPlanLocked(from);
    end = record_.state().admission().next_iteration();
  }
  for (const BatchPtr& batch : batches) PENSTOCK_RETURN_IF_ERROR(planner.CheckBatch(*batch, stop));
  return end;
}

void JobCosts::Run(std::vector<HeldIteration> iterations, uint64_t measured_before,
                   const PlanningTicket& ticket) {
  Fit fit = {.iterations = std::move(iterations), .measured_before = measured_before};
  v1::CostProfile in_effect;
  {
    JobLock lock(record_.mutex());
    fit.spec = record_.SpecLocked(record_.spec().profile());
    in_effect = record_.CostsInEffectLocked();
    fit.topologies = record_.state().topologies();
    fit.strategies = record_.state().strategies().now();
  }
  LogDebug(
      "costs are being fitted",
      {{"job", record_.id()}, {"iterations", fit.iterations.size()}, {"measured_before", measured_before}});
  const absl::StatusOr<std::optional<core::Calibration>> fitted = record_.services().planners->Calibrate(
      fit.spec, fit.topologies, in_effect, fit.iterations, ticket.stop());
  absl::Status status = fitted.status();
  if (status.ok() && fitted->has_value()) status = Keep(**fitted, std::move(fit), ticket.stop());
  {
    JobLock lock(record_.mutex());
    EndFitLocked();
    if (record_.ended() || status.ok()) return;
  }
  LogWarning("costs cannot be fitted to what was measured: plans are made with those before",
             {{"job", record_.id()}, {"reason", ticket.Explain(status).ToString()}});
}

void JobCosts::EndFitLocked() {
  ticket_ = nullptr;
  fitting_ = false;
}

absl::Status JobCosts::Keep(const core::Calibration& calibration, Fit fit, core::StopToken stop) {
  *fit.spec.mutable_profile() = calibration.profile;
  PENSTOCK_ASSIGN_OR_RETURN(BatchPlannerPtr planner, record_.services().planners->Create(
                                                         fit.spec, fit.topologies, fit.strategies, stop));
  for (const HeldIteration& iteration : fit.iterations)
    PENSTOCK_RETURN_IF_ERROR(planner->CheckBatch(*iteration.batch, stop));
  uint64_t checked_before = 0;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(checked_before, CheckHasRoom(*planner, checked_before, stop));
    JobLock lock(record_.mutex());
    if (record_.ended()) return absl::OkStatus();
    // Batches that came meanwhile have to fit, too.
    if (record_.state().admission().next_iteration() > checked_before) continue;
    // As soon as others see the costs, they may be fitted anew.
    EndFitLocked();
    KeepLocked(calibration, fit, std::move(planner));
    return absl::OkStatus();
  }
}

void JobCosts::KeepLocked(const core::Calibration& calibration, const Fit& fit, BatchPlannerPtr planner) {
  // Nobody has looked whether what waits for a plan fits on the others with these costs.
  if (fit.strategies != record_.state().strategies().now()) return;
  // They are of costs that are no longer in effect.
  if (calibration.profile.version() != record_.CostsInEffectLocked().version() + 1) return;
  // No iteration is planned with two versions.
  const uint64_t from = planning_.FirstUnplannedLocked();
  const uint64_t version = calibration.profile.version();
  store::v1::Event event;
  *event.mutable_costs_revised()->mutable_profile() = calibration.profile;
  event.mutable_costs_revised()->set_from_iteration(from);
  event.mutable_costs_revised()->set_measured_before(fit.measured_before);
  v1::PredictionErrors& errors = *event.mutable_costs_revised()->mutable_errors();
  errors.set_before(calibration.error_before);
  errors.set_after(calibration.error_after);
  record_.AppendLocked(std::move(event));
  planners_.ReviseCostsLocked(version, fit.strategies, std::move(planner));
  LogInfo("costs revised", {{"job", record_.id()},
                            {"version", version},
                            {"from_iteration", from},
                            {"error_before", absl::StrFormat("%.3f", calibration.error_before)},
                            {"error_after", absl::StrFormat("%.3f", calibration.error_after)}});
}

void JobCosts::TakeBackLocked() {
  const store::v1::CostsRevised* const last = record_.state().LastCosts();
  if (last == nullptr) return;
  const uint64_t from = planning_.FirstUnplannedLocked();
  const uint64_t version = last->profile().version() + 1;
  store::v1::Event event;
  *event.mutable_costs_revised()->mutable_profile() = record_.spec().profile();
  event.mutable_costs_revised()->mutable_profile()->set_version(version);
  event.mutable_costs_revised()->set_from_iteration(from);
  event.mutable_costs_revised()->set_measured_before(last->measured_before());
  record_.AppendLocked(std::move(event));
  planners_.ForgetOldLocked();
  LogWarning(
      "a batch does not fit by the costs that were measured: plans are made with those that the job "
      "was registered with",
      {{"job", record_.id()}, {"version", version}, {"from_iteration", from}});
}

}  // namespace penstock
