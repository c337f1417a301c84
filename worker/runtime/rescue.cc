#include "worker/runtime/rescue.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/backoff/backoff.h"
#include "common/checkpoint/rescue.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/holder_rings.h"

namespace penstock::worker {
namespace {

// Others look at the same folder.
constexpr absl::Duration kFirstLook = absl::Milliseconds(10);
constexpr absl::Duration kLongestLook = absl::Milliseconds(250);
// For the reports of those that are left to reach the planner.
constexpr absl::Duration kReportTime = absl::Seconds(2);

// Of one rescue, on one rank.
class RescueOfRank {
 public:
  RescueOfRank(const RescueParts& parts, std::vector<RankGroup> rings)
      : parts_(parts),
        rings_(std::move(rings)),
        of_(ManifestOf(*parts.job, *parts.holds)),
        begun_(parts.now()),
        deadline_(begun_ + TimeOf(parts)) {}

  RescueReport Run() {
    RescueReport report;
    const absl::StatusOr<RescueEnd> end = WriteAndComplete(report.bytes);
    report.end = end.value_or(RescueEnd::kFailed);
    // Another rank may have completed it without what failed here.
    if (report.end != RescueEnd::kComplete && IsThere()) report.end = RescueEnd::kComplete;
    if (report.end == RescueEnd::kFailed) report.why = end.status();
    if (report.end != RescueEnd::kComplete)
      WithdrawRescue(parts_.directory, parts_.rank, of_, *parts_.changes);
    return report;
  }

 private:
  static absl::Duration TimeOf(const RescueParts& parts) {
    const absl::Duration work = parts.iteration_time * static_cast<double>(*parts.holds - parts.goes_back_to);
    return std::min(parts.longest, std::max(work, kShortestRescue));
  }

  absl::StatusOr<RescueEnd> WriteAndComplete(uint64_t& bytes) {
    PENSTOCK_RETURN_IF_ERROR(
        AnnounceRescue(parts_.directory, parts_.rank, of_, deadline_ - begun_, *parts_.changes));
    PENSTOCK_ASSIGN_OR_RETURN(const bool reported, AwaitReports());
    if (!reported) return RescueEnd::kNotReported;
    PENSTOCK_ASSIGN_OR_RETURN(const PartWriter write, parts_.part([this] { return StillWanted(); }));
    PENSTOCK_ASSIGN_OR_RETURN(const CheckpointPart part, WriteRescuePart(parts_.directory, parts_.rank, write,
                                                                         of_, parts_.epoch, *parts_.changes));
    bytes = part.bytes;
    return CompleteOrAwait();
  }

  absl::Status StillWanted() const {
    if (parts_.now() < deadline_) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat("its part takes longer than ", absl::FormatDuration(deadline_ - begun_)));
  }

  // False: the planner lacks one.
  absl::StatusOr<bool> AwaitReports() {
    const absl::Time end = std::min(deadline_, begun_ + kReportTime);
    parts_.send_reports(end - begun_);
    absl::Status unknown;
    for (Backoff pauses(kFirstLook, kLongestLook);;) {
      const absl::StatusOr<uint64_t> completed = parts_.completed();
      if (completed.ok() && *completed >= *parts_.holds) return true;
      if (absl::IsAborted(completed.status())) return completed.status();
      unknown = completed.status();
      if (parts_.now() >= end) break;
      PENSTOCK_RETURN_IF_ERROR(parts_.wait(pauses.Next()));
    }
    PENSTOCK_RETURN_IF_ERROR(unknown);
    return false;
  }

  bool IsThere() const {
    return OpenCheckpoint(parts_.directory, *parts_.holds, CheckpointDepth::kSizes).ok();
  }

  absl::StatusOr<RescueEnd> CompleteOrAwait() {
    RescueRecords records;
    for (Backoff pauses(kFirstLook, kLongestLook);;) {
      if (IsThere()) return RescueEnd::kComplete;
      FindRescueRecords(parts_.directory, of_, parts_.epoch, records);
      if (CoverAll(rings_, SharesOf(records))) {
        PENSTOCK_ASSIGN_OR_RETURN(const bool completed, CompleteRescue(parts_.directory, of_, records,
                                                                       parts_.kept, *parts_.changes));
        if (completed) return RescueEnd::kComplete;
      }
      if (parts_.now() >= deadline_) return RescueEnd::kIncomplete;
      PENSTOCK_RETURN_IF_ERROR(parts_.wait(pauses.Next()));
    }
  }

  static std::map<uint32_t, WrittenShares> SharesOf(const RescueRecords& records) {
    std::map<uint32_t, WrittenShares> shares;
    for (const auto& [rank, record] : records) {
      shares[rank] = record.rescued_from.has_value() ? WrittenShares::kOwnAndNext : WrittenShares::kOwn;
    }
    return shares;
  }

  const RescueParts& parts_;
  const std::vector<RankGroup> rings_;
  // Without parts.
  const CheckpointManifest of_;
  const absl::Time begun_;
  const absl::Time deadline_;
};

void SayHowItEnded(const RescueParts& parts, const RescueReport& report, absl::Duration took) {
  const uint64_t holds = parts.holds.value_or(0);
  if (report.end == RescueEnd::kComplete) {
    LogInfo("what the ranks that are left hold is a checkpoint; going on from it",
            {{"directory", parts.directory},
             {"next_iteration", holds},
             {"instead_of", parts.goes_back_to},
             {"bytes", report.bytes},
             {"took", absl::FormatDuration(took)}});
    return;
  }
  LogWarning("what the ranks that are left hold cannot be gone on from; going back to the newest checkpoint",
             {{"why", NameOf(report.end)},
              {"reason", std::string(report.why.message())},
              {"holds", parts.holds.has_value() ? absl::StrCat(holds) : "an unfinished step"},
              {"going_back_to", parts.goes_back_to},
              {"took", absl::FormatDuration(took)}});
}

}  // namespace

const char* NameOf(RescueEnd end) {
  switch (end) {
    case RescueEnd::kNotRedundant:
      return "not_redundant";
    case RescueEnd::kNothingToSave:
      return "nothing_to_save";
    case RescueEnd::kNotSound:
      return "not_sound";
    case RescueEnd::kNotReported:
      return "not_reported";
    case RescueEnd::kIncomplete:
      return "incomplete";
    case RescueEnd::kFailed:
      return "failed";
    case RescueEnd::kComplete:
      return "complete";
  }
  return "unknown";
}

RescueReport Rescue(const RescueParts& parts) {
  std::vector<RankGroup> rings = HolderRings(*parts.job);
  if (rings.empty()) return {.end = RescueEnd::kNotRedundant};
  if (parts.holds.has_value() && *parts.holds <= parts.goes_back_to)
    return {.end = RescueEnd::kNothingToSave};
  const absl::Time begun = parts.now();
  const RescueReport report = parts.holds.has_value() ? RescueOfRank(parts, std::move(rings)).Run()
                                                      : RescueReport{.end = RescueEnd::kNotSound};
  SayHowItEnded(parts, report, parts.now() - begun);
  return report;
}

absl::Status AwaitRescue(const std::string& directory, const std::string& job_id,
                         const std::function<absl::Status(absl::Duration)>& wait,
                         const std::function<absl::Time()>& now) {
  const absl::Time begun = now();
  Backoff pauses(kFirstLook, kLongestLook);
  // Clocks of file servers may be wrong.
  while (now() < begun + kLongestRescue && IsRescueAnnounced(directory, job_id)) {
    PENSTOCK_RETURN_IF_ERROR(wait(pauses.Next()));
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
