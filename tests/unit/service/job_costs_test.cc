// A job whose costs follow what its workers measure.
#include <array>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

constexpr uint64_t kFirstFit = 4;
constexpr uint64_t kWindow = 16;
// Completed iterations at which costs are fitted.
constexpr std::array<uint64_t, 6> kFits = {kFirstFit, 8, 12, 16, 24, 32};

class JobCostsTest : public EngineFixture {
 protected:
  JobCostsTest() { planners_->set_calibrates(true); }

  static v1::JobSpec Spec() {
    v1::JobSpec spec = MakeJob("job");
    spec.set_look_ahead_window(kWindow);
    return spec;
  }

  // As many batches as the window takes, all planned.
  static void Feed(const std::shared_ptr<Job>& job) {
    const v1::JobStatus status = job->Status();
    const uint64_t end = status.completed_iteration() + kWindow;
    if (status.next_iteration() < end) {
      ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", status.next_iteration(), end)).ok());
    }
    Reader reader(job, StreamRequest(0, status.completed_iteration(), 101, status.epoch()));
    for (uint64_t iteration = status.completed_iteration(); iteration < end; ++iteration)
      ASSERT_TRUE(reader.Next().has_value());
  }

  // A job that was trained so far, with its window planned ahead, once the fit that this caused has ended.
  std::shared_ptr<Job> TrainedTo(const v1::JobSpec& spec, uint64_t completed) {
    const std::shared_ptr<Job> job = Register(spec);
    FormEpoch(*job, 101);
    Feed(job);
    Train(job, 0, completed, 101);
    return job;
  }

  // Takes the batch of an iteration, and waits until it is planned.
  static void SubmitAndPlan(const std::shared_ptr<Job>& job, uint64_t iteration, uint32_t tokens) {
    ASSERT_TRUE(job->SubmitBatches(MakeSubmission("job", iteration, iteration + 1, tokens)).ok());
    ASSERT_TRUE(Reader(job, StreamRequest(0, iteration, 101, job->Status().epoch())).Next().has_value());
  }

  // A fit runs on a thread of the pool: its event is awaited.
  static store::v1::CostsRevised AwaitCosts(const Job& job, int count) {
    while (job.Snapshot().costs_size() < count) std::this_thread::yield();
    return job.Snapshot().costs(count - 1);
  }

  // The same to the last of these, fit by fit.
  std::shared_ptr<Job> TrainedThroughFits() {
    const std::shared_ptr<Job> job = TrainedTo(Spec(), kFits.front());
    for (size_t fit = 0; fit + 1 < kFits.size(); ++fit) {
      AwaitCosts(*job, static_cast<int>(fit) + 1);
      Feed(job);
      Train(job, kFits[fit], kFits[fit + 1], 101);
    }
    AwaitCosts(*job, static_cast<int>(kFits.size()));
    return job;
  }

  std::shared_ptr<Job> Killed() {
    EXPECT_TRUE(Flush().ok());
    Restart();
    EXPECT_TRUE(RegisterJob(Spec()).ok());
    return *engine_->FindJob("job");
  }

  static uint64_t VersionOf(const std::shared_ptr<Job>& job, uint64_t iteration) {
    absl::StatusOr<v1::GetIterationResponse> held;
    do {
      held = job->GetIteration(iteration);
    } while (absl::IsUnavailable(held.status()));
    EXPECT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(held->profile().version(), held->plan().profile_version());
    return held->plan().profile_version();
  }
};

TEST_F(JobCostsTest, IterationsThatAreNotPlannedYetGetTheCostsThatWereFitted) {
  const auto job = TrainedTo(Spec(), kFirstFit);
  const store::v1::CostsRevised costs = AwaitCosts(*job, 1);
  EXPECT_EQ(costs.from_iteration(), kWindow);
  EXPECT_EQ(costs.measured_before(), kFirstFit);
  EXPECT_EQ(costs.profile().version(), 1);
  Feed(job);
  EXPECT_EQ(VersionOf(job, kWindow - 1), 0);
  EXPECT_EQ(VersionOf(job, kWindow), 1);
  EXPECT_EQ(VersionOf(job, kWindow + 3), 1);
  // The log says so, too.
  const store::v1::JobSnapshot snapshot = job->Snapshot();
  for (const store::v1::IterationPlanned& planned : snapshot.plans())
    EXPECT_EQ(planned.costs_version(), planned.iteration() < kWindow ? 0 : 1) << planned.iteration();
}

// With another, the first would have ended the job.
TEST_F(JobCostsTest, CostsByWhichABatchOfTheJobDoesNotFitAreNotTaken) {
  // A third fit may make its planner when the engine stops, after this function.
  const auto made = std::make_shared<std::atomic<int>>(0);
  planners_->set_preparation_gate([made] { ++*made; });
  const std::shared_ptr<Job> job = Register(Spec());
  FormEpoch(*job, 101);
  v1::SubmitBatchesRequest request = MakeSubmission("job", 0, kWindow);
  // One for each fit.
  for (const int batch : {2, 6})
    request.mutable_batches(batch)->mutable_samples(0)->set_target_tokens(FakeBatchPlanner::kTooLongLater);
  ASSERT_TRUE(job->SubmitBatches(request).ok());
  Feed(job);
  Train(job, 0, kFirstFit, 101);
  while (*made < 2) std::this_thread::yield();
  // When the second fit makes its planner, the first has ended.
  Train(job, kFirstFit, kFirstFit + 8, 101);
  while (*made < 3) std::this_thread::yield();
  EXPECT_EQ(job->Snapshot().costs_size(), 0);
  EXPECT_EQ(job->Status().state(), v1::JOB_STATE_RUNNING);
}

// One that the job takes with the costs of its registration: it trains on, with these.
TEST_F(JobCostsTest, ABatchThatDoesNotFitByFittedCostsBringsBackThoseOfTheRegistration) {
  const auto job = TrainedTo(Spec(), kFirstFit);
  AwaitCosts(*job, 1);
  SubmitAndPlan(job, kWindow, 10);
  SubmitAndPlan(job, kWindow + 1, FakeBatchPlanner::kTooLongLater);
  EXPECT_EQ(VersionOf(job, kWindow), 1);
  EXPECT_EQ(VersionOf(job, kWindow + 1), 2);
  EXPECT_TRUE(job->GetIteration(kWindow + 1)->profile().slow_ranks().empty());
  Train(job, kFirstFit, 2 * kFirstFit, 101);
  EXPECT_EQ(job->Status().state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobCostsTest, APlannerThatWasKilledHoldsNewBatchesToFittedCosts) {
  auto job = TrainedTo(Spec(), kFirstFit);
  AwaitCosts(*job, 1);
  job.reset();
  job = Killed();
  SubmitAndPlan(job, kWindow, FakeBatchPlanner::kTooLongLater);
  EXPECT_EQ(VersionOf(job, kWindow), 2);
}

TEST_F(JobCostsTest, SlowRanksSlowLinksAndLoadsOfExpertsThatTheFittedCostsHaveAreInTheStatus) {
  const auto job = TrainedTo(Spec(), kFirstFit - 1);
  const v1::JobStatus before = job->Status();
  for (const v1::WorkerStatus& worker : before.workers()) EXPECT_EQ(worker.slow_factor(), 0);
  Feed(job);
  Train(job, kFirstFit - 1, kFirstFit, 101);
  AwaitCosts(*job, 1);
  const v1::JobStatus status = job->Status();
  ASSERT_GE(status.workers_size(), 2);
  EXPECT_EQ(status.workers(0).slow_factor(), 0);
  EXPECT_EQ(status.workers(1).slow_factor(), 1.5);
  EXPECT_TRUE(before.slow_links().empty());
  ASSERT_EQ(status.slow_links_size(), 1);
  EXPECT_EQ(status.slow_links(0).from(), 0);
  EXPECT_EQ(status.slow_links(0).to(), 1);
  EXPECT_EQ(status.slow_links(0).factor(), 20);
  EXPECT_TRUE(before.expert_loads().empty());
  ASSERT_EQ(status.expert_loads_size(), 1);
  EXPECT_EQ(status.expert_loads(0).ranks(), 2);
  EXPECT_EQ(status.expert_loads(0).fullest(), 1.25);
}

TEST_F(JobCostsTest, TheStatusSaysWhichCostsHoldAndWhatTheFitWasWorthAlsoAfterARestart) {
  auto job = TrainedTo(Spec(), kFirstFit - 1);
  EXPECT_EQ(job->Status().costs_version(), 0);
  EXPECT_FALSE(job->Status().has_costs_errors());
  Train(job, kFirstFit - 1, kFirstFit, 101);
  AwaitCosts(*job, 1);
  const auto expect_fitted = [&] {
    const v1::JobStatus status = job->Status();
    EXPECT_EQ(status.costs_version(), 1);
    EXPECT_EQ(status.costs_errors().before(), FakeBatchPlannerFactory::kErrorBefore);
    EXPECT_EQ(status.costs_errors().after(), FakeBatchPlannerFactory::kErrorAfter);
  };
  expect_fitted();
  job.reset();
  job = Killed();
  expect_fitted();
  // Costs of the registration were not fitted.
  SubmitAndPlan(job, kWindow, FakeBatchPlanner::kTooLongLater);
  EXPECT_EQ(job->Status().costs_version(), 2);
  EXPECT_FALSE(job->Status().has_costs_errors());
}

class SimulatedJobCostsTest : public JobCostsTest, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Workers, SimulatedJobCostsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "AreSimulated" : "Compute"; });

TEST_P(SimulatedJobCostsTest, ProgramsSayWhatTheJobsOwnProfileDoesWhereWorkersAreSimulated) {
  v1::JobSpec spec = Spec();
  spec.set_simulated(GetParam());
  const auto job = TrainedTo(spec, kFirstFit);
  AwaitCosts(*job, 1);
  Feed(job);
  Reader reader(job, StreamRequest(0, kWindow - 1, 101, job->Status().epoch()));
  const auto before = reader.Next();
  const auto after = reader.Next();
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(before->profile_duration_ns_size(), 0);
  EXPECT_EQ(after->profile_duration_ns_size(), GetParam() ? after->program().instructions_size() : 0);
}

TEST_F(JobCostsTest, ProgramsOfDevicesWithOtherCostsSayWhatTheyTakeFromTheFirstOneOn) {
  v1::JobSpec spec = Spec();
  spec.set_simulated(true);
  spec.mutable_profile()->set_name(std::string(FakeBatchPlanner::kWrongCosts));
  const auto job = TrainedTo(spec, kFirstFit);
  AwaitCosts(*job, 1);
  Feed(job);
  Reader reader(job, StreamRequest(0, kWindow - 1, 101, job->Status().epoch()));
  for (const char* costs : {"registered", "fitted"}) {
    const auto program = reader.Next();
    ASSERT_TRUE(program.has_value());
    EXPECT_EQ(program->profile_duration_ns_size(), program->program().instructions_size()) << costs;
  }
}

TEST_F(JobCostsTest, FewerIterationsAreNotFitted) {
  const auto job = TrainedTo(Spec(), kFirstFit - 1);
  Feed(job);
  EXPECT_EQ(job->Snapshot().costs_size(), 0);
}

TEST_F(JobCostsTest, AJobWithFixedCostsKeepsThem) {
  v1::JobSpec spec = Spec();
  spec.set_fixed_costs(true);
  const auto job = TrainedTo(spec, kFirstFit);
  Feed(job);
  Train(job, kFirstFit, kWindow, 101);
  EXPECT_EQ(job->Snapshot().costs_size(), 0);
  EXPECT_EQ(VersionOf(job, kWindow), 0);
}

TEST_F(JobCostsTest, CostsThatAreAsGoodAsThoseInEffectChangeNothing) {
  planners_->set_calibrates(false);
  const auto job = TrainedTo(Spec(), kFirstFit);
  Feed(job);
  EXPECT_EQ(job->Snapshot().costs_size(), 0);
}

TEST_F(JobCostsTest, APlannerThatWasKilledMakesThePlansOfEveryVersionAgain) {
  auto job = TrainedTo(Spec(), kFirstFit);
  AwaitCosts(*job, 1);
  Feed(job);
  std::vector<std::string> hashes;
  for (uint64_t iteration = 0; iteration < kFirstFit + kWindow; ++iteration) {
    VersionOf(job, iteration);
    hashes.push_back(job->GetIteration(iteration)->plan().content_hash());
  }
  EXPECT_NE(hashes[kWindow].find("costs 1"), std::string::npos);
  const store::v1::JobSnapshot before = job->Snapshot();
  job.reset();

  job = Killed();

  EXPECT_EQ(job->Snapshot().SerializeAsString(), before.SerializeAsString());
  for (uint64_t iteration = 0; iteration < kFirstFit + kWindow; ++iteration) {
    VersionOf(job, iteration);
    EXPECT_EQ(job->GetIteration(iteration)->plan().content_hash(), hashes[iteration]) << iteration;
  }
  EXPECT_EQ(job->Status().failure(), "");
}

// Fits are as far apart as if it had not been.
TEST_F(JobCostsTest, APlannerThatWasKilledLateFitsNoMoreOftenThanBefore) {
  auto job = TrainedThroughFits();
  Feed(job);
  job.reset();
  job = Killed();
  Train(job, 32, 39, 101);
  Feed(job);
  EXPECT_EQ(planners_->fits().size(), kFits.size());
  EXPECT_EQ(job->Snapshot().costs_size(), static_cast<int>(kFits.size()));
}

TEST_F(JobCostsTest, LaterFitsGoOnFromTheVersionBefore) {
  const auto job = TrainedTo(Spec(), kFirstFit);
  AwaitCosts(*job, 1);
  Feed(job);
  Train(job, kFirstFit, 2 * kFirstFit, 101);
  const store::v1::CostsRevised second = AwaitCosts(*job, 2);
  EXPECT_EQ(second.profile().version(), 2);
  EXPECT_EQ(second.measured_before(), 2 * kFirstFit);
  EXPECT_EQ(second.from_iteration(), kFirstFit + kWindow);
}

// The first iteration is slow for reasons of its own. Few iterations say little, so that fits have some of
// those that the one before had.
TEST_F(JobCostsTest, FitsAreMadeOfTheLastIterationsWithoutTheVeryFirst) {
  TrainedThroughFits();
  const auto from_to = [](uint64_t from, uint64_t to) {
    std::vector<uint64_t> iterations(to - from);
    std::iota(iterations.begin(), iterations.end(), from);
    return iterations;
  };
  EXPECT_THAT(planners_->fits(), testing::ElementsAre(from_to(1, 4), from_to(1, 8), from_to(4, 12),
                                                      from_to(8, 16), from_to(8, 24), from_to(16, 32)));
}

}  // namespace
}  // namespace penstock
