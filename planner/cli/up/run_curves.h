// The curves of a run, as it goes on: RUN/metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/metrics_file.h"
#include "planner/cli/up/task_counts.h"
#include "planner/cli/up/validation.h"

namespace penstock::cli {

class RunCurves {
 public:
  // Of a run that begins with `first_iteration`, or goes on there. Possible errors: those of
  // MetricsFile::Open.
  static absl::StatusOr<RunCurves> Open(const std::string& run_dir, uint64_t first_iteration);

  // An iteration that is done again takes the place of the earlier one. Possible errors: UNAVAILABLE, naming
  // the file.
  absl::Status Add(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks);
  absl::Status AddValidation(const ValidatedCheckpoint& checkpoint);

 private:
  explicit RunCurves(MetricsFile metrics) : metrics_(std::move(metrics)) {}

  MetricsFile metrics_;
};

}  // namespace penstock::cli
