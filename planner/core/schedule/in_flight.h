// Which micro-batches are between their forward and backward pass, on each stage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/core/schedule/pass_table.h"

namespace penstock::core {

// Keeps its arrays between runs.
class InFlight {
 public:
  void Reset(int stages, size_t micro_batches) {
    stages_ = stages;
    flags_.assign(micro_batches * stages, 0);
    windows_.assign(stages, Window());
  }

  void Enter(int32_t micro_batch, int stage) {
    flags_[at(micro_batch, stage)] = 1;
    windows_[stage].end = std::max(windows_[stage].end, micro_batch + 1);
  }

  void Leave(int32_t micro_batch, int stage) {
    flags_[at(micro_batch, stage)] = 0;
    Window& window = windows_[stage];
    while (window.begin < window.end && flags_[at(window.begin, stage)] == 0) ++window.begin;
  }

  // Whether `room` bytes suffice around the passes of all that are in flight on a stage.
  bool PassesFit(const PassTable& table, int stage, int64_t room) const {
    for (int32_t m = windows_[stage].begin; m < windows_[stage].end; ++m) {
      if (flags_[at(m, stage)] != 0 && table.passing_bytes[table.rows[m] + stage] > room) return false;
    }
    return true;
  }

 private:
  // All in flight are in [begin, end): looking at them does not grow with the micro-batches of a replica.
  struct Window {
    int32_t begin = 0;
    int32_t end = 0;
  };

  size_t at(int32_t micro_batch, int stage) const {
    return static_cast<size_t>(micro_batch) * stages_ + stage;
  }

  int stages_ = 0;
  // [micro_batch * stages + stage].
  std::vector<char> flags_;
  std::vector<Window> windows_;
};

}  // namespace penstock::core
