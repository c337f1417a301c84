// What all ranks of a group do together, and what a stranger may spoil for one of them: they begin when all
// are there, so that a port on which one of them waits is open for a moment only, and when it went wrong for
// one of them they do it again, within the same epoch.
//
//   PENSTOCK_RETURN_IF_ERROR(MeetTogether({.store = store, .group = {3, 7}, .rank = 7, .connect_timeout =
//   limit},
//                                         [&](const Attempt& attempt) { return Join(attempt); }));
#pragma once

#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "worker/comm/groups.h"
#include "worker/comm/store.h"

namespace penstock::worker {

struct Meeting {
  // This group's, and this purpose's.
  StoreClient store;
  RankGroup group;
  // This one, of the group.
  uint32_t rank = 0;
  // What the last attempt may take.
  std::chrono::milliseconds connect_timeout = {};
  // As in CommunicatorOptions.
  std::function<absl::Status()> still_wanted = [] { return absl::OkStatus(); };
};

struct Attempt {
  int number = 0;
  // What it may take. Longer each time, up to connect_timeout: ranks may be slow, too.
  std::chrono::milliseconds limit = {};
};

inline constexpr int kMostAttempts = 8;

// What a group of which all are there may take, where strangers spoil all attempts but the last: so long is
// waited for a rank that may still be in another one.
std::chrono::milliseconds LongestMeeting(std::chrono::milliseconds connect_timeout);

// Blocks until `attempt` has gone well on all ranks. An attempt that went well here may be followed by
// another one: what it has made counts only when this returns OK. UNAVAILABLE from `attempt` is what a
// stranger may have done; any other error would come again, and ends it for all ranks.
// Possible errors: what the last attempt has returned on this rank; UNAVAILABLE or FAILED_PRECONDITION (the
// reason of another rank, by its name); DEADLINE_EXCEEDED (names the ranks that have not come; or no outcome
// of all ranks: one of them has ended meanwhile); UNAVAILABLE (the store); CANCELLED (it is not wanted any
// more).
absl::Status MeetTogether(const Meeting& meeting, const std::function<absl::Status(const Attempt&)>& attempt);

}  // namespace penstock::worker
