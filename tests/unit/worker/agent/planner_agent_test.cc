// What a worker does when its epoch fails, when its planner is gone, and when it leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "tests/unit/worker/agent/planner_agent_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(PlannerAgentTest, DoesNotReportWhatFollowsFromAFailureThatThePlannerKnows) {
  v1::HeartbeatResponse failed = InState(v1::EPOCH_STATE_FAILED);
  failed.set_failure("rank 0 was lost");
  const auto agent = Register();
  planner_->SetHeartbeat(grpc::Status::OK, failed);
  planner_->EndPrograms({grpc::StatusCode::FAILED_PRECONDITION, "the epoch has failed"});
  agent->StartPrograms(6);
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("rank 0 was lost"));
  for (const v1::HeartbeatRequest& request : planner_->heartbeats()) EXPECT_EQ(request.failure(), "");
}

TEST_F(PlannerAgentTest, SaysThatItIsStillThereAfterAFailureWhereItLingers) {
  const auto agent = Register();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  planner_->SetHeartbeat(grpc::Status::OK, InState(v1::EPOCH_STATE_FAILED));
  EXPECT_FALSE(probe.Wait().ok());
  agent->Linger();
  ASSERT_TRUE(planner_->WaitForHeartbeats(planner_->heartbeats().size() + 3));
  EXPECT_EQ(planner_->heartbeats().back().epoch(), 4u);
  EXPECT_EQ(planner_->heartbeats().back().failure(), "");
}

TEST_F(PlannerAgentTest, AFailedEpochEndsEveryWaitAndTellsTheListener) {
  const auto agent = Register();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  agent->StartPrograms(6);
  v1::HeartbeatResponse failed = InState(v1::EPOCH_STATE_FAILED);
  failed.set_failure("rank 0 was lost");
  planner_->SetHeartbeat(grpc::Status::OK, failed);
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("rank 0 was lost"));
  EXPECT_THAT(std::string(probe.Wait().message()), HasSubstr("rank 0 was lost"));
  EXPECT_THAT(std::string(agent->WaitUntilReady(absl::Seconds(20)).status().message()),
              HasSubstr("rank 0 was lost"));
}

TEST_F(PlannerAgentTest, AStaleIncarnationEndsTheWorker) {
  const auto agent = Register();
  planner_->SetHeartbeat({grpc::StatusCode::ABORTED, "incarnation 99 is stale"});
  const absl::Status status = agent->WaitUntilReady(absl::Seconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
}

TEST_F(PlannerAgentTest, APlannerThatIsGoneIsGivenUpAfterTheWindow) {
  AgentOptions options = Options();
  options.planner_timeout = absl::Milliseconds(300);
  const auto registered = PlannerAgent::Register(options);
  ASSERT_TRUE(registered.ok()) << registered.status();
  PlannerAgent* const agent = registered->get();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  agent->StartPrograms(6);
  const std::string address = planner_->address();
  planner_ = nullptr;
  const absl::Status status = agent->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(address), HasSubstr("has not answered")));
  EXPECT_EQ(probe.Wait(), status);
}

TEST_F(PlannerAgentTest, APlannerThatComesBackInTimeIsUsedAgain) {
  AgentOptions options = Options();
  options.planner_timeout = absl::Seconds(30);
  const auto agent = PlannerAgent::Register(options);
  ASSERT_TRUE(agent.ok());
  (*agent)->StartPrograms(6);
  const int port = planner_->port();
  planner_ = nullptr;
  ASSERT_TRUE((*agent)->Report({.iteration = 6}).ok());
  planner_ = std::make_unique<FakePlanner>(port);
  planner_->AddProgram(ProgramOf(6));
  EXPECT_EQ((*agent)->Next()->program->iteration, 6u);
  EXPECT_TRUE((*agent)->FlushReports(absl::Seconds(20)).ok());
  EXPECT_TRUE(planner_->WaitForHeartbeats(1));
}

TEST_F(PlannerAgentTest, ReportingAFailureReturnsThePlannersVerdict) {
  const auto agent = Register();
  ASSERT_TRUE(planner_->WaitForHeartbeats(1));
  v1::HeartbeatResponse failed = InState(v1::EPOCH_STATE_FAILED);
  failed.set_failure("rank 1 reported: rank 0 is gone");
  planner_->SetHeartbeat(grpc::Status::OK, failed);
  const absl::Status verdict =
      agent->ReportFailure(absl::UnavailableError("rank 0 is gone"), absl::Seconds(20));
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("rank 1 reported: rank 0 is gone"));
}

TEST_F(PlannerAgentTest, AFailureIsReportedUntilAPlannerThatComesBackHasHeardIt) {
  AgentOptions options = Options();
  options.planner_timeout = absl::Seconds(60);
  const auto agent = PlannerAgent::Register(options);
  ASSERT_TRUE(agent.ok());
  const int port = planner_->port();
  planner_ = nullptr;
  std::thread restarter([&] {
    planner_ = std::make_unique<FakePlanner>(port);
    planner_->FailEpochWhenToldOfAFailure();
  });
  const absl::Status verdict =
      (*agent)->ReportFailure(absl::UnavailableError("rank 0 is gone"), absl::Seconds(60));
  restarter.join();
  EXPECT_EQ(verdict.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("the epoch has failed"));
}

TEST_F(PlannerAgentTest, LeavingIsTold) {
  const auto agent = Register();
  agent->Leave();
  bool left = false;
  for (const v1::HeartbeatRequest& request : planner_->heartbeats()) left = left || request.leaving();
  EXPECT_TRUE(left);
}

TEST_F(PlannerAgentTest, StopEndsAWaitFromAnotherThread) {
  const auto agent = Register();
  agent->StartPrograms(6);
  std::thread stopper([&] {
    planner_->WaitForStreams(1);
    agent->Stop(absl::CancelledError("stopped by SIGTERM"));
  });
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("SIGTERM"));
  stopper.join();
}

}  // namespace
}  // namespace penstock::worker
