#include "planner/core/diagnose/step_replays.h"

#include <cmath>

#include "common/status/status_macros.h"
#include "planner/core/diagnose/communication.h"

namespace penstock::core {

absl::StatusOr<StepReplays> StepReplays::Of(const Timeline& timeline) {
  if (timeline.steps.empty()) return absl::InvalidArgumentError("a timeline without steps");
  StepReplays replays;
  replays.timeline_ = &timeline;
  const Communication communication(timeline);
  for (const TimelineStep& step : timeline.steps) {
    PENSTOCK_ASSIGN_OR_RETURN(StepGraph graph, GraphOfStep(timeline, communication, step));
    replays.graphs_.push_back(std::move(graph));
  }
  replays.Replay();
  return replays;
}

void StepReplays::Replay() {
  const auto steps = static_cast<double>(graphs_.size());
  for (const StepGraph& graph : graphs_) {
    const auto took = static_cast<double>(graph.measured_ns);
    const auto again = static_cast<double>(graph.graph.Finish(graph.durations_ns));
    measured_ns_ += took / steps;
    replayed_ns_ += again / steps;
    error_ += std::abs(again / std::max(took, 1.0) - 1) / steps;
  }
}

double StepReplays::MeanWith(const Mend& mend) const {
  double sum = 0;
  std::vector<int64_t> durations;
  for (size_t step = 0; step < graphs_.size(); ++step) {
    durations = graphs_[step].durations_ns;
    for (size_t i = 0; i < durations.size(); ++i)
      durations[i] = std::llround(std::max(0.0, mend(step, i, static_cast<double>(durations[i]))));
    sum += static_cast<double>(graphs_[step].graph.Finish(durations));
  }
  return sum / static_cast<double>(graphs_.size());
}

double StepReplays::GainOf(const Mend& mend) const {
  return 1 - MeanWith(mend) / std::max(replayed_ns_, 1.0);
}

}  // namespace penstock::core
