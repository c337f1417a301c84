// An agent of rank 1 before a planner that tests tell what to answer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "common/sync/sync.h"
#include "tests/unit/worker/agent/fake_planner.h"
#include "worker/agent/planner_agent.h"

namespace penstock::worker {

v1::RegisterWorkerResponse ValidRegistration();
// A program of rank 1 without instructions.
v1::StreamProgramsResponse ProgramOf(uint64_t iteration);
v1::HeartbeatResponse InState(v1::EpochState state);

// Waits for the one call of a failure listener.
class FailureProbe {
 public:
  PlannerAgent::FailureListener listener() {
    return [this](const absl::Status& why) {
      MutexLock lock(&mutex_);
      why_ = why;
      changed_.SignalAll();
    };
  }

  absl::Status Wait() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (!why_.has_value() && absl::Now() < deadline) changed_.WaitWithTimeout(&mutex_, absl::Seconds(1));
    return why_.value_or(absl::OkStatus());
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> why_;
};

class PlannerAgentTest : public ::testing::Test {
 protected:
  PlannerAgentTest() : planner_(std::make_unique<FakePlanner>()) {
    planner_->SetRegistration(grpc::Status::OK, ValidRegistration());
  }

  AgentOptions Options() const {
    return {.planner = planner_->address(),
            .job_id = "job",
            .host = "10.0.0.7",
            .rank = 1,
            .incarnation = 99,
            .first_iteration = 6,
            .planner_timeout = absl::Seconds(20),
            .taken_timeout = absl::Seconds(1)};
  }

  std::unique_ptr<PlannerAgent> Register() {
    auto agent = PlannerAgent::Register(Options());
    EXPECT_TRUE(agent.ok()) << agent.status();
    return *std::move(agent);
  }

  // Declared first: agents of the tests end before it.
  std::unique_ptr<FakePlanner> planner_;
};

}  // namespace penstock::worker
