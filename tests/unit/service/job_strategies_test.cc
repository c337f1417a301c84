// A job whose next iterations are to run on other strategies.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;

constexpr uint64_t kWindow = 16;

v1::Strategy StrategyOf(const v1::Mesh& mesh) {
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

class JobStrategiesTest : public EngineFixture {
 protected:
  using Answer = absl::StatusOr<v1::ChangeStrategiesResponse>;

  // Of two ranks.
  static v1::JobSpec Spec() {
    v1::JobSpec spec = MakeJob("job");
    spec.set_look_ahead_window(kWindow);
    *spec.add_strategies() = StrategyOf(MakeMesh(2, 1, 1, 1));
    *spec.add_strategies() = StrategyOf(MakeMesh(1, 2, 1, 1));
    return spec;
  }

  static v1::ChangeStrategiesRequest To(const std::vector<v1::Mesh>& meshes) {
    v1::ChangeStrategiesRequest request;
    request.set_job_id("job");
    for (const v1::Mesh& mesh : meshes) *request.add_strategies() = StrategyOf(mesh);
    return request;
  }

  static Answer Change(Job& job, const v1::ChangeStrategiesRequest& request) {
    auto answered = std::make_shared<Event>();
    auto answer = std::make_shared<Answer>(absl::UnknownError("not answered"));
    job.ChangeStrategies(request, [=](const Answer& changed) {
      *answer = changed;
      answered->Notify();
    });
    EXPECT_TRUE(answered->Await());
    return *answer;
  }

  static v1::StreamProgramsRequest WorkersRequest(const Job& job, uint32_t rank, uint64_t from) {
    v1::StreamProgramsRequest request = StreamRequest(rank, from, 101 + rank, job.Status().epoch());
    request.set_takes_new_strategies(true);
    return request;
  }

  // Streams of the workers 101 and 102.
  static std::vector<std::unique_ptr<Reader>> Workers(const std::shared_ptr<Job>& job, uint64_t from) {
    std::vector<std::unique_ptr<Reader>> readers;
    for (uint32_t rank = 0; rank < 2; ++rank)
      readers.push_back(std::make_unique<Reader>(job, WorkersRequest(*job, rank, from)));
    return readers;
  }

  // So many are submitted and planned.
  std::shared_ptr<Job> JobWithPlans(uint64_t count) {
    const std::shared_ptr<Job> job = Register(Spec());
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, count)).ok());
    Reader reader(job, StreamRequest(0));
    for (uint64_t iteration = 0; iteration < count; ++iteration) EXPECT_TRUE(reader.Next().has_value());
    return job;
  }

  static uint32_t StrategyOfPlan(const std::shared_ptr<Job>& job, uint64_t iteration) {
    return PlanOf(job, iteration).strategy();
  }
  static v1::Plan PlanOf(const std::shared_ptr<Job>& job, uint64_t iteration) {
    absl::StatusOr<v1::GetIterationResponse> held;
    do {
      held = job->GetIteration(iteration);
    } while (absl::IsUnavailable(held.status()) || absl::IsOutOfRange(held.status()));
    EXPECT_TRUE(held.ok()) << held.status();
    return held.ok() ? held->plan() : v1::Plan();
  }
};

TEST_F(JobStrategiesTest, IterationsWithoutAPlanGetTheNewStrategiesAndPlansThatExistStay) {
  const auto job = JobWithPlans(4);
  const Answer changed = Change(*job, To({MakeMesh(1, 1, 2, 1), MakeMesh(1, 2, 1, 1)}));
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->from_iteration(), 4);
  EXPECT_THAT(changed->strategies(), ElementsAre(2, 1));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 4, 8)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 2), 0);
  EXPECT_EQ(StrategyOfPlan(job, 3), 1);
  EXPECT_EQ(StrategyOfPlan(job, 4), 1);
  EXPECT_EQ(StrategyOfPlan(job, 5), 2);
  EXPECT_EQ(job->SpecNow().strategies_size(), 3);
  EXPECT_EQ(job->spec().strategies_size(), 2) << "what it was registered with, for who registers it again";
  EXPECT_TRUE(RegisterJob(Spec()).ok());
}

TEST_F(JobStrategiesTest, TheSameStrategiesAgainChangeNothing) {
  const auto job = JobWithPlans(4);
  ASSERT_TRUE(Change(*job, To({MakeMesh(1, 1, 2, 1)})).ok());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 4, 8)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 7), 2);
  const Answer again = Change(*job, To({MakeMesh(1, 1, 2, 1)}));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->from_iteration(), 4);
  EXPECT_THAT(again->strategies(), ElementsAre(2));
  const absl::StatusOr<v1::ChangeStrategiesResponse> now = job->StrategiesNow();
  ASSERT_TRUE(now.ok());
  EXPECT_EQ(now->SerializeAsString(), again->SerializeAsString());
}

TEST_F(JobStrategiesTest, ThereAndBackTheFirstOnesHaveTheirNumbers) {
  const auto job = JobWithPlans(4);
  ASSERT_TRUE(Change(*job, To({MakeMesh(1, 1, 2, 1)})).ok());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 4, 8)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 7), 2);
  const Answer back = Change(*job, To({MakeMesh(2, 1, 1, 1), MakeMesh(1, 2, 1, 1)}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->from_iteration(), 8);
  EXPECT_THAT(back->strategies(), ElementsAre(0, 1));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 8, 10)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 9), 1);
}

TEST_F(JobStrategiesTest, APlannerThatWasKilledMakesThePlansOfAllStrategiesAgain) {
  auto job = JobWithPlans(4);
  ASSERT_TRUE(Change(*job, To({MakeMesh(1, 1, 2, 1)})).ok());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 4, 8)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 7), 2);
  ASSERT_TRUE(Change(*job, To({MakeMesh(2, 1, 1, 1), MakeMesh(1, 1, 1, 2)})).ok());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 8, 12)).ok());
  std::vector<std::string> hashes;
  for (uint64_t iteration = 0; iteration < 12; ++iteration)
    hashes.push_back(PlanOf(job, iteration).content_hash());
  EXPECT_NE(hashes[9], hashes[8]);
  const std::string before = job->Snapshot().SerializeAsString();
  const std::string specification = job->SpecNow().SerializeAsString();
  job.reset();
  ASSERT_TRUE(Flush().ok());
  Restart();
  ASSERT_TRUE(RegisterJob(Spec()).ok());
  job = *engine_->FindJob("job");
  EXPECT_EQ(job->Snapshot().SerializeAsString(), before);
  EXPECT_EQ(job->SpecNow().SerializeAsString(), specification);
  EXPECT_THAT(job->StrategyNumbers(), ElementsAre(0, 3));
  for (uint64_t iteration = 0; iteration < 12; ++iteration)
    EXPECT_EQ(PlanOf(job, iteration).content_hash(), hashes[iteration]) << iteration;
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 12, 14)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 13), 3);
}

// A log is cut behind a snapshot, which knows nothing of changes.
TEST_F(JobStrategiesTest, TheyOutliveTheEventsThatSaidSo) {
  auto job = JobWithPlans(4);
  ASSERT_TRUE(Change(*job, To({MakeMesh(1, 1, 2, 1)})).ok());
  // Each is an event.
  for (int i = 0; i < 16384; ++i) {
    v1::RegisterWorkerRequest request = MakeRegistration(1000 + static_cast<uint64_t>(i), 0);
    ASSERT_TRUE(job->RegisterWorker(request).ok());
    v1::HeartbeatRequest failed = MakeHeartbeat(0, request.incarnation(), job->Status().epoch());
    failed.set_failure("again");
    ASSERT_TRUE(job->Heartbeat(failed).ok());
  }
  ASSERT_TRUE(Flush().ok());
  const std::vector<StoredJob> stored = *store_->Load();
  ASSERT_EQ(stored.size(), 1);
  ASSERT_TRUE(stored.front().snapshot.has_value());
  EXPECT_GT(stored.front().first_sequence, 100);
  const std::string specification = job->SpecNow().SerializeAsString();
  const std::string before = job->Snapshot().SerializeAsString();
  job.reset();
  Restart();
  ASSERT_TRUE(RegisterJob(Spec()).ok());
  job = *engine_->FindJob("job");
  EXPECT_EQ(job->Snapshot().SerializeAsString(), before);
  EXPECT_EQ(job->SpecNow().SerializeAsString(), specification);
  EXPECT_THAT(job->StrategyNumbers(), ElementsAre(2));
  EXPECT_EQ(StrategyOfPlan(job, 3), 1);
  FormEpoch(*job, 50'001);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 4, 5)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 4), 2);
}

TEST_F(JobStrategiesTest, WhatIsBeingPlannedStaysAndWhatComesLaterMustFitTheNewOnes) {
  Event planning, go_on;
  Start({}, [&](const v1::Batch& batch) {
    if (batch.iteration() != 0) return;
    planning.Notify();
    go_on.Await();
  });
  const auto job = Register(Spec());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 1)).ok());
  ASSERT_TRUE(planning.Await());
  const Answer changed = Change(*job, To({MakeMesh(1, 2, 1, 1)}));
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->from_iteration(), 1);
  EXPECT_THAT(job->SubmitBatches(MakeSubmission("job", 1, 2, FakeBatchPlanner::kForTheFirst)),
              Fails(absl::StatusCode::kInvalidArgument, "does not fit"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 1, 3)).ok());
  go_on.Notify();
  EXPECT_EQ(StrategyOfPlan(job, 0), 0);
  EXPECT_EQ(StrategyOfPlan(job, 2), 1);
}

TEST_F(JobStrategiesTest, ABatchThatIsAcceptedAndFitsNoneOfThemRefusesThemByName) {
  // Nothing is planned ahead.
  Start({.job_memory_bytes = 0});
  const auto job = Register(Spec());
  v1::SubmitBatchesRequest request = MakeSubmission("job", 0, 3);
  request.mutable_batches(2)->mutable_samples(0)->set_target_tokens(FakeBatchPlanner::kForTheFirst);
  ASSERT_TRUE(job->SubmitBatches(request).ok());
  ASSERT_TRUE(Reader(job, StreamRequest(0)).Next().has_value());
  EXPECT_THAT(
      Change(*job, To({MakeMesh(1, 2, 1, 1)})),
      Fails(absl::StatusCode::kInvalidArgument, "strategies: the batch of iteration 2, which is accepted"));
  EXPECT_THAT(job->StrategyNumbers(), ElementsAre(0, 1));
  const Answer changed = Change(*job, To({MakeMesh(2, 1, 1, 1)}));
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->from_iteration(), 1);
}

TEST_F(JobStrategiesTest, TheStreamSaysOnceWhoIsWhereOnAStrategyThatIsNew) {
  const auto job = JobWithPlans(2);
  FormEpoch(*job, 101);
  const auto workers = Workers(job, 0);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(workers[0]->Next()->has_new_topology());
  ASSERT_TRUE(Change(*job, To({MakeMesh(1, 1, 2, 1), MakeMesh(1, 1, 1, 2)})).ok());
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 2, 6)).ok());
  for (uint64_t iteration = 2; iteration < 6; ++iteration) {
    const auto program = workers[0]->Next();
    ASSERT_TRUE(program.has_value());
    EXPECT_EQ(program->strategy(), 2 + iteration % 2);
    EXPECT_EQ(program->has_new_topology(), iteration < 4) << iteration;
  }
  // Who comes back may have missed what it was sent.
  Reader back(job, WorkersRequest(*job, 0, 5));
  EXPECT_TRUE(back.Next()->has_new_topology());
  Reader plain(job, StreamRequest(0, 5));
  EXPECT_FALSE(plain.Next()->has_new_topology());
  // And with registration all are known.
  clock_.Advance(absl::Seconds(2));
  engine_->Tick();
  const auto later = job->RegisterWorker(MakeRegistration(201));
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->strategies_size(), 4);
  EXPECT_EQ(later->job().strategies_size(), 4);
}

TEST_F(JobStrategiesTest, WorkersThatKnowNothingOfItKeepTheirStrategies) {
  const auto job = JobWithPlans(2);
  FormEpoch(*job, 101);
  EXPECT_THAT(Change(*job, To({MakeMesh(1, 1, 2, 1)})),
              Fails(absl::StatusCode::kUnavailable, "rank 0 (10.0.0.1) does not read programs yet"));
  {
    const auto workers = Workers(job, 0);
    const Reader old(job, StreamRequest(1, 0, 102, 1));
    EXPECT_THAT(Change(*job, To({MakeMesh(1, 1, 2, 1)})),
                Fails(absl::StatusCode::kFailedPrecondition, "the programs of rank 1 takes no strategies"));
  }
  const auto workers = Workers(job, 0);
  EXPECT_TRUE(Change(*job, To({MakeMesh(1, 1, 2, 1)})).ok());
}

TEST_F(JobStrategiesTest, AJobThatCannotHaveThemSaysWhy) {
  const auto plain = [&] {
    v1::JobSpec spec = MakeJob("plain");
    return Register(spec);
  }();
  EXPECT_THAT(Change(*plain, To({MakeMesh(2, 1, 1, 1)})),
              Fails(absl::StatusCode::kInvalidArgument, "job 'plain' has no strategies"));
  const auto job = JobWithPlans(2);
  v1::ChangeStrategiesRequest many = To({});
  for (uint32_t i = 0; i < 63; ++i) {
    v1::Strategy* strategy = many.add_strategies();
    *strategy = StrategyOf(MakeMesh(2, 1, 1, 1));
    strategy->mutable_meshes(0)->add_layers_per_stage(i + 1);
  }
  EXPECT_THAT(Change(*job, many), Fails(absl::StatusCode::kResourceExhausted,
                                        "63 of them are new, and the job has had 2; at most 64"));
  EXPECT_THAT(Change(*job, To({MakeMesh(1, 2, 1, 1), MakeMesh(1, 1, FakeBatchPlannerFactory::kTooLarge, 1)})),
              Fails(absl::StatusCode::kInvalidArgument, "strategies[1]: job.mesh.tensor: is too large"));
  EXPECT_EQ(job->SpecNow().strategies_size(), 2) << "what is refused leaves nothing behind";
  ASSERT_TRUE(job->Drain().ok());
  EXPECT_THAT(Change(*job, To({MakeMesh(1, 2, 1, 1)})),
              Fails(absl::StatusCode::kFailedPrecondition, "is finished"));
}

TEST_F(JobStrategiesTest, AChangeThatIsPreparedHoldsUpNobodyAndEndsWithItsCall) {
  const auto job = JobWithPlans(2);
  Event started, go_on, answered;
  std::atomic<bool> is_first = true;
  planners_->set_preparation_gate([&] {
    if (!is_first.exchange(false)) return;
    started.Notify();
    go_on.Await();
  });
  Answer answer;
  const PlanningTicketPtr ticket =
      job->ChangeStrategies(To({MakeMesh(1, 1, 2, 1)}), [&](const Answer& given) {
        answer = given;
        answered.Notify();
      });
  ASSERT_TRUE(started.Await());
  EXPECT_THAT(Change(*job, To({MakeMesh(1, 1, 1, 2)})),
              Fails(absl::StatusCode::kUnavailable, "are being prepared; try again"));
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 2, 4)).ok());
  EXPECT_EQ(StrategyOfPlan(job, 3), 1);
  engine_->CancelWhatIf(ticket);
  go_on.Notify();
  ASSERT_TRUE(answered.Await());
  EXPECT_THAT(answer, Fails(absl::StatusCode::kCancelled, ""));
  EXPECT_THAT(job->StrategyNumbers(), ElementsAre(0, 1));
  EXPECT_TRUE(Change(*job, To({MakeMesh(1, 1, 1, 2)})).ok());
}

TEST_F(JobStrategiesTest, TheyAreComparedWithTheLengthsThatTheyAreFor) {
  v1::JobSpec spec = Spec();
  spec.mutable_planning()->add_typical_samples()->set_target_tokens(10'000);
  const auto job = Register(spec);
  ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 2)).ok());
  EXPECT_EQ(job->Status().length_drift(), 1);
  v1::ChangeStrategiesRequest request = To({MakeMesh(1, 2, 1, 1)});
  request.add_typical_samples()->set_target_tokens(10);
  ASSERT_TRUE(Change(*job, request).ok());
  EXPECT_EQ(job->Status().length_drift(), 0);
  EXPECT_EQ(job->SpecNow().planning().typical_samples(0).target_tokens(), 10);
  EXPECT_EQ(job->spec().planning().typical_samples(0).target_tokens(), 10'000);
}

}  // namespace
}  // namespace penstock
