#include "planner/cli/up/restart_policy.h"

#include "absl/strings/str_cat.h"

namespace penstock::cli {

absl::StatusOr<absl::Duration> RestartPolicy::OnDeath(const std::string& process) {
  Deaths& deaths = deaths_[process];
  if (++deaths.in_a_row >= kMostInARow) {
    return absl::ResourceExhaustedError(absl::StrCat(process, " is not started again: it died ",
                                                     deaths.in_a_row,
                                                     " times without a new iteration in between"));
  }
  if (restarts_ >= most_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(process, " is not started again: --max-restarts ", most_, " are used up"));
  }
  ++restarts_;
  return deaths.in_a_row == 1 ? absl::ZeroDuration() : deaths.pauses.Next();
}

void RestartPolicy::OnProgress() { deaths_.clear(); }

}  // namespace penstock::cli
