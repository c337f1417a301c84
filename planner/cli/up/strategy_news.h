// That a run's job was given other strategies while it trains (penstock strategies --set).
//
//   if (const auto changed = news.Look(client, absl::Now())) console.SayNews(...);
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/active_strategies.h"

namespace penstock::cli {

class StrategyNews {
 public:
  // `job`: as it was registered.
  explicit StrategyNews(const v1::JobSpec& job) : job_(job) {}

  // Asks the planner, at most once a second. Nothing: they are as they were, or the planner does not say.
  std::optional<ActiveStrategies> Look(PlannerClient& client, absl::Time now);
  // The same whenever it was asked last.
  std::optional<ActiveStrategies> LookNow(PlannerClient& client);

 private:
  bool IsNews(const ActiveStrategies& active) const;

  const v1::JobSpec job_;
  absl::Time next_ = absl::InfinitePast();
  std::optional<ActiveStrategies> known_;
};

}  // namespace penstock::cli
