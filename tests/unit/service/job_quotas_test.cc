// Quotas of owners, as calls meet them.
#include <string>

#include "penstock/client/retry_iteration.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

class JobQuotasTest : public EngineFixture {
 protected:
  static v1::JobSpec JobOf(const std::string& owner, const std::string& id = "job") {
    v1::JobSpec spec = MakeJob(id);
    spec.set_owner(owner);
    return spec;
  }

  // An engine whose plans take so long.
  void StartSlow(const EngineOptions& options, absl::Duration plan) {
    Start(options, [this, plan](const v1::Batch&) { clock_.Compute(plan); });
  }

  absl::StatusOr<v1::Plan> PlanBatch(const std::string& payer) {
    v1::PlanBatchRequest request;
    *request.mutable_job() = MakeJob("what-if");
    *request.mutable_batch() = MakeBatch(0);
    Event answered;
    absl::StatusOr<v1::Plan> answer = absl::UnknownError("not answered");
    engine_->PlanBatch(request, payer, [&](absl::StatusOr<v1::Plan> plan) {
      answer = std::move(plan);
      answered.Notify();
    });
    EXPECT_TRUE(answered.Await());
    return answer;
  }

  OwnerUse UseOf(const std::string& owner) const {
    for (const OwnerUse& use : engine_->OwnerUses())
      if (use.owner == owner) return use;
    return {};
  }

  // A task is charged a moment after whoever waits for it was told.
  void AwaitCharge(const std::string& owner, PlanningClass kind, absl::Duration total) const {
    while (UseOf(owner).planning[static_cast<size_t>(kind)] < total) std::this_thread::yield();
  }

  static constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
  // Of a batch.
  static constexpr int kSamples = 4;
};

TEST_F(JobQuotasTest, BatchesBeyondTheSamplesOfAMinuteAreRefusedWithWhereToGoOn) {
  Start({.owners = {.samples_a_minute = 2 * kSamples}});
  ASSERT_EQ(MakeBatch(0).samples_size(), kSamples);
  const auto job = Register(JobOf("a"));
  const auto other = Register(JobOf("b", "other"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  const auto refused = job->SubmitBatches(MakeSubmission("job", 1, 3));
  EXPECT_THAT(refused, Fails(kExhausted,
                             "owner 'a' has used its samples, the quota is 8 a minute: try again "
                             "in 1s, or raise --samples-of-owner-a-minute"));
  EXPECT_EQ(RetryIteration(refused.status()), 2);
  EXPECT_TRUE(other->SubmitBatches(MakeSubmission("other", 0, 1)).ok());
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(job->SubmitBatches(MakeSubmission("job", 1, 3))->next_iteration(), 3);
  EXPECT_EQ(UseOf("a").samples, 3 * kSamples);
}

TEST_F(JobQuotasTest, BatchesThatWereAcceptedBeforeAreTakenAgainBeyondTheQuota) {
  Start({.owners = {.samples_a_minute = 1}});
  const auto job = Register(JobOf("a"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  EXPECT_EQ(UseOf("a").samples, 2 * kSamples);
}

// To look at a large batch takes longer than to refuse it.
TEST_F(JobQuotasTest, WhatAQuotaRefusesIsNotLookedAt) {
  Start({.owners = {.samples_a_minute = kSamples}});
  const auto job = Register(JobOf("a"));
  auto request = MakeSubmission("job", 0, 1);
  request.mutable_batches(0)->mutable_samples(1)->set_target_tokens(FakeBatchPlanner::kTooLong);
  EXPECT_THAT(job->SubmitBatches(request), Fails(absl::StatusCode::kInvalidArgument, "does not fit"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  request.mutable_batches(0)->set_iteration(1);
  const absl::Status refused = job->SubmitBatches(request).status();
  EXPECT_THAT(refused, Fails(kExhausted, "--samples-of-owner-a-minute"));
  EXPECT_EQ(RetryIteration(refused), 1);
}

TEST_F(JobQuotasTest, AllJobsOfAnOwnerAndItsWhatIfsShareItsSamples) {
  Start({.owners = {.samples_a_minute = 2 * kSamples}});
  const auto first = Register(JobOf("a"));
  const auto second = Register(JobOf("a", "second"));
  ASSERT_TRUE(first->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  EXPECT_TRUE(PlanBatch("owner a").ok());
  EXPECT_THAT(PlanBatch("owner a"), Fails(kExhausted, "--samples-of-owner-a-minute"));
  EXPECT_FALSE(second->SubmitBatches(MakeSubmission("second", 0, 1)).ok());
  EXPECT_TRUE(PlanBatch("ipv4:10.0.0.5").ok());
  EXPECT_EQ(UseOf("").samples, kSamples);
}

TEST_F(JobQuotasTest, WhoHasUsedItsPlanningTimeIsPlannedWhatWasAcceptedAndNothingNew) {
  StartSlow({.owners = {.planning_seconds_a_minute = 30}}, absl::Seconds(20));
  const auto job = Register(JobOf("a"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 3)).ok());
  Reader reader(job, StreamRequest(0));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(reader.Next().has_value());
  AwaitCharge("a", PlanningClass::kJobBatch, absl::Seconds(60));

  const auto refused = job->SubmitBatches(MakeSubmission("job", 3, 4));
  EXPECT_THAT(refused, Fails(kExhausted,
                             "owner 'a' has used its planning time, the quota is 30 seconds a "
                             "minute"));
  EXPECT_EQ(RetryIteration(refused.status()), 3);
  EXPECT_THAT(PlanBatch("owner a"), Fails(kExhausted, "--planning-seconds-of-owner-a-minute"));
  EXPECT_THAT(RegisterJob(JobOf("a", "new")), Fails(kExhausted, "--planning-seconds-of-owner-a-minute"));
  EXPECT_TRUE(RegisterJob(JobOf("a")).ok()) << "that job is there";
  EXPECT_TRUE(RegisterJob(JobOf("b", "new")).ok());

  clock_.Advance(absl::Minutes(10));
  EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 3, 4)).ok());
}

TEST_F(JobQuotasTest, AWhatIfWhoseOwnerHasUsedItsTimeMeanwhileIsNotPlanned) {
  Event started, go_on;
  Start({.planning_threads = 1, .owners = {.planning_seconds_a_minute = 30}}, [&](const v1::Batch&) {
    clock_.Compute(absl::Minutes(1));
    started.Notify();
    go_on.Await();
  });
  v1::PlanBatchRequest request;
  *request.mutable_job() = MakeJob("what-if");
  *request.mutable_batch() = MakeBatch(0);
  engine_->PlanBatch(request, "owner a", [](const absl::StatusOr<v1::Plan>&) {});
  ASSERT_TRUE(started.Await());
  // One thread plans what-ifs here, and is busy.
  absl::Status answer;
  Event answered;
  engine_->PlanBatch(request, "owner a", [&](absl::StatusOr<v1::Plan> plan) {
    answer = std::move(plan).status();
    answered.Notify();
  });
  go_on.Notify();
  ASSERT_TRUE(answered.Await());
  EXPECT_THAT(answer, Fails(kExhausted, "owner 'a' has used its planning time"));
}

TEST_F(JobQuotasTest, AnOwnersStreamsAreBoundedAndItsWorkersAreServed) {
  Start({.owners = {.streams = 2}});
  const auto job = Register(JobOf("a"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
  FormEpoch(*job, 101);
  Reader first(job, StreamRequest(0)), second(job, StreamRequest(1)), third(job, StreamRequest(0));
  EXPECT_THAT(third.End(), Fails(kExhausted, "--streams-of-owner"));
  Reader worker(job, StreamRequest(0, 0, 101, 1));
  EXPECT_TRUE(worker.Next().has_value());
  EXPECT_EQ(UseOf("a").streams, 3);
}

TEST_F(JobQuotasTest, RefusedJobsAreCountedByQuota) {
  Start({.quotas = {.jobs_of_owner = 2, .unstarted_of_owner = 1}});
  const auto started = Register(JobOf("a"));
  ASSERT_TRUE(started->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  Register(JobOf("a", "idle"));
  EXPECT_FALSE(RegisterJob(JobOf("a", "second idle")).ok());
  ASSERT_TRUE((*engine_->FindJob("idle"))->SubmitBatches(MakeSubmission("idle", 0, 1)).ok());
  EXPECT_FALSE(RegisterJob(JobOf("a", "third")).ok());
  EXPECT_THAT(UseOf("a").refused, testing::ElementsAre(1, 1, 0, 0, 0));
}

TEST_F(JobQuotasTest, OwnersSeeHowMuchOfEachQuotaTheyHaveUsed) {
  Start({.quotas = {.jobs = 8, .unstarted_of_owner = 5},
         .owners = {.streams = 7, .samples_a_minute = 10 * kSamples}});
  const auto job = Register(JobOf("a"));
  Register(JobOf("a", "waiting"));
  Register(JobOf("b", "other"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  const std::vector<v1::QuotaUse> quotas = engine_->QuotaUses({"", "a", "stranger"});
  std::vector<std::string> said;
  for (const v1::QuotaUse& quota : quotas) {
    said.push_back(
        absl::StrCat(quota.owner(), " ", quota.quota(), " ", quota.used(), " of ", quota.allowed()));
  }
  EXPECT_THAT(said,
              testing::ElementsAre(
                  "a jobs-of-owner 2 of 6", "a unstarted-jobs-of-owner 1 of 5", "a streams-of-owner 0 of 7",
                  "a samples-of-owner-a-minute 8 of 40", "a planning-seconds-of-owner-a-minute 0 of 0",
                  "stranger jobs-of-owner 0 of 6", "stranger unstarted-jobs-of-owner 0 of 5",
                  "stranger streams-of-owner 0 of 7", "stranger samples-of-owner-a-minute 0 of 40",
                  "stranger planning-seconds-of-owner-a-minute 0 of 0"));
  // Three seconds pay for two samples.
  clock_.Advance(absl::Seconds(3));
  EXPECT_NEAR(engine_->QuotaUses({"a"})[3].used(), 6, 1e-6);
}

}  // namespace
}  // namespace penstock
