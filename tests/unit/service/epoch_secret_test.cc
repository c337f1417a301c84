// The secret of an epoch: who gets it, when it is another, and where it must not be seen.
#include "common/secret/random_secret.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;
using testing::Not;

class EpochSecretTest : public EngineFixture {
 protected:
  EpochSecretTest() : job_(EngineFixture::Register(MakeJob("job"))) {}

  std::string SecretGivenTo(uint64_t incarnation) {
    const auto answer = job_->RegisterWorker(MakeRegistration(incarnation));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->epoch_secret() : "";
  }

  void FailEpoch() {
    clock_.Advance(absl::Seconds(2));
    engine_->Tick();
    ASSERT_EQ(job_->State(), v1::JOB_STATE_FAILED);
  }

  std::shared_ptr<Job> job_;
};

TEST_F(EpochSecretTest, EveryWorkerOfAnEpochGetsTheSame) {
  const std::string secret = SecretGivenTo(101);
  EXPECT_EQ(secret.size(), kSecretBytes);
  EXPECT_EQ(SecretGivenTo(102), secret);
  // An answer that was lost.
  EXPECT_EQ(SecretGivenTo(101), secret);
}

TEST_F(EpochSecretTest, IsAnotherInEachEpoch) {
  const std::string first = SecretGivenTo(101);
  FailEpoch();
  const std::string second = SecretGivenTo(201);
  EXPECT_EQ(second.size(), kSecretBytes);
  EXPECT_NE(second, first);
}

TEST_F(EpochSecretTest, IsAnotherForEachJob) {
  const std::string secret = SecretGivenTo(101);
  job_ = EngineFixture::Register(MakeJob("other"));
  EXPECT_NE(SecretGivenTo(101), secret);
}

TEST_F(EpochSecretTest, APlannerThatWasKilledHandsThoseWhoAreMissingWhatTheOthersHave) {
  const std::string secret = SecretGivenTo(101);
  job_.reset();
  ASSERT_TRUE(Flush().ok());
  Restart();
  ASSERT_TRUE(RegisterJob(MakeJob("job")).ok());
  job_ = *engine_->FindJob("job");
  EXPECT_EQ(SecretGivenTo(102), secret);
}

TEST_F(EpochSecretTest, IsInNothingThatViewersRead) {
  const std::string secret = SecretGivenTo(101);
  EXPECT_THAT(job_->Status().SerializeAsString(), Not(HasSubstr(secret)));
  EXPECT_THAT(job_->Get(0).SerializeAsString(), Not(HasSubstr(secret)));
  EXPECT_THAT(job_->Heartbeat(MakeHeartbeat(0, 101, 1))->SerializeAsString(), Not(HasSubstr(secret)));
}

TEST_F(EpochSecretTest, WhatReadersSeeOfAWorkerDoesNotLetThemSpeakInItsName) {
  ASSERT_TRUE(job_->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  FormEpoch(*job_, 101);
  Train(job_, 0, 1, 101);
  const v1::GetJobResponse seen = job_->Get(0);
  ASSERT_GT(seen.status().workers_size(), 0);
  for (const v1::WorkerStatus& worker : seen.status().workers()) {
    const uint64_t shown = worker.incarnation();
    EXPECT_NE(shown, 101 + worker.rank());
    EXPECT_NE(shown, 0);
    EXPECT_THAT(job_->RegisterWorker(MakeRegistration(shown, static_cast<int32_t>(worker.rank()))),
                Fails(absl::StatusCode::kAlreadyExists, "is alive and holds it"));
    EXPECT_THAT(job_->ReportIteration(MakeReport(worker.rank(), 1, shown, 1)),
                Fails(absl::StatusCode::kAborted, "stale"));
    EXPECT_THAT(job_->Heartbeat(MakeHeartbeat(worker.rank(), shown, 1)).status(),
                Fails(absl::StatusCode::kAborted, "stale"));
    Reader reader(job_, StreamRequest(worker.rank(), 1, shown, 1));
    EXPECT_THAT(reader.End(), Fails(absl::StatusCode::kAborted, "stale"));
  }
  // Nor does what they are told when they are refused, or when a worker is lost.
  const std::string number = absl::StrCat("incarnation ", 101);
  EXPECT_THAT(job_->RegisterWorker(MakeRegistration(9, 0)).status().ToString(), Not(HasSubstr(number)));
  EXPECT_THAT(job_->Heartbeat(MakeHeartbeat(0, 9, 1)).status().ToString(), Not(HasSubstr(number)));
  FailEpoch();
  EXPECT_THAT(job_->Status().failure(), HasSubstr("rank 0"));
  EXPECT_THAT(job_->Status().failure(), Not(HasSubstr("101")));
}

// As a planner before this one wrote them: its workers are over without a guard, and agree on that.
TEST_F(EpochSecretTest, AnEpochOfAnOlderStoreHasNone) {
  SecretGivenTo(101);
  ASSERT_TRUE(Flush().ok());
  std::vector<std::string> events = store_->Load()->front().events;
  for (std::string& bytes : events) {
    store::v1::Event event;
    ASSERT_TRUE(event.ParseFromString(bytes));
    if (event.has_worker_registered()) event.mutable_worker_registered()->clear_epoch_secret();
    bytes = event.SerializeAsString();
  }
  const absl::StatusOr<JobState> state = ReplayJob(std::nullopt, events);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->membership().epoch(), 1);
  EXPECT_EQ(state->membership().secret(), "");
  EXPECT_EQ(JobState(state->Save()).membership().secret(), "");
}

}  // namespace
}  // namespace penstock
