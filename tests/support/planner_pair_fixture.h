// For tests with two planner processes on a database of their own, of which one leads.
#pragma once

#include <memory>
#include <utility>

#include "tests/support/planner_pair.h"
#include "tests/support/postgres_fixture.h"

namespace penstock {

class PlannerPairFixture : public PostgresFixture {
 protected:
  // A derived SetUp calls this first, and goes on where there are planners.
  void SetUp() override {
    PostgresFixture::SetUp();
    if (server_ == nullptr) return;
    auto planners = std::make_unique<PlannerPair>(PENSTOCK_PLANNER, url_);
    planners->Start();
    if (HasFatalFailure()) return;
    planners_ = std::move(planners);
    leader_ = planners_->AwaitLeader();
    standby_ = 1 - leader_;
  }

  // Null: the test is skipped, or has failed.
  std::unique_ptr<PlannerPair> planners_;
  // At first.
  int leader_ = 0;
  int standby_ = 1;
};

}  // namespace penstock
