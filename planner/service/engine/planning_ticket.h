// A task of the planning pool: whose it is, what it may take, and who has stopped it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "planner/core/parallel/stop.h"

namespace penstock {

// The most urgent first.
enum class PlanningClass : uint8_t {
  // A batch of a registered job: workers wait for it sooner or later.
  kJobBatch,
  // What a job needs before its first batch.
  kPreparation,
  // A question that no job waits for (PlanBatch).
  kWhatIf,
};
inline constexpr size_t kPlanningClasses = 3;

struct PlanningWork {
  PlanningClass kind = PlanningClass::kJobBatch;
  // Who takes turns with others of its class: whoever owns the job, or asks.
  std::string owner;
  // How long it may compute, its wait not included.
  absl::Duration limit = absl::InfiniteDuration();
  // Memory that it will take, as far as can be told.
  int64_t bytes = 0;
  // Which of the owner's jobs it is for: they take turns with each other.
  std::string job = {};
};

// A task that was given to the pool. Thread-safe.
class PlanningTicket {
 public:
  explicit PlanningTicket(PlanningWork work) : work_(std::move(work)) {}

  const PlanningWork& work() const { return work_; }
  // For what the task computes. Valid as long as the ticket.
  core::StopToken stop() const { return core::StopToken(&flag_); }
  // OK, or why it was stopped: CANCELLED (by Cancel), DEADLINE_EXCEEDED (it computed up to its limit),
  // RESOURCE_EXHAUSTED (StopLargest) or UNAVAILABLE (the pool shuts down).
  absl::Status status() const;
  // A result's status, with status() for the core's CANCELLED.
  absl::Status Explain(const absl::Status& result) const {
    return absl::IsCancelled(result) && !status().ok() ? status() : result;
  }

 private:
  friend class PlanningPool;
  enum class Cause : uint8_t { kNone, kCancelled, kLimit, kMemory, kShutdown };

  // The first cause counts.
  void Stop(Cause cause);

  const PlanningWork work_;
  std::atomic<Cause> cause_ = Cause::kNone;
  core::StopFlag flag_;
};
using PlanningTicketPtr = std::shared_ptr<PlanningTicket>;

}  // namespace penstock
