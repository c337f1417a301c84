// Where accepted batches, plans and reports are kept. The engine is the only writer.
//
// The engine calls it with the lock of the job held, one call at a time for each job, and never expects it to
// call back. A durable store makes each call a transaction: when it returns OK a kill loses nothing of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

using BatchPtr = std::shared_ptr<const v1::Batch>;
using PlanPtr = std::shared_ptr<const v1::Plan>;

// Thread-safe. Every method may also fail with UNAVAILABLE (the store cannot be read or written).
class PlanStore {
 public:
  virtual ~PlanStore() = default;

  virtual absl::Status AddJob(const v1::JobSpec& job) = 0;
  // Forgets the job and all that belongs to it.
  virtual absl::Status RemoveJob(const std::string& job_id) = 0;

  // All of them or none.
  virtual absl::Status AddBatches(const std::string& job_id, const std::vector<BatchPtr>& batches) = 0;
  virtual absl::Status AddPlan(const std::string& job_id, PlanPtr plan) = 0;
  // One for each (rank, iteration); a second one replaces the first.
  virtual absl::Status AddReport(const v1::ReportIterationRequest& report) = 0;
  // Forgets the reports of `iteration` and of all after it: they will be run again.
  virtual absl::Status DropReports(const std::string& job_id, uint64_t iteration) = 0;
  // Forgets batches, plans and reports before `iteration`.
  virtual absl::Status Trim(const std::string& job_id, uint64_t iteration) = 0;

  // Possible errors: NOT_FOUND.
  virtual absl::StatusOr<BatchPtr> GetBatch(const std::string& job_id, uint64_t iteration) const = 0;
  virtual absl::StatusOr<PlanPtr> GetPlan(const std::string& job_id, uint64_t iteration) const = 0;
  // By rank; empty when there are none.
  virtual absl::StatusOr<std::vector<v1::ReportIterationRequest>> GetReports(const std::string& job_id,
                                                                             uint64_t iteration) const = 0;
};

}  // namespace penstock
