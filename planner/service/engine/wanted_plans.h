// Plans that somebody asked for and that are not in memory: those that are to be made again, and those that
// cannot be. Not part of a job's events. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"

namespace penstock {

class WantedPlans {
 public:
  void Want(uint64_t iteration) { wanted_.insert(iteration); }
  // The plan is in memory.
  void NoteMade(uint64_t iteration) { wanted_.erase(iteration); }
  // It cannot be made, and why.
  void NoteLost(uint64_t iteration, absl::Status why) {
    wanted_.erase(iteration);
    lost_[iteration] = std::move(why);
  }
  // They are no longer held.
  void ForgetBefore(uint64_t first_held) {
    wanted_.erase(wanted_.begin(), wanted_.lower_bound(first_held));
    lost_.erase(lost_.begin(), lost_.lower_bound(first_held));
  }

  // To be made, ascending.
  const std::set<uint64_t>& iterations() const { return wanted_; }
  // Told once: whoever asks again has it tried again.
  std::optional<absl::Status> TakeLoss(uint64_t iteration) {
    const auto lost = lost_.extract(iteration);
    return lost.empty() ? std::nullopt : std::optional(lost.mapped());
  }

 private:
  std::set<uint64_t> wanted_;
  std::map<uint64_t, absl::Status> lost_;
};

}  // namespace penstock
