#include "planner/service/engine/job_suspects.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace penstock {
namespace {

constexpr uint32_t kMostTries = 2;
constexpr absl::Duration kLookAtTicket = absl::Milliseconds(20);

}  // namespace

void JobSuspects::SuspectUnplannedLocked() {
  for (uint64_t iteration = record_.state().first_held();
       iteration < record_.state().admission().next_iteration(); ++iteration) {
    if (!record_.state().IsPlanned(iteration)) tries_[iteration] = record_.state().TriesOf(iteration);
  }
}

void JobSuspects::RecordTriesLocked(uint64_t iteration, uint32_t tries, JobRecord::Committed committed) {
  store::v1::Event event;
  event.mutable_planning_tried()->set_iteration(iteration);
  event.mutable_planning_tried()->set_tries(tries);
  record_.AppendLocked(std::move(event), {}, std::move(committed));
}

absl::Status JobSuspects::BeginTry(uint64_t iteration, const PlanningTicket& ticket) {
  if (!ticket.status().ok()) return ticket.status();
  auto durable = std::make_shared<absl::Notification>();
  {
    JobLock lock(record_.mutex());
    const auto suspect = tries_.find(iteration);
    if (suspect == tries_.end()) return absl::OkStatus();
    if (suspect->second >= kMostTries) {
      return absl::InternalError(absl::StrCat(
          suspect->second,
          " planners died while they planned this batch alone, so it is not tried again: delete the "
          "job, and feed it smaller batches"));
    }
    if (record_.ended()) return absl::CancelledError("the job ends");
    RecordTriesLocked(iteration, suspect->second + 1, [durable] { durable->Notify(); });
  }
  while (!durable->WaitForNotificationWithTimeout(kLookAtTicket)) {
    if (!ticket.status().ok()) return ticket.status();
  }
  return absl::OkStatus();
}

// This planner lives, so whatever became of the plan, the batch has not killed it. With a plan it is no
// suspect any more, and the event of the plan says so.
void JobSuspects::EndTryLocked(uint64_t iteration, bool planned) {
  const auto suspect = tries_.find(iteration);
  if (suspect == tries_.end() || record_.deleted()) return;
  if (planned) {
    tries_.erase(suspect);
  } else if (record_.state().TriesOf(iteration) > suspect->second) {
    RecordTriesLocked(iteration, suspect->second, nullptr);
  }
}

}  // namespace penstock
