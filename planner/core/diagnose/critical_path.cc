#include "planner/core/diagnose/critical_path.h"

#include <algorithm>
#include <cstddef>

namespace penstock::core {
namespace {

size_t MedianStep(const std::vector<StepGraph>& graphs) {
  std::vector<size_t> order(graphs.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
    return graphs[one].measured_ns < graphs[other].measured_ns;
  });
  return order[(order.size() - 1) / 2];
}

bool Continues(const CriticalPart& before, const CriticalPart& part) {
  return before.rank == part.rank && before.peer == part.peer && before.name == part.name &&
         before.host == part.host;
}

}  // namespace

CriticalPath FindCriticalPath(const Timeline& timeline, const std::vector<StepGraph>& graphs) {
  const size_t step = MedianStep(graphs);
  const std::vector<Operation>& operations = timeline.steps[step].operations;
  CriticalPath path = {.step = timeline.steps[step].number, .measured_ns = graphs[step].measured_ns};
  int64_t now_ns = 0;
  for (const int32_t i : graphs[step].graph.CriticalPath(graphs[step].durations_ns)) {
    const Activity& activity = graphs[step].activities[i];
    const Operation& operation = operations[activity.operation];
    const CriticalPart part = {.rank = operation.rank,
                               .peer = activity.receiver >= 0 ? operations[activity.receiver].rank : -1,
                               .name = operation.name,
                               .host = activity.host,
                               .operations = 1,
                               .start_ns = now_ns,
                               .duration_ns = graphs[step].durations_ns[i]};
    now_ns += part.duration_ns;
    // What takes no time decides nothing.
    if (part.duration_ns <= 0) continue;
    if (path.parts.empty() || !Continues(path.parts.back(), part)) {
      path.parts.push_back(part);
      continue;
    }
    path.parts.back().duration_ns += part.duration_ns;
    ++path.parts.back().operations;
  }
  return path;
}

}  // namespace penstock::core
