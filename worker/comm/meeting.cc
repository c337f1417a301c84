#include "worker/comm/meeting.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
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

// One attempt as the store sees it. The first rank of the group collects what the others say and tells it to
// all, so that a group of n ranks asks the store about n times.
class Turn {
 public:
  Turn(const Meeting& meeting, const Attempt& attempt) : meeting_(meeting), attempt_(attempt) {}

  absl::Status AwaitAll() {
    return AsUnavailable(RunTorch("waiting for the ranks of the group", [&] {
      Say("here", meeting_.position, "");
      if (Leads()) {
        meeting_.store->wait(KeysOfAll("here"), meeting_.connect_timeout);
        meeting_.store->set(Key("begin"), std::string());
      }
      meeting_.store->wait({Key("begin")}, meeting_.connect_timeout);
    }));
  }

  // How it went for all, where it went so for this rank.
  absl::Status Agree(const absl::Status& own) {
    const absl::StatusOr<std::string> verdict = CallTorch("waiting for the outcome of the group", [&] {
      Say("outcome", meeting_.position, own.ok() ? "" : absl::StrCat("failed: ", own.message()));
      if (Leads()) meeting_.store->set(Key("verdict"), Collect());
      meeting_.store->wait({Key("verdict")}, Patience());
      return meeting_.store->get_to_str(Key("verdict"));
    });
    PENSTOCK_RETURN_IF_ERROR(own);
    if (!verdict.ok()) return absl::UnavailableError(verdict.status().message());
    return verdict->empty() ? absl::OkStatus() : absl::UnavailableError(*verdict);
  }

 private:
  bool Leads() const { return meeting_.position == 0; }

  // They begin together, so they end together, or at their limit.
  std::chrono::milliseconds Patience() const { return meeting_.connect_timeout + attempt_.limit; }

  std::string Key(const std::string& what) const {
    return absl::StrCat("attempt ", attempt_.number, " ", what);
  }

  std::vector<std::string> KeysOfAll(const std::string& what) const {
    std::vector<std::string> keys;
    for (int position = 0; position < meeting_.size; ++position)
      keys.push_back(absl::StrCat(Key(what), " ", position));
    return keys;
  }

  void Say(const std::string& what, int position, const std::string& value) const {
    meeting_.store->set(absl::StrCat(Key(what), " ", position), value);
  }

  // Empty, or the first reason.
  std::string Collect() const {
    const std::vector<std::string> keys = KeysOfAll("outcome");
    meeting_.store->wait(keys, Patience());
    for (const std::string& key : keys) {
      std::string outcome = meeting_.store->get_to_str(key);
      if (!outcome.empty()) return outcome;
    }
    return "";
  }

  static absl::Status AsUnavailable(const absl::Status& status) {
    return status.ok() ? status : absl::UnavailableError(status.message());
  }

  const Meeting& meeting_;
  const Attempt attempt_;
};

}  // namespace

absl::Status MeetTogether(const Meeting& meeting,
                          const std::function<absl::Status(const Attempt&)>& attempt) {
  for (int number = 0;; ++number) {
    const Attempt now = AttemptOf(number, meeting.connect_timeout);
    Turn turn(meeting, now);
    PENSTOCK_RETURN_IF_ERROR(turn.AwaitAll());
    const absl::Status outcome = turn.Agree(attempt(now));
    if (outcome.ok() || number + 1 == kMostAttempts) return outcome;
    LogWarning("a group of ranks meets again", {{"attempt", number + 1}, {"reason", outcome.message()}});
  }
}

}  // namespace penstock::worker
