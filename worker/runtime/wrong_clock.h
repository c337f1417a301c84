// The clock of a rank that is wrong on purpose (common/simulation/clock_error.h): what the rank reports is
// what it would measure by such a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/simulation/clock_error.h"
#include "worker/runtime/iteration_result.h"

namespace penstock::worker {

class WrongClock {
 public:
  // Where no error is of `rank` its clock is right. Where there are none at all, nothing happens here.
  WrongClock(const std::vector<ClockError>& errors, uint32_t rank);

  // Puts the times of the iteration wrong, those of its validation left out, and logs the true ones: when the
  // first of its instructions began and when the last one ended.
  void Read(uint64_t iteration, IterationResult* result);

 private:
  int64_t ByThisClock(int64_t true_ns) const;

  const bool tried_out_;
  ClockError error_;
  // Wall clock when the first iteration began.
  std::optional<int64_t> first_unix_ns_;
};

}  // namespace penstock::worker
