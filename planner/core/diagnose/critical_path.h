// What decides how long a step takes, in time's order.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/diagnose/step_graph.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// Activities that follow each other on the path: of one rank, and called the same.
struct CriticalPart {
  int32_t rank = 0;
  // Of a transfer: the receiver; otherwise -1.
  int32_t peer = -1;
  // Position in Timeline.names: the operation's; of a host's time that of the one it came before.
  int32_t name = 0;
  bool host = false;
  int32_t operations = 0;
  // Since the step began.
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
};

struct CriticalPath {
  // TimelineStep.number.
  int64_t step = 0;
  int64_t measured_ns = 0;
  std::vector<CriticalPart> parts = {};
};

// Of the step whose length is the median one. `graphs`: of the timeline's steps, at least one.
CriticalPath FindCriticalPath(const Timeline& timeline, const std::vector<StepGraph>& graphs);

}  // namespace penstock::core
