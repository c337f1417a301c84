#include "worker/runtime/rejoin.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/backoff/backoff.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock::worker {

bool MayRejoin(const absl::Status& failure) {
  return absl::IsUnavailable(failure) || absl::IsCancelled(failure) || absl::IsAborted(failure);
}

bool IsWorthRestarting(const absl::Status& failure) {
  switch (failure.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
      return false;
    default:
      return true;
  }
}

absl::Status TrainThroughFailures(const RejoinOptions& options, const RejoinParts& parts) {
  Backoff pauses(options.first_pause, options.longest_pause);
  uint64_t furthest = 0;
  uint32_t in_vain = 0;
  for (bool again = false;; again = true) {
    const EpochEnd end = parts.run_epoch(again);
    if (end.status.ok() || options.most == 0 || !MayRejoin(end.status)) return end.status;
    if (end.next_iteration > furthest) {
      furthest = end.next_iteration;
      in_vain = 0;
      pauses.Reset();
    }
    if (in_vain == options.most) {
      return AnnotateError(end.status, absl::StrCat(in_vain + 1,
                                                    " epochs in a row ended without a new iteration "
                                                    "(--max-rejoins), the last one"));
    }
    ++in_vain;
    const absl::Duration pause = pauses.Next();
    LogWarning("the epoch has failed; joining the next one", {{"reason", std::string(end.status.message())},
                                                              {"without_a_new_iteration", in_vain},
                                                              {"pause", absl::FormatDuration(pause)}});
    PENSTOCK_RETURN_IF_ERROR(parts.wait(pause));
  }
}

}  // namespace penstock::worker
