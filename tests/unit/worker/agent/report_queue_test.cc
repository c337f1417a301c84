// How a worker reports what it has run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/unit/worker/agent/planner_agent_fixture.h"

namespace penstock::worker {
namespace {

TEST_F(PlannerAgentTest, SendsReportsInOrder) {
  const auto agent = Register();
  for (uint64_t iteration = 0; iteration < 40; ++iteration) {
    ASSERT_TRUE(
        agent->Report({.iteration = iteration, .instructions = {{.id = 3, .start_ns = 5}}, .loss = 0.5})
            .ok());
  }
  ASSERT_TRUE(agent->FlushReports(absl::Seconds(20)).ok());
  const std::vector<v1::ReportIterationRequest> reports = planner_->reports();
  ASSERT_EQ(reports.size(), 40u);
  for (uint64_t iteration = 0; iteration < 40; ++iteration)
    EXPECT_EQ(reports[iteration].iteration(), iteration);
  EXPECT_EQ(reports[0].loss(), 0.5);
  EXPECT_EQ(reports[0].instructions(0).id(), 3u);
  EXPECT_EQ(reports[0].epoch(), 4u);
}

TEST_F(PlannerAgentTest, SendsReportsThatAFailureHasHeldUpWhenItIsToldTo) {
  const auto agent = Register();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  planner_->SetReport({grpc::StatusCode::UNAVAILABLE, "busy"});
  for (uint64_t iteration = 0; iteration < 3; ++iteration)
    ASSERT_TRUE(agent->Report({.iteration = iteration}).ok());
  ASSERT_TRUE(planner_->WaitForReportAttempts(1));
  planner_->SetHeartbeat(grpc::Status::OK, InState(v1::EPOCH_STATE_FAILED));
  EXPECT_FALSE(probe.Wait().ok());
  // One that comes when the epoch has failed already.
  EXPECT_FALSE(agent->Report({.iteration = 3}).ok());
  planner_->SetReport(grpc::Status::OK);
  EXPECT_TRUE(planner_->reports().empty());
  ASSERT_TRUE(agent->SendLeftReports(absl::Seconds(20)).ok());
  const std::vector<v1::ReportIterationRequest> reports = planner_->reports();
  ASSERT_EQ(reports.size(), 4u);
  for (uint64_t iteration = 0; iteration < 4; ++iteration)
    EXPECT_EQ(reports[iteration].iteration(), iteration);
  EXPECT_EQ(reports[0].epoch(), 4u);
  EXPECT_TRUE(agent->SendLeftReports(absl::Seconds(20)).ok()) << "nothing is left";
}

TEST_F(PlannerAgentTest, ReportsThatAreLeftEndWithTheErrorOfThePlanner) {
  const auto agent = Register();
  planner_->SetReport({grpc::StatusCode::UNAVAILABLE, "busy"});
  ASSERT_TRUE(agent->Report({.iteration = 0}).ok());
  ASSERT_TRUE(planner_->WaitForReportAttempts(1));
  planner_->SetReport({grpc::StatusCode::ABORTED, "epoch 4 is stale"});
  agent->Stop(absl::UnavailableError("rank 0 was lost"));
  EXPECT_TRUE(absl::IsAborted(agent->SendLeftReports(absl::Seconds(20))));
}

TEST_F(PlannerAgentTest, AsksWhatAllRanksHaveReportedInItsEpoch) {
  const auto agent = Register();
  v1::GetJobResponse job;
  job.mutable_status()->set_epoch(4);
  job.mutable_status()->set_completed_iteration(47);
  planner_->SetJob(grpc::Status::OK, job);
  EXPECT_EQ(agent->Completed().value_or(0), 47u);
  job.mutable_status()->set_epoch(5);
  planner_->SetJob(grpc::Status::OK, job);
  EXPECT_TRUE(absl::IsAborted(agent->Completed().status()));
  planner_->SetJob({grpc::StatusCode::NOT_FOUND, "no such job"});
  EXPECT_TRUE(absl::IsNotFound(agent->Completed().status()));
}

TEST_F(PlannerAgentTest, AReportThatGotNoAnswerIsSentAgain) {
  for (const auto code :
       {grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED}) {
    planner_ = std::make_unique<FakePlanner>();
    planner_->SetRegistration(grpc::Status::OK, ValidRegistration());
    const auto agent = Register();
    planner_->SetReport({code, "no answer"});
    ASSERT_TRUE(agent->Report({.iteration = 6}).ok());
    ASSERT_TRUE(planner_->WaitForReportAttempts(2)) << code;
    planner_->SetReport(grpc::Status::OK);
    EXPECT_TRUE(agent->FlushReports(absl::Seconds(20)).ok()) << code;
    EXPECT_EQ(planner_->reports().size(), 1u);
  }
}

// A planner that was killed may have refused it for what the next one does not know.
TEST_F(PlannerAgentTest, ARefusedReportEndsAnEpochThatThePlannerThinksIsAliveAndNotTheWorker) {
  const auto agent = Register();
  planner_->SetReport({grpc::StatusCode::FAILED_PRECONDITION, "not sent"});
  ASSERT_TRUE(agent->Report({.iteration = 0}).ok());
  EXPECT_THAT(agent->FlushReports(absl::Seconds(20)), Fails(absl::StatusCode::kAborted, "not sent"));
}

}  // namespace
}  // namespace penstock::worker
