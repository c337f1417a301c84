// Whether a process of a run that died is started again, and when.
//
// Bounded twice: over the whole run, and for a process that dies again and again without the run getting any
// further, which another start does not mend. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/backoff/backoff.h"

namespace penstock::cli {

class RestartPolicy {
 public:
  // Deaths of one process without a new iteration in between that end the run.
  static constexpr uint32_t kMostInARow = 3;

  // `most`: restarts of all processes in the run.
  explicit RestartPolicy(uint32_t most) : most_(most) {}

  // A process has died: how long to wait before it is started again. Possible errors: RESOURCE_EXHAUSTED (not
  // again, and why; names the process and the flag).
  absl::StatusOr<absl::Duration> OnDeath(const std::string& process);

  // Whether it has, since the last progress.
  bool HasDied(const std::string& process) const { return deaths_.contains(process); }

  // The run has finished an iteration that it had never finished before.
  void OnProgress();

  // So far.
  uint32_t restarts() const { return restarts_; }
  uint32_t most() const { return most_; }

 private:
  struct Deaths {
    uint32_t in_a_row = 0;
    // The first death may be chance: at once.
    Backoff pauses{absl::Milliseconds(200), absl::Seconds(5)};
  };

  const uint32_t most_;
  uint32_t restarts_ = 0;
  // By process, since the last progress.
  std::map<std::string, Deaths> deaths_;
};

}  // namespace penstock::cli
