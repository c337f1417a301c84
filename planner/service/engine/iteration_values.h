// The large values of a job's iterations that are in memory: batches, plans (packed), reports.
//
// What is evicted can be had again: batches from the store, plans by making them anew. Reports cannot; what
// is summed up of them is in the job's state. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/compact/packed_plan.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

using BatchPtr = std::shared_ptr<const v1::Batch>;
using PackedPlanPtr = std::shared_ptr<const PackedPlan>;
using ReportPtr = std::shared_ptr<const v1::ReportIterationRequest>;

// What is known of an iteration, to be looked at without the lock of its job.
struct HeldIteration {
  BatchPtr batch;
  PackedPlanPtr plan;
  // By rank; ranks that have not reported are missing.
  std::vector<ReportPtr> reports;
};

// Whether everything is there, with measurements of all ranks.
bool IsMeasured(const HeldIteration& iteration, size_t ranks);

// Bytes of memory that a message takes, more or less.
size_t MemoryBytesOf(const google::protobuf::Message& message);

class IterationValues {
 public:
  // `planning_bytes`: what planning it takes, as estimated when it was accepted; 0: not known.
  void PutBatch(BatchPtr batch, int64_t planning_bytes = 0);
  void PutPlan(PackedPlanPtr plan);
  void PutReport(const v1::ReportIterationRequest& report);

  // Whether batch and plan are in memory.
  bool Has(uint64_t iteration) const { return batch(iteration) != nullptr && plan(iteration) != nullptr; }
  // Null: not in memory.
  BatchPtr batch(uint64_t iteration) const;
  PackedPlanPtr plan(uint64_t iteration) const;
  // 0: not known, or the batch is not in memory.
  int64_t planning_bytes(uint64_t iteration) const;
  // By rank.
  std::vector<ReportPtr> reports(uint64_t iteration) const;
  // All of them, as far as they are in memory.
  HeldIteration Held(uint64_t iteration) const;

  // They will be run again.
  void DropReportsFrom(uint64_t iteration);
  void DropBefore(uint64_t iteration);
  // Iterations first, ..., last - 1.
  void DropRange(uint64_t first, uint64_t last);
  // Drops iterations before `completed`, oldest first, until all that is left fits.
  void Evict(uint64_t completed, size_t most_bytes);

  size_t bytes() const { return bytes_; }
  // Of iterations from this one on.
  size_t BatchBytesFrom(uint64_t iteration) const;
  size_t PlanBytesFrom(uint64_t iteration) const;

 private:
  struct Values {
    BatchPtr batch;
    size_t batch_bytes = 0;
    int64_t planning_bytes = 0;
    PackedPlanPtr plan;
    std::map<uint32_t, ReportPtr> reports;
    size_t bytes = 0;
  };
  using Iterations = std::map<uint64_t, Values>;

  void Drop(Iterations::iterator first, Iterations::iterator last);

  Iterations iterations_;
  size_t bytes_ = 0;
};

}  // namespace penstock
