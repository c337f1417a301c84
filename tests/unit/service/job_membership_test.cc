// Who works on a job: ranks, incarnations, epochs, heartbeats, failures.
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A job of three ranks whose workers are lost after five seconds.
class JobMembershipTest : public EngineFixture {
 protected:
  JobMembershipTest() {
    v1::JobSpec spec = MakeJob("job", 3);
    spec.set_heartbeat_timeout_ms(5000);
    spec.set_look_ahead_window(32);
    job_ = EngineFixture::Register(spec);
  }

  absl::StatusOr<v1::RegisterWorkerResponse> Register(const v1::RegisterWorkerRequest& request) {
    return job_->RegisterWorker(request);
  }

  // Three ranks with incarnations 101, 102, 103, and a rendezvous.
  void FormEpoch() {
    for (uint64_t incarnation = 101; incarnation <= 103; ++incarnation) {
      ASSERT_TRUE(Register(MakeRegistration(incarnation)).ok());
    }
    Beat(0);
  }

  v1::HeartbeatResponse Send(const v1::HeartbeatRequest& request) {
    const auto answer = job_->Heartbeat(request);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : v1::HeartbeatResponse();
  }
  v1::HeartbeatResponse Beat(uint32_t rank) { return Send(MakeHeartbeat(rank, 101 + rank, epoch())); }

  void ReportFailure(uint32_t rank, const std::string& failure) {
    auto request = MakeHeartbeat(rank, 101 + rank, epoch());
    request.set_failure(failure);
    Send(request);
  }

  void Leave(uint32_t rank) {
    auto request = MakeHeartbeat(rank, 101 + rank, epoch());
    request.set_leaving(true);
    Send(request);
  }

  absl::Status Check(const WorkerKey& key) {
    return job_->Heartbeat(MakeHeartbeat(key.rank, key.incarnation, key.epoch)).status();
  }

  uint64_t epoch() const { return job_->Status().epoch(); }
  std::string failure() const { return job_->Status().failure(); }

  std::shared_ptr<Job> job_;
};

TEST_F(JobMembershipTest, GivesFreeRanksInOrder) {
  EXPECT_EQ(Register(MakeRegistration(101))->rank(), 0);
  EXPECT_EQ(Register(MakeRegistration(102))->rank(), 1);
  EXPECT_EQ(Register(MakeRegistration(103))->rank(), 2);
}

TEST_F(JobMembershipTest, GivesTheWantedRankAndFillsTheOthersAround) {
  EXPECT_EQ(Register(MakeRegistration(101, 1))->rank(), 1);
  EXPECT_EQ(Register(MakeRegistration(102))->rank(), 0);
  EXPECT_EQ(Register(MakeRegistration(103))->rank(), 2);
}

TEST_F(JobMembershipTest, TheSameIncarnationGetsTheSameRankAgain) {
  ASSERT_TRUE(Register(MakeRegistration(101)).ok());
  ASSERT_TRUE(Register(MakeRegistration(102)).ok());
  const auto again = Register(MakeRegistration(101));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->rank(), 0);
  EXPECT_EQ(again->epoch(), 1);
}

TEST_F(JobMembershipTest, RefusesWrongRegistrations) {
  EXPECT_THAT(Register(MakeRegistration(0)), Fails(absl::StatusCode::kInvalidArgument, "incarnation"));
  EXPECT_THAT(Register(MakeRegistration(1, 3)), Fails(absl::StatusCode::kInvalidArgument, "rank is 3"));
  EXPECT_THAT(Register(MakeRegistration(1, -2)), Fails(absl::StatusCode::kInvalidArgument, "rank is -2"));
}

TEST_F(JobMembershipTest, RefusesARankThatALiveWorkerHolds) {
  ASSERT_TRUE(Register(MakeRegistration(101, 1)).ok());
  EXPECT_THAT(Register(MakeRegistration(102, 1)),
              Fails(absl::StatusCode::kAlreadyExists, "rank 1 (10.0.0.1)"));
}

TEST_F(JobMembershipTest, RefusesAFourthWorkerOfThree) {
  FormEpoch();
  EXPECT_THAT(Register(MakeRegistration(104)), Fails(absl::StatusCode::kResourceExhausted, "all 3 ranks"));
}

TEST_F(JobMembershipTest, IsReadyWhenAllRanksAndTheRendezvousAreThere) {
  ASSERT_TRUE(Register(MakeRegistration(101)).ok());
  Beat(0);
  ASSERT_TRUE(Register(MakeRegistration(102)).ok());
  EXPECT_EQ(Beat(0).state(), v1::EPOCH_STATE_FORMING);
  ASSERT_TRUE(Register(MakeRegistration(103)).ok());

  const v1::HeartbeatResponse answer = Beat(1);

  EXPECT_EQ(answer.state(), v1::EPOCH_STATE_READY);
  EXPECT_EQ(answer.hosts_size(), 3);
  EXPECT_EQ(answer.rendezvous_address(), "10.0.0.1:29500");
}

TEST_F(JobMembershipTest, IsFormingWhileTheRendezvousIsMissing) {
  for (uint64_t i = 101; i <= 103; ++i) ASSERT_TRUE(Register(MakeRegistration(i)).ok());
  EXPECT_EQ(Beat(1).state(), v1::EPOCH_STATE_FORMING);
}

TEST_F(JobMembershipTest, SilenceWhileThePlannerStoodStillIsNobodysFault) {
  FormEpoch();
  clock_.Advance(absl::Seconds(60));
  job_->ExcuseSilence(absl::Seconds(60));
  job_->Tick();
  EXPECT_EQ(job_->State(), v1::JOB_STATE_RUNNING) << failure();
  // From now on they are missed as ever.
  clock_.Advance(absl::Seconds(6));
  job_->Tick();
  EXPECT_EQ(job_->State(), v1::JOB_STATE_FAILED);
}

TEST_F(JobMembershipTest, ASilentWorkerIsLostAfterTheTimeoutAndNotBefore) {
  FormEpoch();
  clock_.Advance(absl::Seconds(4));
  Beat(0);
  Beat(1);
  clock_.Advance(absl::Seconds(1));
  engine_->Tick();
  EXPECT_EQ(failure(), "");
  clock_.Advance(absl::Milliseconds(100));
  engine_->Tick();
  EXPECT_EQ(failure(), "rank 2 (10.0.0.1) was lost: no heartbeat for 5.1 s");
  EXPECT_EQ(Beat(0).state(), v1::EPOCH_STATE_FAILED);
  EXPECT_EQ(Beat(0).failure(), failure());
}

TEST_F(JobMembershipTest, TheRankThatDiedIsNamedFirstWhenItsPeersComplainedBefore) {
  FormEpoch();
  clock_.Advance(absl::Seconds(2));
  ReportFailure(1, "connection closed by rank 2");
  Beat(1);
  Beat(0);
  Beat(0);
  EXPECT_THAT(failure(), StartsWith("rank 1 (10.0.0.1) reported: connection"));
  clock_.Advance(absl::Seconds(4));

  engine_->Tick();

  EXPECT_THAT(failure(), StartsWith("rank 2 (10.0.0.1) was lost"));
  EXPECT_THAT(failure(), HasSubstr("then: rank 1 (10.0.0.1) reported"));
}

TEST_F(JobMembershipTest, AWorkerThatWasToldOfTheFailureMayGoSilent) {
  FormEpoch();
  ReportFailure(1, "out of memory");
  for (uint32_t rank = 0; rank < 3; ++rank) Beat(rank);
  clock_.Advance(absl::Minutes(1));
  engine_->Tick();
  EXPECT_THAT(failure(), Not(HasSubstr("lost")));
}

TEST_F(JobMembershipTest, TheFirstOfTwoReportedFailuresIsNamedFirst) {
  FormEpoch();
  ReportFailure(2, "out of memory");
  ReportFailure(0, "connection closed");
  ReportFailure(2, "giving up");
  EXPECT_EQ(failure(),
            "rank 2 (10.0.0.1) reported: out of memory; then: "
            "rank 0 (10.0.0.1) reported: connection closed");
}

TEST_F(JobMembershipTest, LeavingEarlyFailsTheEpoch) {
  FormEpoch();
  Leave(2);
  EXPECT_EQ(failure(), "rank 2 (10.0.0.1) left before the job was finished");
}

TEST_F(JobMembershipTest, LeavingAFinishedJobFreesTheRank) {
  FormEpoch();
  ASSERT_TRUE(job_->Drain().ok());  // nothing was submitted
  Leave(2);
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(job_->Status().workers_size(), 2);
  EXPECT_EQ(Beat(0).state(), v1::EPOCH_STATE_FINISHED);
}

TEST_F(JobMembershipTest, ARegistrationAfterAFailureOpensAnEpochAndShutsTheOldOneOut) {
  FormEpoch();
  ReportFailure(1, "out of memory");

  const auto registration = Register(MakeRegistration(201));

  ASSERT_TRUE(registration.ok());
  EXPECT_EQ(registration->epoch(), 2);
  EXPECT_EQ(failure(), "");
  EXPECT_THAT(Check({0, 101, 1}), Fails(absl::StatusCode::kAborted, "epoch 1 is stale"));
  EXPECT_THAT(Check({0, 101, 1}), Fails(absl::StatusCode::kAborted, "out of memory"));
  EXPECT_THAT(Check({0, 101, 2}), Fails(absl::StatusCode::kAborted,
                                        "incarnation 101 is stale: rank 0 (10.0.0.1) holds the rank"));
  EXPECT_THAT(Check({1, 102, 2}),
              Fails(absl::StatusCode::kAborted, "nobody (rank 1 is free) holds the rank in epoch 2"));
  EXPECT_TRUE(Check({0, 201, 2}).ok());
}

TEST_F(JobMembershipTest, AnOldIncarnationMayNotRegisterAgain) {
  FormEpoch();
  ReportFailure(1, "out of memory");
  EXPECT_THAT(Register(MakeRegistration(103)),
              Fails(absl::StatusCode::kAborted, "incarnation 103 belongs to an epoch that is over"));
  ASSERT_TRUE(Register(MakeRegistration(201)).ok());
  EXPECT_THAT(Register(MakeRegistration(101)), Fails(absl::StatusCode::kAborted, "out of memory"));
}

TEST_F(JobMembershipTest, WorkersThatWouldStartAtDifferentIterationsFailTheEpoch) {
  ASSERT_TRUE(job_->SubmitBatches(MakeSubmission("job", 0, 21)).ok());
  ASSERT_TRUE(Register(MakeRegistration(101, -1, 20)).ok());
  ASSERT_TRUE(Register(MakeRegistration(102, -1, 10)).ok());
  EXPECT_THAT(failure(),
              HasSubstr("rank 1 (10.0.0.1) would start at iteration 10, but its epoch starts at 20"));
}

TEST_F(JobMembershipTest, NoRankBeyondTheJobPasses) {
  EXPECT_THAT(Check({3, 101, 0}), Fails(absl::StatusCode::kInvalidArgument, "3 ranks"));
}

TEST_F(JobMembershipTest, AsksForFiveHeartbeatsATimeoutAtMostASecondApart) {
  const absl::Time now = clock_.Now();
  EXPECT_EQ(Heartbeats(1, absl::Seconds(1), now).interval(), absl::Milliseconds(200));
  EXPECT_EQ(Heartbeats(1, absl::Minutes(1), now).interval(), absl::Seconds(1));
}

TEST_F(JobMembershipTest, ListsWorkersWithTheAgeOfTheirHeartbeats) {
  FormEpoch();
  clock_.Advance(absl::Seconds(3));
  Beat(1);
  std::vector<int64_t> ages;
  const v1::JobStatus status = job_->Status();
  for (const v1::WorkerStatus& worker : status.workers()) ages.push_back(worker.heartbeat_age_ms());
  EXPECT_THAT(ages, ElementsAre(3000, 0, 3000));
}

}  // namespace
}  // namespace penstock
