// Calls of libraries that may block for longer than anybody wants to wait.
#pragma once

#include <functional>

#include "absl/time/time.h"

namespace penstock::worker {

// Runs `body` on a thread of its own and waits for it for at most `limit`. Whether it has ended; if not, it
// goes on alone: what it uses has to be its own.
bool EndsWithin(absl::Duration limit, std::function<void()> body);

}  // namespace penstock::worker
