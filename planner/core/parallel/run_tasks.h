// How the core uses more than one core without knowing threads: its caller lends it a way to run tasks.
#pragma once

#include <functional>

#include "absl/functional/function_ref.h"

namespace penstock::core {

// Runs task(0) .. task(count - 1), each once, in any order and on any threads, and returns when all have
// ended. Tasks share nothing that they write, so the result is the same for any number of threads.
using RunTasks = std::function<void(int count, absl::FunctionRef<void(int)> task)>;

// One after another on the calling thread.
inline void RunSerially(int count, absl::FunctionRef<void(int)> task) {
  for (int i = 0; i < count; ++i) task(i);
}

}  // namespace penstock::core
