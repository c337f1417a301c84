#include "planner/service/engine/job_diagnoses.h"

#include <algorithm>
#include <utility>

#include "common/logging/logging.h"

namespace penstock {
namespace {

// Iterations that are looked at, at most.
constexpr uint64_t kMostIterations = 8;
// New iterations from one diagnosis to the next, and the time between them.
constexpr uint64_t kNewIterations = 4;
constexpr absl::Duration kBetween = absl::Seconds(10);
// Of an instruction while its iteration is looked at: the plan unpacked, and its graph.
constexpr int64_t kInstructionBytes = 1000;

int64_t BytesOf(const std::vector<CostedIteration>& iterations) {
  int64_t bytes = 0;
  for (const CostedIteration& iteration : iterations)
    bytes += kInstructionBytes * static_cast<int64_t>(iteration.values.plan->instructions());
  return bytes;
}

}  // namespace

bool JobDiagnoses::IsDueLocked() const {
  return !looks_ && !record_.ended() &&
         record_.state().progress().completed() >= completed_ + kNewIterations &&
         record_.services().clock->Now() - begun_ >= kBetween;
}

std::vector<CostedIteration> JobDiagnoses::LastMeasuredLocked() const {
  std::vector<CostedIteration> iterations;
  const uint64_t completed = record_.state().progress().completed();
  const uint64_t first = completed - std::min(completed, kMostIterations);
  for (uint64_t iteration = std::max(first, record_.spec().first_iteration()); iteration < completed;
       ++iteration) {
    CostedIteration one = {.values = record_.values().Held(iteration)};
    if (!IsMeasured(one.values, record_.state().ranks())) continue;
    one.slow_ranks = record_.CostsOfLocked(iteration).slow_ranks();
    iterations.push_back(std::move(one));
  }
  return iterations;
}

std::vector<CostedIteration> JobDiagnoses::ReserveIfDue() {
  JobLock lock(record_.mutex());
  if (!IsDueLocked()) return {};
  std::vector<CostedIteration> iterations = LastMeasuredLocked();
  if (iterations.empty() || !record_.TryReserve(PlanningClass::kPreparation)) return {};
  looks_ = true;
  begun_ = record_.services().clock->Now();
  completed_ = record_.state().progress().completed();
  return iterations;
}

void JobDiagnoses::LookIfDue() {
  std::vector<CostedIteration> iterations = ReserveIfDue();
  if (iterations.empty()) return;
  const int64_t bytes = BytesOf(iterations);
  PlanningTicketPtr ticket = record_.Run(PlanningClass::kPreparation, bytes,
                                         [this, iterations = std::move(iterations)](
                                             const PlanningTicket& running) { Look(iterations, running); });
  JobLock lock(record_.mutex());
  if (looks_) ticket_ = std::move(ticket);
}

void JobDiagnoses::Look(const std::vector<CostedIteration>& iterations, const PlanningTicket& ticket) {
  absl::StatusOr<v1::JobDiagnosis> found =
      ticket.status().ok() ? record_.services().planners->Diagnose(iterations, ticket.stop())
                           : absl::StatusOr<v1::JobDiagnosis>(ticket.status());
  JobLock lock(record_.mutex());
  looks_ = false;
  ticket_ = nullptr;
  if (found.ok())
    last_ = *std::move(found);
  else if (!record_.ended())
    LogWarning("iterations cannot be diagnosed",
               {{"job", record_.id()}, {"reason", ticket.Explain(found.status()).ToString()}});
}

void JobDiagnoses::Cancel() {
  PlanningTicketPtr ticket;
  {
    JobLock lock(record_.mutex());
    ticket = std::move(ticket_);
  }
  if (ticket != nullptr) record_.services().pool->Cancel(ticket);
}

}  // namespace penstock
