// When instructions may start, by what the plan itself says of all others (execution.md, section 6).
//
// The times of a plan solve one equation for each instruction: it starts when the latest of those that it
// waits for ends. Programs that cannot deadlock have one solution only, so it is enough to look at every
// equation by itself; a wrong time is named where it is, not wherever it leads to.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/verify/plan_index.h"

namespace penstock::core::verify {

class Timeline {
 public:
  // Nearly ten hours. No longer time is looked at, so that sums cannot overflow.
  static constexpr int64_t kMostNs = int64_t{1} << 45;

  // All times must be between 0 and kMostNs. `index` must outlive the timeline.
  explicit Timeline(const PlanIndex& index);

  // When the instruction may start. Of a transfer or collective: together with all that take part.
  int64_t StartOf(int rank, const v1::Instruction& instruction) const;

  static int64_t EndOf(const v1::Instruction& instruction) {
    return instruction.expected_start_ns() + instruction.expected_duration_ns();
  }

 private:
  void ListRank(int rank);

  const PlanIndex& index_;
  // Of each rank, by id: when it may start as far as its own rank is concerned.
  std::vector<std::vector<int64_t>> ready_ns_;
  // Of each group: the latest of all ranks, by Collective.sequence.
  std::vector<std::vector<int64_t>> collective_ns_;
};

// The other end of a SEND or RECV; null where there is none.
struct OtherEnd {
  int rank = 0;
  const v1::Instruction* instruction = nullptr;
};
OtherEnd FindOtherEnd(const PlanIndex& index, int rank, const v1::Instruction& transfer);

}  // namespace penstock::core::verify
