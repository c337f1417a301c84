#include "planner/cli/up/run_curves.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {

absl::StatusOr<RunCurves> RunCurves::Open(const std::string& run_dir, uint64_t first_iteration) {
  PENSTOCK_ASSIGN_OR_RETURN(MetricsFile metrics,
                            MetricsFile::Open(absl::StrCat(run_dir, "/metrics.jsonl"), first_iteration));
  return RunCurves(std::move(metrics));
}

absl::Status RunCurves::Add(const v1::IterationSummary& iteration, const std::vector<TaskCounts>& tasks) {
  return metrics_.Add(iteration, tasks);
}

absl::Status RunCurves::AddValidation(const ValidatedCheckpoint& checkpoint) {
  return metrics_.AddValidation(checkpoint);
}

}  // namespace penstock::cli
