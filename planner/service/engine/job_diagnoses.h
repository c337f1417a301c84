// Where the time of a job's last iterations went, found every so often while it trains.
//
// Not part of the job's events: it is made anew from what ranks report to the planner that serves the job.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/batch_planner.h"
#include "planner/service/engine/job_services.h"

namespace penstock {

class JobDiagnoses : public std::enable_shared_from_this<JobDiagnoses> {
 public:
  // Iterations that are looked at, at most.
  static constexpr uint64_t kMostIterations = 8;

  // `payer`: whose share of the planning pool it takes.
  JobDiagnoses(JobServices services, std::string job_id, std::string payer)
      : services_(services), job_id_(std::move(job_id)), payer_(std::move(payer)) {}

  // Whether it is time, with so many iterations complete; asks for little.
  bool IsDue(uint64_t completed) const;
  // Looks at the iterations, ascending, of which all ranks have reported; returns at once. Where the pool has
  // no place, it is due again with the next iteration.
  void Begin(uint64_t completed, std::vector<CostedIteration> iterations);
  void Stop();

  std::optional<v1::JobDiagnosis> last() const;

 private:
  void Look(const std::vector<CostedIteration>& iterations, const PlanningTicket& ticket);

  const JobServices services_;
  const std::string job_id_;
  const std::string payer_;
  mutable Mutex mutex_;
  // When it was begun last, and with how many iterations.
  absl::Time begun_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t completed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool looks_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  PlanningTicketPtr ticket_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::JobDiagnosis> last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
