#include "planner/service/engine/membership.h"

#include <gtest/gtest.h>

#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class MembershipTest : public testing::Test {
 protected:
  // Three ranks with incarnations 101, 102, 103, and a rendezvous.
  void FormEpoch() {
    for (uint64_t incarnation = 101; incarnation <= 103; ++incarnation) {
      ASSERT_TRUE(membership_.Register(MakeRegistration(incarnation), now_).ok());
    }
    Beat(0);
  }

  void Beat(uint32_t rank) {
    ASSERT_TRUE(
        membership_.Heartbeat(MakeHeartbeat(rank, 101 + rank, membership_.epoch()), false, now_).ok());
  }

  void ReportFailure(uint32_t rank, const std::string& failure) {
    auto request = MakeHeartbeat(rank, 101 + rank, membership_.epoch());
    request.set_failure(failure);
    ASSERT_TRUE(membership_.Heartbeat(request, false, now_).ok());
  }

  void Leave(uint32_t rank, bool finished = false) {
    auto request = MakeHeartbeat(rank, 101 + rank, membership_.epoch());
    request.set_leaving(true);
    ASSERT_TRUE(membership_.Heartbeat(request, finished, now_).ok());
  }

  Membership membership_{3, absl::Seconds(5)};
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(MembershipTest, GivesFreeRanksInOrder) {
  EXPECT_EQ(membership_.Register(MakeRegistration(101), now_)->rank, 0);
  EXPECT_EQ(membership_.Register(MakeRegistration(102), now_)->rank, 1);
  EXPECT_EQ(membership_.Register(MakeRegistration(103), now_)->rank, 2);
}

TEST_F(MembershipTest, GivesTheWantedRankAndFillsTheOthersAround) {
  EXPECT_EQ(membership_.Register(MakeRegistration(101, 1), now_)->rank, 1);
  EXPECT_EQ(membership_.Register(MakeRegistration(102), now_)->rank, 0);
  EXPECT_EQ(membership_.Register(MakeRegistration(103), now_)->rank, 2);
}

TEST_F(MembershipTest, TheSameIncarnationGetsTheSameRankAgain) {
  ASSERT_TRUE(membership_.Register(MakeRegistration(101), now_).ok());
  ASSERT_TRUE(membership_.Register(MakeRegistration(102), now_).ok());
  const auto again = membership_.Register(MakeRegistration(101), now_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->rank, 0);
  EXPECT_FALSE(again->opened_epoch);
}

TEST_F(MembershipTest, RefusesWrongRegistrations) {
  EXPECT_THAT(membership_.Register(MakeRegistration(0), now_),
              Fails(absl::StatusCode::kInvalidArgument, "incarnation"));
  EXPECT_THAT(membership_.Register(MakeRegistration(1, 3), now_),
              Fails(absl::StatusCode::kInvalidArgument, "rank is 3"));
  EXPECT_THAT(membership_.Register(MakeRegistration(1, -2), now_),
              Fails(absl::StatusCode::kInvalidArgument, "rank is -2"));
}

TEST_F(MembershipTest, RefusesARankThatALiveWorkerHolds) {
  ASSERT_TRUE(membership_.Register(MakeRegistration(101, 1), now_).ok());
  EXPECT_THAT(membership_.Register(MakeRegistration(102, 1), now_),
              Fails(absl::StatusCode::kAlreadyExists, "rank 1 (10.0.0.1, incarnation 101)"));
}

TEST_F(MembershipTest, RefusesAFourthWorkerOfThree) {
  FormEpoch();
  EXPECT_THAT(membership_.Register(MakeRegistration(104), now_),
              Fails(absl::StatusCode::kResourceExhausted, "all 3 ranks"));
}

TEST_F(MembershipTest, IsReadyWhenAllRanksAndTheRendezvousAreThere) {
  ASSERT_TRUE(membership_.Register(MakeRegistration(101), now_).ok());
  Beat(0);
  ASSERT_TRUE(membership_.Register(MakeRegistration(102), now_).ok());
  EXPECT_EQ(membership_.Answer(0, false).state(), v1::EPOCH_STATE_FORMING);
  ASSERT_TRUE(membership_.Register(MakeRegistration(103), now_).ok());

  const v1::HeartbeatResponse answer = membership_.Answer(1, false);

  EXPECT_EQ(answer.state(), v1::EPOCH_STATE_READY);
  EXPECT_EQ(answer.hosts_size(), 3);
  EXPECT_EQ(answer.rendezvous_address(), "10.0.0.1:29500");
}

TEST_F(MembershipTest, IsFormingWhileTheRendezvousIsMissing) {
  for (uint64_t i = 101; i <= 103; ++i) ASSERT_TRUE(membership_.Register(MakeRegistration(i), now_).ok());
  EXPECT_EQ(membership_.Answer(0, false).state(), v1::EPOCH_STATE_FORMING);
}

TEST_F(MembershipTest, ASilentWorkerIsLostAfterTheTimeoutAndNotBefore) {
  FormEpoch();
  now_ += absl::Seconds(4);
  Beat(0);
  Beat(1);
  now_ += absl::Seconds(1);
  EXPECT_FALSE(membership_.Expire(now_));
  now_ += absl::Milliseconds(100);
  EXPECT_TRUE(membership_.Expire(now_));
  EXPECT_EQ(membership_.failure(), "rank 2 (10.0.0.1, incarnation 103) was lost: no heartbeat for 5.1 s");
  EXPECT_EQ(membership_.Answer(0, false).state(), v1::EPOCH_STATE_FAILED);
  EXPECT_EQ(membership_.Answer(0, false).failure(), membership_.failure());
}

TEST_F(MembershipTest, TheRankThatDiedIsNamedFirstWhenItsPeersComplainedBefore) {
  FormEpoch();
  now_ += absl::Seconds(2);
  ReportFailure(1, "connection closed by rank 2");
  membership_.Answer(1, false);
  Beat(0);
  membership_.Answer(0, false);
  EXPECT_THAT(membership_.failure(), StartsWith("rank 1 (10.0.0.1, incarnation 102) reported: connection"));
  now_ += absl::Seconds(4);

  EXPECT_TRUE(membership_.Expire(now_));

  EXPECT_THAT(membership_.failure(), StartsWith("rank 2 (10.0.0.1, incarnation 103) was lost"));
  EXPECT_THAT(membership_.failure(), HasSubstr("then: rank 1 (10.0.0.1, incarnation 102) reported"));
}

TEST_F(MembershipTest, AWorkerThatWasToldOfTheFailureMayGoSilent) {
  FormEpoch();
  ReportFailure(1, "out of memory");
  for (uint32_t rank = 0; rank < 3; ++rank) membership_.Answer(rank, false);
  now_ += absl::Minutes(1);
  EXPECT_FALSE(membership_.Expire(now_));
  EXPECT_THAT(membership_.failure(), Not(HasSubstr("lost")));
}

TEST_F(MembershipTest, TheFirstOfTwoReportedFailuresIsNamedFirst) {
  FormEpoch();
  ReportFailure(2, "out of memory");
  ReportFailure(0, "connection closed");
  ReportFailure(2, "giving up");
  EXPECT_EQ(membership_.failure(),
            "rank 2 (10.0.0.1, incarnation 103) reported: out of memory; then: "
            "rank 0 (10.0.0.1, incarnation 101) reported: connection closed");
}

TEST_F(MembershipTest, LeavingEarlyFailsTheEpoch) {
  FormEpoch();
  Leave(2);
  EXPECT_EQ(membership_.failure(), "rank 2 (10.0.0.1, incarnation 103) left before the job was finished");
}

TEST_F(MembershipTest, LeavingAFinishedJobFreesTheRank) {
  FormEpoch();
  Leave(2, /*finished=*/true);
  EXPECT_EQ(membership_.failure(), "");
  EXPECT_EQ(membership_.Workers(now_).size(), 2);
  EXPECT_EQ(membership_.Answer(0, /*finished=*/true).state(), v1::EPOCH_STATE_FINISHED);
}

TEST_F(MembershipTest, ARegistrationAfterAFailureOpensAnEpochAndShutsTheOldOneOut) {
  FormEpoch();
  ReportFailure(1, "out of memory");

  const auto registration = membership_.Register(MakeRegistration(201), now_);

  ASSERT_TRUE(registration.ok());
  EXPECT_EQ(registration->epoch, 2);
  EXPECT_TRUE(registration->opened_epoch);
  EXPECT_FALSE(membership_.failed());
  EXPECT_THAT(membership_.Check({0, 101, 1}), Fails(absl::StatusCode::kAborted, "epoch 1 is stale"));
  EXPECT_THAT(membership_.Check({0, 101, 1}), Fails(absl::StatusCode::kAborted, "out of memory"));
  EXPECT_THAT(membership_.Check({0, 101, 2}),
              Fails(absl::StatusCode::kAborted,
                    "incarnation 101 is stale: rank 0 (10.0.0.1, incarnation 201) holds the rank"));
  EXPECT_THAT(membership_.Check({1, 102, 2}),
              Fails(absl::StatusCode::kAborted, "nobody (rank 1 is free) holds the rank in epoch 2"));
  EXPECT_TRUE(membership_.Check({0, 201, 2}).ok());
}

TEST_F(MembershipTest, AnOldIncarnationMayNotRegisterAgain) {
  FormEpoch();
  ReportFailure(1, "out of memory");
  EXPECT_THAT(membership_.Register(MakeRegistration(103), now_),
              Fails(absl::StatusCode::kAborted, "incarnation 103 belongs to an epoch that is over"));
  ASSERT_TRUE(membership_.Register(MakeRegistration(201), now_).ok());
  EXPECT_THAT(membership_.Register(MakeRegistration(101), now_),
              Fails(absl::StatusCode::kAborted, "out of memory"));
}

TEST_F(MembershipTest, WorkersThatWouldStartAtDifferentIterationsFailTheEpoch) {
  ASSERT_TRUE(membership_.Register(MakeRegistration(101, -1, 20), now_).ok());
  ASSERT_TRUE(membership_.Register(MakeRegistration(102, -1, 10), now_).ok());
  EXPECT_THAT(
      membership_.failure(),
      HasSubstr(
          "rank 1 (10.0.0.1, incarnation 102) would start at iteration 10, but its epoch starts at 20"));
}

TEST_F(MembershipTest, NoRankBeyondTheJobPasses) {
  EXPECT_THAT(membership_.Check({3, 101, 0}), Fails(absl::StatusCode::kInvalidArgument, "3 ranks"));
}

TEST_F(MembershipTest, AsksForFiveHeartbeatsATimeoutAtMostHalfASecondApart) {
  EXPECT_EQ(Membership(1, absl::Seconds(1)).heartbeat_interval(), absl::Milliseconds(200));
  EXPECT_EQ(Membership(1, absl::Minutes(1)).heartbeat_interval(), absl::Milliseconds(500));
}

TEST_F(MembershipTest, ListsWorkersWithTheAgeOfTheirHeartbeats) {
  FormEpoch();
  now_ += absl::Seconds(3);
  Beat(1);
  std::vector<int64_t> ages;
  for (const v1::WorkerStatus& worker : membership_.Workers(now_)) ages.push_back(worker.heartbeat_age_ms());
  EXPECT_THAT(ages, ElementsAre(3000, 0, 3000));
}

}  // namespace
}  // namespace penstock
