// The delivery of a job's programs to who reads them (program_subscription.h). Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/service/engine/job_planners.h"
#include "planner/service/engine/job_planning.h"
#include "planner/service/engine/job_readers.h"
#include "planner/service/engine/job_record.h"
#include "planner/service/engine/program_messages.h"
#include "planner/service/engine/program_subscription.h"

namespace penstock {

class JobDelivery {
 public:
  // All must outlive it.
  JobDelivery(JobRecord& record, const JobPlanners& planners, JobReaders& readers, JobPlanning& planning);

  // See Job::Subscribe.
  std::unique_ptr<ProgramSubscription> Subscribe(const v1::StreamProgramsRequest& request,
                                                 WakeList::Wake wake);

  // For subscriptions: a place for one more stream, as of ProgramMessages.
  absl::StatusOr<std::shared_ptr<void>> OpenStream(const v1::StreamProgramsRequest& request);
  // What the stream is given for the iteration. `told`: strategies whose topologies the reader was sent; one
  // that is new to it is added.
  ProgramSubscription::Item Next(const v1::StreamProgramsRequest& request, uint64_t iteration,
                                 std::set<uint32_t>* told);
  JobReaders& readers() { return readers_; }

 private:
  // What a message is made of; null: not in memory.
  struct Values {
    BatchPtr batch;
    PackedPlanPtr plan;
    // With the costs that the job was registered with.
    BatchPlannerPtr planner;
    NewTopologies topologies;

    bool are_there() const { return batch != nullptr && plan != nullptr; }
  };

  absl::Status CheckReaderLocked(const v1::StreamProgramsRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // How the stream ends instead of this iteration (OK: the job is finished); nothing: it goes on.
  std::optional<absl::Status> EndBeforeLocked(const v1::StreamProgramsRequest& request,
                                              uint64_t iteration) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Of a plan that may be delivered. What is not in memory is wanted.
  Values TakeLocked(const v1::StreamProgramsRequest& request, uint64_t iteration,
                    const std::set<uint32_t>& told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  NewTopologies NewTopologiesLocked(const PackedPlan& plan, const std::set<uint32_t>& told) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(job_lock);
  // Nothing where the plan was made with the costs of the devices, or workers compute. `planner`: with the
  // costs that the job was registered with.
  absl::StatusOr<std::vector<int64_t>> ProfileDurations(const BatchPlanner& planner, const v1::Batch& batch,
                                                        const PackedPlan& plan, uint32_t rank) const;

  JobRecord& record_;
  const JobPlanners& planners_;
  JobReaders& readers_;
  JobPlanning& planning_;
  ProgramMessages messages_;
};

}  // namespace penstock
