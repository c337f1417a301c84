// How a worker registers, and waits for the other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/unit/worker/agent/planner_agent_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(PlannerAgentTest, RegistersWithWhatItIs) {
  const auto agent = Register();
  EXPECT_EQ(agent->registration().rank, 1u);
  EXPECT_EQ(agent->registration().epoch, 4u);
  const v1::RegisterWorkerRequest request = planner_->registrations().front();
  EXPECT_EQ(request.incarnation(), 99u);
  EXPECT_EQ(request.host(), "10.0.0.7");
  EXPECT_EQ(request.rank(), 1);
  EXPECT_EQ(request.first_iteration(), 6u);
}

TEST_F(PlannerAgentTest, RegistrationPassesOnARefusal) {
  planner_->SetRegistration({grpc::StatusCode::INVALID_ARGUMENT, "rank 1 of 1"});
  const absl::Status status = PlannerAgent::Register(Options()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1 of 1"), HasSubstr(planner_->address())));
  EXPECT_EQ(planner_->registrations().size(), 1u);
}

TEST_F(PlannerAgentTest, RegistrationWaitsForARankWhoseHolderMayBeGone) {
  planner_->SetRegistration({grpc::StatusCode::ALREADY_EXISTS, "rank 1 is taken"});
  EXPECT_EQ(PlannerAgent::Register(Options()).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_GT(planner_->registrations().size(), 1u);

  AgentOptions options = Options();
  options.taken_timeout = absl::Seconds(60);
  options.wait = [&](absl::Duration) {
    planner_->SetRegistration(grpc::Status::OK, ValidRegistration());
    return absl::OkStatus();
  };
  EXPECT_TRUE(PlannerAgent::Register(options).ok());
}

TEST_F(PlannerAgentTest, RegistrationEndsWhenTheWorkerIsToldToEnd) {
  planner_->SetRegistration({grpc::StatusCode::UNAVAILABLE, "starting"});
  AgentOptions options = Options();
  options.planner_timeout = absl::Minutes(10);
  options.wait = [](absl::Duration) { return absl::CancelledError("stopped by SIGTERM"); };
  EXPECT_EQ(PlannerAgent::Register(options).status(), absl::CancelledError("stopped by SIGTERM"));
}

TEST_F(PlannerAgentTest, RegistrationWaitsForTheJobForAWhile) {
  planner_->SetRegistration({grpc::StatusCode::NOT_FOUND, "no job 'job'"});
  AgentOptions options = Options();
  options.planner_timeout = absl::Seconds(1);
  EXPECT_EQ(PlannerAgent::Register(options).status().code(), absl::StatusCode::kNotFound);
  EXPECT_GT(planner_->registrations().size(), 1u);
}

TEST_F(PlannerAgentTest, AnnouncesTheRendezvousAndLearnsWhenAllAreThere) {
  const auto agent = Register();
  agent->AnnounceRendezvous("10.0.0.7:1234");
  // One may have been on its way.
  ASSERT_TRUE(planner_->WaitForHeartbeats(planner_->heartbeats().size() + 2));
  EXPECT_EQ(planner_->heartbeats().back().rendezvous_address(), "10.0.0.7:1234");
  v1::HeartbeatResponse ready = InState(v1::EPOCH_STATE_READY);
  ready.add_hosts("a");
  ready.add_hosts("b");
  ready.set_rendezvous_address("a:1234");
  planner_->SetHeartbeat(grpc::Status::OK, ready);
  const absl::StatusOr<Rendezvous> rendezvous = agent->WaitUntilReady(absl::Seconds(20));
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  EXPECT_EQ(rendezvous->address, "a:1234");
  EXPECT_THAT(rendezvous->hosts, ElementsAre("a", "b"));
}

TEST_F(PlannerAgentTest, GivesUpWaitingForMissingRanks) {
  EXPECT_EQ(Register()->WaitUntilReady(absl::Milliseconds(30)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(PlannerAgentCertificatesTest, APlannersExpiredCertificateIsNamed) {
  TestCertificates certificates;
  certificates.RenewPlanner(/*days=*/-1);
  const absl::StatusOr<SecuredServer> secured =
      Secure(certificates.Server(), [](Role, absl::string_view) { return true; });
  ASSERT_THAT(secured, IsOk());
  FakePlanner planner(/*port=*/0, secured->credentials);
  AgentOptions options = {.planner = planner.address(),
                          .security = certificates.Client(""),
                          .planner_timeout = absl::ZeroDuration()};
  testing::internal::CaptureStderr();
  EXPECT_THAT(PlannerAgent::Register(options),
              Fails(absl::StatusCode::kDeadlineExceeded, "the certificate of the planner at "));
  // Told once while it tries again, and not only at the end.
  options.planner_timeout = absl::Seconds(1);
  EXPECT_THAT(PlannerAgent::Register(options), Fails(absl::StatusCode::kDeadlineExceeded, " expired on "));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("not registered yet; trying again"));
  EXPECT_THAT(log, HasSubstr("; renew it there"));
}

}  // namespace
}  // namespace penstock::worker
