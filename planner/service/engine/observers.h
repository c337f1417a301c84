// Several observers as one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/service/engine/observer.h"

namespace penstock {

class Observers final : public EngineObserver {
 public:
  // None is owned; all must outlive this.
  explicit Observers(std::vector<EngineObserver*> all) : all_(std::move(all)) {}

  void OnPlanned(const absl::Status& status, absl::Duration took) override {
    for (EngineObserver* one : all_) one->OnPlanned(status, took);
  }
  void OnIterationCompleted(const std::string& job_id, const v1::IterationSummary& summary) override {
    for (EngineObserver* one : all_) one->OnIterationCompleted(job_id, summary);
  }
  void OnPlanningTried(const PlanningTry& planning) override {
    for (EngineObserver* one : all_) one->OnPlanningTried(planning);
  }
  void OnDelivered(const Delivery& delivery) override {
    for (EngineObserver* one : all_) one->OnDelivered(delivery);
  }
  void OnBatchEnded(const BatchEnd& end) override {
    for (EngineObserver* one : all_) one->OnBatchEnded(end);
  }

 private:
  const std::vector<EngineObserver*> all_;
};

}  // namespace penstock
