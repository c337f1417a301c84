// A step of a timeline as a graph, with what its activities took.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/communication.h"
#include "planner/core/diagnose/replay_graph.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// What takes time in a step: an operation, a transfer or collective of several operations together, or the
// host's time before an operation, or what it does alone after a collective.
struct Activity {
  bool host = false;
  // In TimelineStep.operations: the first of those that are together; of a host's time its own.
  int32_t operation = 0;
  // Of a transfer: the operation of the receiver; otherwise -1.
  int32_t receiver = -1;
  // Of a collective of several ranks: their operations.
  std::vector<int32_t> members = {};
  // The name of the operation before a host's time, -1 at the beginning of the step, its own after a
  // collective.
  int32_t name_before = -1;
};

struct StepGraph {
  ReplayGraph graph;
  std::vector<Activity> activities;
  // By activity: what it took. A transfer or collective takes the time from its last rank's arrival on.
  std::vector<int64_t> durations_ns;
  // From the first start to the last end, as it was.
  int64_t measured_ns = 0;
};

// Where the order of a rank's operations is known it is taken. Otherwise the times of the step tell it:
// - a rank's operations follow each other in the order of their starts; those that overlap belong together,
// and all
//   of them end before the next begins. Communication of a name that runs beside passes has an order of its
//   own: passes wait for what they receive, sends for the pass before them, receives for nothing but what is
//   sent;
// - a send belongs to the receive of the same micro-batch, or the n-th one, of the next (or previous) stage;
// the n-th
//   operation of another name to those of the ranks that wait for each other in it (Communication);
// - where ranks begin an operation at the same time although they ended the one before at different times,
// they have
//   waited for the last of them (a barrier that is in no trace);
// - what time is left between operations is the host's.
// Possible errors: INVALID_ARGUMENT (operations that wait for each other in a circle: names the step).
absl::StatusOr<StepGraph> GraphOfStep(const Timeline& timeline, const Communication& communication,
                                      const TimelineStep& step);

}  // namespace penstock::core
