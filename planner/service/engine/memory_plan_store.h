// Keeps everything in memory; a planner that ends forgets it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/sync/sync.h"
#include "planner/service/engine/plan_store.h"

namespace penstock {

class MemoryPlanStore final : public PlanStore {
 public:
  absl::Status AddJob(const v1::JobSpec& job) override;
  absl::Status RemoveJob(const std::string& job_id) override;
  absl::Status AddBatches(const std::string& job_id, const std::vector<BatchPtr>& batches) override;
  absl::Status AddPlan(const std::string& job_id, PlanPtr plan) override;
  absl::Status AddReport(const v1::ReportIterationRequest& report) override;
  absl::Status DropReports(const std::string& job_id, uint64_t iteration) override;
  absl::Status Trim(const std::string& job_id, uint64_t iteration) override;
  absl::StatusOr<BatchPtr> GetBatch(const std::string& job_id, uint64_t iteration) const override;
  absl::StatusOr<PlanPtr> GetPlan(const std::string& job_id, uint64_t iteration) const override;
  absl::StatusOr<std::vector<v1::ReportIterationRequest>> GetReports(const std::string& job_id,
                                                                     uint64_t iteration) const override;

 private:
  struct Iteration {
    BatchPtr batch;
    PlanPtr plan;
    std::map<uint32_t, v1::ReportIterationRequest> reports;
  };
  using Iterations = std::map<uint64_t, Iteration>;

  absl::StatusOr<Iterations*> FindJobLocked(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<const Iteration*> FindLocked(const std::string& job_id, uint64_t iteration) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<std::string, Iterations> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
