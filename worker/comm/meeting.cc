#include "worker/comm/meeting.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// For ranks that are there to connect, on a machine that has other things to do: failures are noticed sooner,
// but for a stranger who says nothing.
constexpr std::chrono::milliseconds kShortestLimit{2'000};

Attempt AttemptOf(int number, std::chrono::milliseconds connect_timeout) {
  return {.number = number,
          .limit = std::max(connect_timeout / (kMostAttempts - number),
                            std::min(kShortestLimit, connect_timeout))};
}

// How an attempt went for a rank, and what the first rank of the group makes of it for all: nothing where it
// went well, or the reason after one of these.
constexpr absl::string_view kAgain = "again: ";
constexpr absl::string_view kNeverAgain = "never again: ";

// One attempt as the store sees it. The first rank of the group collects what the others say and tells it to
// all, so that a group of n ranks asks the store about n times.
class Turn {
 public:
  Turn(const Meeting& meeting, const Attempt& attempt) : meeting_(meeting), attempt_(attempt) {}

  absl::Status AwaitAll() {
    PENSTOCK_RETURN_IF_ERROR(Say(KeyOf("here", meeting_.rank), ""));
    if (Leads()) {
      const absl::Status all = Await(KeysOfAll("here"), PatienceForOthers());
      if (!all.ok()) return AnnotateError(all, absl::StrCat("waiting for ", Missing("here")));
      PENSTOCK_RETURN_IF_ERROR(Say(Key("begin"), ""));
    }
    return AnnotateError(Await({Key("begin")}, PatienceForOthers()),
                         absl::StrCat("waiting for the ranks ", Describe(meeting_.group), " to begin"));
  }

  // How it went for all, where it went so for this rank.
  absl::Status Agree(const absl::Status& own) {
    const absl::StatusOr<std::string> verdict = Verdict(own);
    if (!own.ok() && !absl::IsUnavailable(own)) return own;
    if (!verdict.ok()) return own.ok() ? verdict.status() : NoVerdict(verdict.status(), own);
    if (absl::StartsWith(*verdict, kNeverAgain))
      return absl::FailedPreconditionError(verdict->substr(kNeverAgain.size()));
    if (!own.ok() || verdict->empty()) return own;
    return absl::UnavailableError(verdict->substr(kAgain.size()));
  }

 private:
  bool Leads() const { return meeting_.rank == meeting_.group.front(); }

  // They may be in another group first, but not when they have been here already.
  std::chrono::milliseconds PatienceForOthers() const {
    return attempt_.number == 0 ? LongestMeeting(meeting_.connect_timeout) : PatienceForOutcome();
  }
  // They begin together, so they end together, or at their limit.
  std::chrono::milliseconds PatienceForOutcome() const { return meeting_.connect_timeout + attempt_.limit; }

  std::string Key(absl::string_view what) const {
    return absl::StrCat("attempt ", attempt_.number, " ", what);
  }
  std::string KeyOf(absl::string_view what, uint32_t rank) const {
    return absl::StrCat(Key(what), " ", rank);
  }
  std::vector<std::string> KeysOfAll(absl::string_view what) const {
    std::vector<std::string> keys;
    for (const uint32_t rank : meeting_.group) keys.push_back(KeyOf(what, rank));
    return keys;
  }

  absl::Status Say(const std::string& key, const std::string& value) const {
    return RunTorch("telling the ranks of the group", [&] { meeting_.store->set(key, value); });
  }
  absl::StatusOr<std::string> Hear(const std::string& key) const {
    return CallTorch("hearing from the ranks of the group", [&] { return meeting_.store->get_to_str(key); });
  }
  absl::Status Await(const std::vector<std::string>& keys, std::chrono::milliseconds patience) const {
    return AwaitKeys(meeting_.store, keys, patience, meeting_.still_wanted);
  }

  // "ranks 3, 7"
  std::string Missing(absl::string_view what) const {
    RankGroup missing;
    for (const uint32_t rank : meeting_.group) {
      const absl::StatusOr<bool> said =
          CallTorch("asking who has come", [&] { return meeting_.store->check({KeyOf(what, rank)}); });
      if (said.ok() && !*said) missing.push_back(rank);
    }
    return absl::StrCat("ranks ", Describe(missing));
  }

  absl::StatusOr<std::string> Verdict(const absl::Status& own) const {
    const std::string outcome =
        own.ok() ? "" : absl::StrCat(absl::IsUnavailable(own) ? kAgain : kNeverAgain, own.message());
    PENSTOCK_RETURN_IF_ERROR(Say(KeyOf("outcome", meeting_.rank), outcome));
    // It would come again, whatever the others say.
    if (absl::StartsWith(outcome, kNeverAgain)) {
      if (Leads()) PENSTOCK_RETURN_IF_ERROR(Say(Key("verdict"), FromRank(outcome, meeting_.rank)));
      return outcome;
    }
    if (Leads()) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::string collected, Collect());
      PENSTOCK_RETURN_IF_ERROR(Say(Key("verdict"), collected));
      return collected;
    }
    PENSTOCK_RETURN_IF_ERROR(
        AnnotateError(Await({Key("verdict")}, PatienceForOutcome()), "waiting for the outcome of the group"));
    return Hear(Key("verdict"));
  }

  // The first reason that ends it, else the first one, else nothing.
  absl::StatusOr<std::string> Collect() const {
    const absl::Status all = Await(KeysOfAll("outcome"), PatienceForOutcome());
    if (!all.ok()) return AnnotateError(all, absl::StrCat("waiting for the outcome of ", Missing("outcome")));
    std::string verdict;
    for (const uint32_t rank : meeting_.group) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::string outcome, Hear(KeyOf("outcome", rank)));
      const bool ends = absl::StartsWith(outcome, kNeverAgain) && !absl::StartsWith(verdict, kNeverAgain);
      if (ends || (verdict.empty() && !outcome.empty())) verdict = FromRank(outcome, rank);
    }
    return verdict;
  }

  static std::string FromRank(absl::string_view outcome, uint32_t rank) {
    const absl::string_view kind = absl::StartsWith(outcome, kNeverAgain) ? kNeverAgain : kAgain;
    return absl::StrCat(kind, "rank ", rank, ": ", outcome.substr(kind.size()));
  }

  // Both say something, and a rank that is gone does not come to another attempt.
  static absl::Status NoVerdict(const absl::Status& verdict, const absl::Status& own) {
    return {absl::IsUnavailable(verdict) ? absl::StatusCode::kDeadlineExceeded : verdict.code(),
            absl::StrCat(own.message(), "; then ", verdict.message())};
  }

  const Meeting& meeting_;
  const Attempt attempt_;
};

}  // namespace

std::chrono::milliseconds LongestMeeting(std::chrono::milliseconds connect_timeout) {
  std::chrono::milliseconds sum = connect_timeout;
  for (int number = 0; number < kMostAttempts; ++number) sum += AttemptOf(number, connect_timeout).limit;
  return sum;
}

absl::Status MeetTogether(const Meeting& meeting,
                          const std::function<absl::Status(const Attempt&)>& attempt) {
  absl::Status before;
  for (int number = 0;; ++number) {
    const Attempt now = AttemptOf(number, meeting.connect_timeout);
    Turn turn(meeting, now);
    if (const absl::Status all = turn.AwaitAll(); !all.ok())
      return before.ok() ? all : AnnotateError(all, absl::StrCat("meeting again after: ", before.message()));
    before = turn.Agree(attempt(now));
    if (!absl::IsUnavailable(before) || number + 1 == kMostAttempts) return before;
    LogWarning("a group of ranks meets again", {{"attempt", number + 1}, {"reason", before.message()}});
  }
}

}  // namespace penstock::worker
