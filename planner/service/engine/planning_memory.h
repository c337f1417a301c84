// How the tasks of the planning pool share its memory, by what they say that they will take.
//
// A task begins when there is room for it beside those that have begun; alone it may begin in any case. Small
// ones, batches of jobs that take a twentieth of the memory at most, should wait for nobody: for these an
// eighth is left by all others, and one that says that it takes more than the rest counts as the rest, as
// there may always be small ones.
#pragma once

#include <cstdint>

#include "planner/service/engine/planning_ticket.h"

namespace penstock {

class PlanningMemory {
 public:
  // Beside what has begun; `all`: nothing has.
  struct Room {
    int64_t free = 0;
    // What small batches of jobs have that have begun.
    int64_t of_small = 0;
    bool all = false;
  };

  // Of all tasks that have begun.
  explicit PlanningMemory(int64_t bytes) : bytes_(bytes) {}

  Room Whole() const { return {.free = bytes_, .all = true}; }
  // The task has begun.
  void Take(const PlanningWork& work, Room* room) const;
  // Whether a task that has not begun has room.
  bool Fits(const PlanningWork& work, const Room& room) const;
  // A small one, while they are not too many together: the room that is left to them is theirs, and no more.
  bool WaitsForNobody(const PlanningWork& work, const Room& room) const;

 private:
  int64_t BytesOf(const PlanningWork& work) const;
  bool IsSmall(const PlanningWork& work) const;

  const int64_t bytes_;
};

}  // namespace penstock
