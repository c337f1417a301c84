// The curves of a run, as it goes on: RUN/metrics.jsonl for programs, RUN/tensorboard for TensorBoard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/metrics_file.h"
#include "planner/cli/up/task_counts.h"
#include "planner/cli/up/tensorboard_events.h"
#include "planner/cli/up/validation.h"

namespace penstock::cli {

class RunCurves {
 public:
  // Of a run that begins with `first_iteration`, or goes on there. One that `trains` nothing has no events
  // for TensorBoard. Possible errors: those of MetricsFile::Open and TensorboardEvents::Open.
  static absl::StatusOr<RunCurves> Open(const std::string& run_dir, uint64_t first_iteration, bool trains,
                                        TensorboardEvents::Clock clock = absl::Now);

  // An iteration that is done again takes the place of the earlier one. Each is tried, whatever happens to
  // the other. Possible errors: UNAVAILABLE, naming the file.
  absl::Status Add(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks);
  absl::Status AddValidation(const ValidatedCheckpoint& checkpoint);

 private:
  RunCurves(MetricsFile metrics, std::optional<TensorboardEvents> events, uint64_t first_iteration)
      : metrics_(std::move(metrics)), events_(std::move(events)), next_iteration_(first_iteration) {}

  absl::Status AddEvents(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks);

  MetricsFile metrics_;
  std::optional<TensorboardEvents> events_;
  // Behind the last one that has events.
  uint64_t next_iteration_;
};

}  // namespace penstock::cli
