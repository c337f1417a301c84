// What the engine tells about its work: metrics and traces implement it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// A try to plan a batch of a job. All times are times of day.
struct PlanningTry {
  const std::string& job_id;
  uint64_t iteration = 0;
  absl::Status status;
  // When it was handed to the planning threads, when one of them began, and when it ended.
  absl::Time queued;
  absl::Time began;
  absl::Time ended;
  // When the plan was made and its check began; nothing was made before InfiniteFuture.
  absl::Time made = absl::InfiniteFuture();
  // Null where there is none.
  // Without instructions.
  const v1::Plan* plan = nullptr;
};

// A program that a stream was given.
struct Delivery {
  const std::string& job_id;
  uint64_t iteration = 0;
  uint32_t rank = 0;
  absl::Time began;
  absl::Time ended;
  // Of the message.
  size_t bytes = 0;
};

// A batch has come to its end for the first time since this planner accepted it or took it up.
struct BatchEnd {
  const std::string& job_id;
  uint64_t iteration = 0;
  absl::Time accepted;
  absl::Time ended;
  // Why it cannot be planned; OK: all ranks have reported it.
  absl::Status status;
  // Null where it cannot be planned.
  const v1::IterationSummary* summary = nullptr;
};

// Called by many threads, never with a lock held; must not block.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  // A plan was made and checked, or was not.
  virtual void OnPlanned(const absl::Status& status, absl::Duration took) = 0;
  // All ranks have reported an iteration.
  virtual void OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) = 0;

  // What becomes of each batch on its way, for traces.
  virtual void OnPlanningTried(const PlanningTry&) {}
  virtual void OnDelivered(const Delivery&) {}
  virtual void OnBatchEnded(const BatchEnd&) {}
};

class NullObserver final : public EngineObserver {
 public:
  void OnPlanned(const absl::Status&, absl::Duration) override {}
  void OnIterationCompleted(const std::string&, const v1::IterationSummary&) override {}
};

}  // namespace penstock
