#include "planner/service/engine/job_diagnoses.h"

#include <utility>

#include "common/logging/logging.h"

namespace penstock {
namespace {

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

bool JobDiagnoses::IsDue(uint64_t completed) const {
  MutexLock lock(&mutex_);
  return !looks_ && !stopped_ && completed >= completed_ + kNewIterations &&
         services_.clock->Now() - begun_ >= kBetween;
}

void JobDiagnoses::Begin(uint64_t completed, std::vector<CostedIteration> iterations) {
  if (iterations.empty()) return;
  {
    MutexLock lock(&mutex_);
    if (looks_ || stopped_) return;
    if (!services_.pool->TryReserve(PlanningClass::kPreparation, payer_, 1)) return;
    looks_ = true;
    begun_ = services_.clock->Now();
    completed_ = completed;
  }
  const int64_t bytes = BytesOf(iterations);
  PlanningTicketPtr ticket =
      services_.pool->Run({.kind = PlanningClass::kPreparation,
                           .owner = payer_,
                           .limit = services_.planning_limit,
                           .bytes = bytes,
                           .job = job_id_},
                          [self = shared_from_this(), iterations = std::move(iterations)](
                              const PlanningTicket& running) { self->Look(iterations, running); });
  MutexLock lock(&mutex_);
  if (looks_) ticket_ = std::move(ticket);
}

void JobDiagnoses::Look(const std::vector<CostedIteration>& iterations, const PlanningTicket& ticket) {
  absl::StatusOr<v1::JobDiagnosis> found = ticket.status().ok()
                                               ? services_.planners->Diagnose(iterations, ticket.stop())
                                               : absl::StatusOr<v1::JobDiagnosis>(ticket.status());
  MutexLock lock(&mutex_);
  looks_ = false;
  ticket_ = nullptr;
  if (found.ok())
    last_ = *std::move(found);
  else if (!stopped_)
    LogWarning("iterations cannot be diagnosed",
               {{"job", job_id_}, {"reason", ticket.Explain(found.status()).ToString()}});
}

void JobDiagnoses::Stop() {
  PlanningTicketPtr ticket;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    ticket = std::move(ticket_);
  }
  if (ticket != nullptr) services_.pool->Cancel(ticket);
}

std::optional<v1::JobDiagnosis> JobDiagnoses::last() const {
  MutexLock lock(&mutex_);
  return last_;
}

}  // namespace penstock
