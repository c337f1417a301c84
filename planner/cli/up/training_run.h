// Drives one registered job on a planner from the client's side: feeds batches as far ahead as the planner
// takes them, and watches iterations complete.
//
//   TrainingRun run(client, job, batch_source);
//   while (!run.finished()) PENSTOCK_RETURN_IF_ERROR(run.Step(on_iteration));   // never blocks for long
//
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/batch_source.h"
#include "planner/client/planner_client.h"

namespace penstock::cli {

class TrainingRun {
 public:
  // `client` and `source` are not owned.
  TrainingRun(PlannerClient& client, const v1::JobSpec& job, BatchSource& source);

  // Submits what the planner's window takes and calls `on_iteration` for each iteration that has completed
  // since the last step, ascending. Possible errors: FAILED_PRECONDITION (the job failed; the message names
  // the rank), those of SubmitBatches and GetJob.
  absl::Status Step(const std::function<void(const v1::IterationSummary&)>& on_iteration);

  bool finished() const { return state_ == v1::JOB_STATE_FINISHED; }

 private:
  absl::Status Feed();

  PlannerClient& client_;
  const v1::JobSpec job_;
  BatchSource& source_;
  uint64_t next_batch_;
  uint64_t next_summary_;
  std::optional<v1::Batch> refused_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
};

}  // namespace penstock::cli
