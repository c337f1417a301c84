#include "planner/service/engine/planning_memory.h"

#include <algorithm>

namespace penstock {
namespace {

// Of the memory: what a job's batch takes at most that waits for nobody's room, and what others leave to such
// tasks.
constexpr int64_t kSmallShare = 20;
constexpr int64_t kLeftShare = 8;

}  // namespace

void PlanningMemory::Take(const PlanningWork& work, Room* room) const {
  room->free -= std::min(room->free, BytesOf(work));
  if (IsSmall(work)) room->of_small += work.bytes;
  room->all = false;
}

bool PlanningMemory::Fits(const PlanningWork& work, const Room& room) const {
  if (room.all) return true;
  // What small ones have of it already is not left to them once more.
  const int64_t left =
      WaitsForNobody(work, room) ? 0 : std::max<int64_t>(0, bytes_ / kLeftShare - room.of_small);
  return BytesOf(work) <= room.free - left;
}

bool PlanningMemory::WaitsForNobody(const PlanningWork& work, const Room& room) const {
  return IsSmall(work) && room.of_small + work.bytes <= bytes_ / kLeftShare;
}

int64_t PlanningMemory::BytesOf(const PlanningWork& work) const {
  return IsSmall(work) ? work.bytes : std::min(work.bytes, bytes_ - bytes_ / kLeftShare);
}

bool PlanningMemory::IsSmall(const PlanningWork& work) const {
  return work.kind == PlanningClass::kJobBatch && work.bytes <= bytes_ / kSmallShare;
}

}  // namespace penstock
