// What the ranks of a job report of their iterations. Thread-safe.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_costs.h"
#include "planner/service/engine/job_diagnoses.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/engine/job_traces.h"

namespace penstock {

class JobReports {
 public:
  // All must outlive it.
  JobReports(JobRecord& record, JobReaders& readers, JobPlanning& planning, JobCosts& costs,
             JobDiagnoses& diagnoses, JobTraces& traces)
      : record_(record),
        readers_(readers),
        planning_(planning),
        costs_(costs),
        diagnoses_(diagnoses),
        traces_(traces) {}

  // The method of the service.
  absl::Status Take(const v1::ReportIterationRequest& report);

 private:
  // Iterations that all ranks have reported now, ascending, and the batches of them whose end is to be told.
  struct Completed {
    std::vector<v1::IterationSummary> summaries;
    JobTraces::EndedBatches ended;
  };

  absl::Status CheckReporterLocked(const v1::ReportIterationRequest& report) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  absl::Status CheckSentLocked(const v1::ReportIterationRequest& report) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Of the rank's program, of a report that may be taken; empty where it was taken before. Takes time,
  // without the lock.
  absl::StatusOr<std::vector<v1::Op>> ReportedOps(const v1::ReportIterationRequest& report);
  absl::Status KeepReportLocked(const v1::ReportIterationRequest& report, const std::vector<v1::Op>& ops)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // `before`: so many iterations were complete before the report.
  Completed CompleteLocked(uint64_t before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);

  JobRecord& record_;
  JobReaders& readers_;
  JobPlanning& planning_;
  JobCosts& costs_;
  JobDiagnoses& diagnoses_;
  JobTraces& traces_;
};

}  // namespace penstock
