// What the engine tells about its work: metrics implement it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// Called by many threads, never with a lock held; must not block.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  // A plan was made and checked, or was not.
  virtual void OnPlanned(const absl::Status& status, absl::Duration took) = 0;
  // All ranks have reported an iteration.
  virtual void OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) = 0;
};

class NullObserver final : public EngineObserver {
 public:
  void OnPlanned(const absl::Status&, absl::Duration) override {}
  void OnIterationCompleted(const std::string&, const v1::IterationSummary&) override {}
};

}  // namespace penstock
