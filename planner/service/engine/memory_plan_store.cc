#include "planner/service/engine/memory_plan_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {

absl::StatusOr<MemoryPlanStore::Iterations*> MemoryPlanStore::FindJobLocked(const std::string& job_id) {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return absl::NotFoundError(absl::StrCat("job '", job_id, "' is not stored"));
  return &job->second;
}

absl::StatusOr<const MemoryPlanStore::Iteration*> MemoryPlanStore::FindLocked(const std::string& job_id,
                                                                              uint64_t iteration) const {
  const auto job = jobs_.find(job_id);
  if (job == jobs_.end()) return absl::NotFoundError(absl::StrCat("job '", job_id, "' is not stored"));
  const auto found = job->second.find(iteration);
  if (found == job->second.end()) {
    return absl::NotFoundError(absl::StrCat("iteration ", iteration, " of job '", job_id, "' is not stored"));
  }
  return &found->second;
}

absl::Status MemoryPlanStore::AddJob(const v1::JobSpec& job) {
  MutexLock lock(&mutex_);
  jobs_[job.job_id()];
  return absl::OkStatus();
}

absl::Status MemoryPlanStore::RemoveJob(const std::string& job_id) {
  MutexLock lock(&mutex_);
  jobs_.erase(job_id);
  return absl::OkStatus();
}

absl::Status MemoryPlanStore::AddBatches(const std::string& job_id, const std::vector<BatchPtr>& batches) {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Iterations * iterations, FindJobLocked(job_id));
  for (const BatchPtr& batch : batches) (*iterations)[batch->iteration()].batch = batch;
  return absl::OkStatus();
}

absl::Status MemoryPlanStore::AddPlan(const std::string& job_id, PlanPtr plan) {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Iterations * iterations, FindJobLocked(job_id));
  Iteration& iteration = (*iterations)[plan->iteration()];
  iteration.plan = std::move(plan);
  return absl::OkStatus();
}

absl::Status MemoryPlanStore::AddReport(const v1::ReportIterationRequest& report) {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Iterations * iterations, FindJobLocked(report.job_id()));
  (*iterations)[report.iteration()].reports[report.rank()] = report;
  return absl::OkStatus();
}

absl::Status MemoryPlanStore::DropReports(const std::string& job_id, uint64_t iteration) {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Iterations * iterations, FindJobLocked(job_id));
  for (auto it = iterations->lower_bound(iteration); it != iterations->end(); ++it)
    it->second.reports.clear();
  return absl::OkStatus();
}

absl::Status MemoryPlanStore::Trim(const std::string& job_id, uint64_t iteration) {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(Iterations * iterations, FindJobLocked(job_id));
  iterations->erase(iterations->begin(), iterations->lower_bound(iteration));
  return absl::OkStatus();
}

absl::StatusOr<BatchPtr> MemoryPlanStore::GetBatch(const std::string& job_id, uint64_t iteration) const {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const Iteration* found, FindLocked(job_id, iteration));
  return found->batch;
}

absl::StatusOr<PlanPtr> MemoryPlanStore::GetPlan(const std::string& job_id, uint64_t iteration) const {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const Iteration* found, FindLocked(job_id, iteration));
  if (found->plan == nullptr) {
    return absl::NotFoundError(absl::StrCat("iteration ", iteration, " of job '", job_id, "' has no plan"));
  }
  return found->plan;
}

absl::StatusOr<std::vector<v1::ReportIterationRequest>> MemoryPlanStore::GetReports(
    const std::string& job_id, uint64_t iteration) const {
  MutexLock lock(&mutex_);
  PENSTOCK_ASSIGN_OR_RETURN(const Iteration* found, FindLocked(job_id, iteration));
  std::vector<v1::ReportIterationRequest> reports;
  for (const auto& [rank, report] : found->reports) reports.push_back(report);
  return reports;
}

}  // namespace penstock
