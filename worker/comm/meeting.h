// What all ranks of a group do together, and what a stranger may spoil for one of them: they begin when all
// are there, so that a port on which one of them waits is open for a moment only, and when it went wrong for
// one of them they do it again, within the same epoch.
//
//   PENSTOCK_RETURN_IF_ERROR(MeetTogether({.store = store, .position = 1, .size = 2, .connect_timeout =
//   limit},
//                                         [&](const Attempt& attempt) { return Join(attempt); }));
#pragma once

#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "worker/comm/store.h"

namespace penstock::worker {

struct Meeting {
  // This group's, and this purpose's.
  StoreClient store;
  int position = 0;
  int size = 1;
  // How long the others may take to come.
  std::chrono::milliseconds connect_timeout = {};
};

struct Attempt {
  int number = 0;
  // What it may take. Longer each time, up to connect_timeout: ranks may be slow, too.
  std::chrono::milliseconds limit = {};
};

inline constexpr int kMostAttempts = 8;

// Blocks until `attempt` has gone well on all ranks. An attempt that went well here may be followed by
// another one: what it has made counts only when this returns OK. Possible errors: UNAVAILABLE (not all have
// come, or a rank did not say how it went), or what the last attempt has returned on this rank, or
// UNAVAILABLE with the reason of another one.
absl::Status MeetTogether(const Meeting& meeting, const std::function<absl::Status(const Attempt&)>& attempt);

}  // namespace penstock::worker
