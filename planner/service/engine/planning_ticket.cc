#include "planner/service/engine/planning_ticket.h"

#include "absl/strings/str_cat.h"

namespace penstock {

absl::Status PlanningTicket::status() const {
  switch (cause_.load()) {
    case Cause::kNone:
      break;
    case Cause::kCancelled:
      return absl::CancelledError("the client cancelled, or its deadline is over");
    case Cause::kLimit:
      return absl::DeadlineExceededError(absl::StrCat(
          "planning was stopped after ", absl::FormatDuration(work_.limit),
          ", the limit of this planner (--planning-limit-seconds): plan fewer samples, stages or ranks at "
          "once, or with a lower job.planning.effort"));
    case Cause::kMemory:
      return absl::ResourceExhaustedError(
          "planning was stopped because the planner ran out of memory (--memory): plan fewer samples, stages "
          "or ranks at once, or give the planner more");
    case Cause::kShutdown:
      return absl::UnavailableError("the planner stops; try again");
  }
  return absl::OkStatus();
}

void PlanningTicket::Stop(Cause cause) {
  Cause none = Cause::kNone;
  cause_.compare_exchange_strong(none, cause);
  flag_.Set();
}

}  // namespace penstock
