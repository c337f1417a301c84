// Planner, workers, feeder and database are killed or stopped at random moments, in an iteration, a
// checkpoint or a restart, and are started again as an orchestrator would. Afterwards the job's history is
// that of a run which was left alone.
//
// PENSTOCK_KILLS sets the number of disturbances (6), PENSTOCK_SEED repeats a run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/support/environment.h"
#include "tests/support/postgres_server.h"
#include "tests/support/status_matchers.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

constexpr size_t kBatch = 12;
constexpr uint64_t kCheckpointInterval = 7;
// Iterations for each disturbance, so that the training is not over before the last.
constexpr uint64_t kIterationsEach = 25;
constexpr absl::Duration kLongestPause = absl::Milliseconds(1500);
constexpr absl::Duration kLongestDeath = absl::Milliseconds(500);
constexpr absl::Duration kLongestStop = absl::Milliseconds(2500);
constexpr char kJob[] = "disturbed";

enum class Victim { kPlanner, kWorker, kFeeder, kDatabase };

class RandomKillsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = PostgresServer::WhyNot()) GTEST_SKIP() << *reason;
    auto database = PostgresServer::Start();
    ASSERT_THAT(database, IsOk());
    database_ = *std::move(database);
    cluster_.emplace(ClusterOptions{.store = database_->Url(database_->NewDatabase())});
    dataset_ = cluster_->folder().Path("data");
    WriteTinyDataset(dataset_, samples_);
    cluster_->StartPlanner();
  }

  v1::JobSpec Job(const std::string& id) const {
    v1::JobSpec job = TinyJobOnFourRanks(id, iterations_);
    job.mutable_training()->set_checkpoint_interval(kCheckpointInterval);
    job.set_heartbeat_timeout_ms(1500);
    return job;
  }

  WorkerSettings Settings(const std::string& id) const {
    return {.dataset = dataset_,
            .checkpoint_dir = cluster_->folder().Path(id),
            .resume = true,
            .arguments = {"--max-rejoins=1000", "--planner-timeout=60"}};
  }

  void StartFeeder(const std::string& id) {
    auto feeder = ChildProcess::Start(
        {.arguments = {PENSTOCK_TINY_FEEDER, cluster_->planner_address(), id, absl::StrCat(samples_.size()),
                       absl::StrCat(kBatch), absl::StrCat(iterations_)},
         .log_path = cluster_->folder().Path("feeder.log")});
    ASSERT_THAT(feeder, IsOk());
    feeder_ = *std::move(feeder);
  }

  void Start(const std::string& id) {
    cluster_->Register(Job(id));
    StartFeeder(id);
    cluster_->StartWorkers(Job(id), Settings(id));
  }

  // Far more than they take.
  absl::Duration AllIterations() const {
    return Cluster::kDeadline + static_cast<double>(iterations_) * absl::Milliseconds(300);
  }

  absl::Duration Random(absl::Duration most) {
    return std::uniform_real_distribution<double>(0, 1)(random_) * most;
  }
  // Time goes by; meanwhile it is seen to that no iteration has another plan than before.
  void Pass(absl::Duration time) {
    for (const absl::Time end = absl::Now() + time; absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(20))) {
      LookAtPlans();
    }
  }

  // Plans that the planner holds now are those that were seen before.
  void LookAtPlans() {
    v1::GetJobRequest ask;
    ask.set_job_id(kJob);
    ask.set_from_iteration(iterations_);
    const auto job = cluster_->client().GetJob(ask, absl::Milliseconds(200));
    if (!job.ok()) return;  // it is away
    for (uint64_t i = job->status().completed_iteration(); i < job->status().planned_iteration(); ++i) {
      v1::GetIterationRequest request;
      request.set_job_id(kJob);
      request.set_iteration(i);
      const auto iteration = cluster_->client().GetIteration(request, absl::Milliseconds(200));
      if (!iteration.ok()) return;
      const auto [seen, is_new] = plans_.emplace(i, iteration->plan().content_hash());
      EXPECT_EQ(seen->second, iteration->plan().content_hash()) << "iteration " << i << " has two plans";
    }
  }

  void Kill(Victim victim) {
    const int rank = static_cast<int>(random_() % cluster_->size());
    const auto end = [&](ChildProcess& process) {
      process.Signal(SIGKILL);
      ASSERT_TRUE(process.WaitFor(absl::Seconds(10)).has_value());
    };
    switch (victim) {
      case Victim::kPlanner:
        end(cluster_->planner());
        Pass(Random(kLongestDeath));
        return cluster_->StartPlanner();
      case Victim::kWorker:
        end(cluster_->worker(rank));
        Pass(Random(kLongestDeath));
        return cluster_->RestartWorker(Job(kJob), rank, Settings(kJob));
      case Victim::kFeeder:
        end(*feeder_);
        Pass(Random(kLongestDeath));
        return StartFeeder(kJob);
      case Victim::kDatabase:
        database_->Kill();
        Pass(Random(kLongestDeath));
        ASSERT_THAT(database_->Restart(), IsOk());
    }
  }

  // Stands still for a while.
  void Stop(ChildProcess& process) {
    process.Signal(SIGSTOP);
    Pass(Random(kLongestStop));
    process.Signal(SIGCONT);
  }

  // One of planner, workers, feeder and database, killed or stopped.
  void Disturb() {
    const auto victim = static_cast<Victim>(random_() % 4);
    if (victim == Victim::kDatabase || random_() % 3 != 0) return Kill(victim);
    Stop(victim == Victim::kPlanner  ? cluster_->planner()
         : victim == Victim::kFeeder ? *feeder_
                                     : cluster_->worker(random_() % cluster_->size()));
  }

  // An orchestrator starts again what gave up by itself.
  void RestartWhatEnded() {
    for (uint32_t rank = 0; rank < cluster_->size(); ++rank) {
      const std::optional<ExitStatus> ended = cluster_->worker(rank).Poll();
      if (ended.has_value() && !ended->ok()) cluster_->RestartWorker(Job(kJob), rank, Settings(kJob));
    }
    const std::optional<ExitStatus> feeder = feeder_->Poll();
    if (feeder.has_value() && !feeder->ok()) StartFeeder(kJob);
    if (cluster_->planner().Poll().has_value()) cluster_->StartPlanner();
  }

  const int kills_ = FromEnvironment("PENSTOCK_KILLS", 6);
  const uint64_t iterations_ = kIterationsEach * static_cast<uint64_t>(kills_);
  const uint32_t seed_ = FromEnvironment<uint32_t>("PENSTOCK_SEED", std::random_device()());
  std::mt19937 random_{seed_};
  // An epoch: every sample is in one iteration.
  const std::vector<TinySample> samples_ = TinySamples(kBatch * iterations_);
  std::unique_ptr<PostgresServer> database_;
  std::optional<Cluster> cluster_;
  std::string dataset_;
  std::unique_ptr<ChildProcess> feeder_;
  // Content hashes by iteration.
  std::map<uint64_t, std::string> plans_;
};

TEST_F(RandomKillsTest, LeaveTheHistoryOfARunThatWasLeftAlone) {
  SCOPED_TRACE(absl::StrCat("PENSTOCK_KILLS=", kills_, " PENSTOCK_SEED=", seed_));
  RecordProperty("seed", static_cast<int>(seed_));
  Start(kJob);
  cluster_->WaitUntilRunning(kJob);
  for (int kill = 0; kill < kills_; ++kill) {
    Pass(Random(kLongestPause));
    RestartWhatEnded();
    Disturb();
    if (HasFatalFailure()) return;
  }
  const absl::Time calm = absl::Now();
  while (cluster_->Completed(kJob) < iterations_ && absl::Now() - calm < AllIterations()) {
    RestartWhatEnded();
    Pass(absl::Milliseconds(100));
  }
  cluster_->ExpectAllFinish();
  const std::optional<ExitStatus> fed = feeder_->WaitFor(absl::Seconds(10));
  EXPECT_TRUE(fed.has_value() && fed->ok()) << cluster_->folder().Read("feeder.log");
  const std::vector<Figures> disturbed = cluster_->FiguresOf(kJob);

  Start("left-alone");
  cluster_->ExpectAllFinish(AllIterations());
  ASSERT_EQ(disturbed.size(), iterations_) << "each iteration is in the history once";
  EXPECT_EQ(disturbed, cluster_->FiguresOf("left-alone"));
  EXPECT_TRUE(cluster_->planner().Stop(absl::Seconds(10)).ok());
}

}  // namespace
}  // namespace penstock::testing
