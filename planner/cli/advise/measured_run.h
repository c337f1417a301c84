// What a run does now: its job with the costs as they were measured last, batches that it trained on, and
// what its iterations took. From the planner that has the job, or from the folder of a run of `penstock up`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

struct IterationTimes {
  uint64_t iteration = 0;
  // Of the plan that it ran, whose costs may be older than the newest.
  int64_t planned_ns = 0;
  int64_t measured_ns = 0;
  // Of it, for its program: what was not planned in time.
  int64_t waited_ns = 0;
};

struct MeasuredRun {
  v1::JobSpec job;
  // Whether the job's costs were fitted to what its ranks reported.
  bool fitted = false;
  // Of its last iterations, ascending.
  std::vector<v1::Batch> batches = {};
  std::vector<IterationTimes> iterations = {};
  // From the start of its processes until its first iteration was done, seconds; nothing: nobody measured it.
  std::optional<double> start_seconds = {};
};

// Mean of the iterations; 0: there are none.
double MeanMeasuredMs(const MeasuredRun& run);
double MeanPlannedMs(const MeasuredRun& run);
double MeanWaitedMs(const MeasuredRun& run);

// With at most `batches` batches and four times as many iterations, the last that are done. Possible errors:
// NOT_FOUND (the job; or it has no iteration that the planner holds), those of the planner.
absl::StatusOr<MeasuredRun> MeasuredRunOf(PlannerClient& client, const std::string& job_id, uint64_t batches);

// RUN/measured.json. Possible errors: NOT_FOUND (the run has none: says how to get one), INVALID_ARGUMENT
// (not what is written; names the file), those of ReadFile and WriteFileAtomically.
absl::StatusOr<MeasuredRun> ReadMeasuredRun(const std::string& run_dir);
absl::Status WriteMeasuredRun(const std::string& run_dir, const MeasuredRun& run);

}  // namespace penstock::cli
