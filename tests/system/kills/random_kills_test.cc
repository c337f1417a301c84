// Planner, workers and feeder are killed or stopped, the database is lost, and the disks of the store and of
// checkpoints are full, at random moments, in an iteration, a checkpoint or a restart. What has ended is
// started again as an orchestrator would. Afterwards the job's history is that of a run which was left alone.
//
// Even seeds have PostgreSQL for a store, and lose it; odd ones, and machines without PostgreSQL, SQLite on a
// disk of its own. Disks take root; others have full ones not among the disturbances.
//
// PENSTOCK_KILLS sets the number of disturbances (6), PENSTOCK_SEED repeats a run. Pauses are properties of
// the test's result: from a disturbance until, after its end, all ranks have done two iterations more.

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
#include "tests/support/small_disk.h"
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
// Of a database, or of room on a disk.
constexpr absl::Duration kLongestLoss = absl::Seconds(4);
constexpr size_t kDiskBytes = 64 << 20;
constexpr char kJob[] = "disturbed";

enum class Victim { kPlanner, kWorker, kFeeder, kStore, kCheckpointDisk };

std::string NameOf(Victim victim) {
  constexpr const char* kNames[] = {"planner", "worker", "feeder", "store", "checkpoint disk"};
  return kNames[static_cast<int>(victim)];
}

// One that is over or not.
struct Disturbance {
  std::string name;
  absl::Time begin;
  // Iterations that were done at least since its end; nothing: it is not over.
  std::optional<uint64_t> completed = {};
  std::optional<absl::Duration> pause = {};
};

class RandomKillsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string store = absl::StrCat("sqlite:", store_folder_.Path("planner.db"));
    if (seed_ % 2 == 0 && !PostgresServer::WhyNot().has_value()) {
      auto database = PostgresServer::Start();
      ASSERT_THAT(database, IsOk());
      database_ = *std::move(database);
      store = database_->Url(database_->NewDatabase());
    } else if (auto disk = SmallDisk::Mount(store_folder_.path(), kDiskBytes); disk.ok()) {
      store_disk_ = *std::move(disk);
    }
    if (auto disk = SmallDisk::Mount(checkpoint_folder_.path(), kDiskBytes); disk.ok())
      checkpoint_disk_ = *std::move(disk);
    if (database_ != nullptr || store_disk_ != nullptr) victims_.push_back(Victim::kStore);
    if (checkpoint_disk_ != nullptr) victims_.push_back(Victim::kCheckpointDisk);
    cluster_.emplace(ClusterOptions{.store = store});
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
            .checkpoint_dir = checkpoint_folder_.Path(id),
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
  // Time goes by; meanwhile it is seen to that no iteration has another plan than before, and when pauses
  // end.
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
    NoteCompleted(job->status().completed_iteration());
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

  // Fewer than before, where an epoch began with a checkpoint.
  void NoteCompleted(uint64_t completed) {
    for (Disturbance& disturbance : disturbances_) {
      if (disturbance.pause.has_value() || !disturbance.completed.has_value()) continue;
      disturbance.completed = std::min(*disturbance.completed, completed);
      if (completed >= *disturbance.completed + 2 || completed == iterations_)
        disturbance.pause = absl::Now() - disturbance.begin;
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
      case Victim::kStore:
        if (database_ == nullptr) return FillFor(*store_disk_);
        database_->Kill();
        Pass(Random(kLongestLoss));
        ASSERT_THAT(database_->Restart(), IsOk());
        return;
      case Victim::kCheckpointDisk:
        return FillFor(*checkpoint_disk_);
    }
  }

  void FillFor(SmallDisk& disk) {
    disk.Fill();
    Pass(Random(kLongestLoss));
    disk.MakeRoom();
  }

  // Stands still for a while.
  void Stop(ChildProcess& process) {
    process.Signal(SIGSTOP);
    Pass(Random(kLongestStop));
    process.Signal(SIGCONT);
  }

  // One of them killed, stopped, lost or full.
  void Disturb() {
    const Victim victim = victims_[random_() % victims_.size()];
    const bool is_process = victim != Victim::kStore && victim != Victim::kCheckpointDisk;
    const bool stops = is_process && random_() % 3 == 0;
    disturbances_.push_back({.name = NameOf(victim) + (stops ? " stopped" : ""), .begin = absl::Now()});
    if (stops) {
      Stop(victim == Victim::kPlanner  ? cluster_->planner()
           : victim == Victim::kFeeder ? *feeder_
                                       : cluster_->worker(random_() % cluster_->size()));
    } else {
      Kill(victim);
    }
    disturbances_.back().completed = iterations_;
  }

  // "planner 312 ms, store 2100 ms", and the median and the longest of all.
  void RecordPauses() {
    std::vector<int64_t> pauses;
    std::vector<std::string> named;
    for (const Disturbance& disturbance : disturbances_) {
      ASSERT_TRUE(disturbance.pause.has_value()) << disturbance.name;
      pauses.push_back(absl::ToInt64Milliseconds(*disturbance.pause));
      named.push_back(absl::StrCat(disturbance.name, " ", pauses.back(), " ms"));
    }
    std::ranges::sort(pauses);
    RecordProperty("store", database_ != nullptr ? "postgres" : "sqlite");
    RecordProperty("pauses", absl::StrJoin(named, ", "));
    RecordProperty("median_pause_ms", static_cast<int>(pauses[pauses.size() / 2]));
    RecordProperty("longest_pause_ms", static_cast<int>(pauses.back()));
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
  // First, so that they are removed after the processes have ended.
  const TemporaryFolder store_folder_;
  const TemporaryFolder checkpoint_folder_;
  std::unique_ptr<SmallDisk> store_disk_;
  std::unique_ptr<SmallDisk> checkpoint_disk_;
  std::unique_ptr<PostgresServer> database_;
  std::vector<Victim> victims_ = {Victim::kPlanner, Victim::kWorker, Victim::kFeeder};
  std::optional<Cluster> cluster_;
  std::string dataset_;
  std::unique_ptr<ChildProcess> feeder_;
  // Content hashes by iteration.
  std::map<uint64_t, std::string> plans_;
  std::vector<Disturbance> disturbances_;
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
  NoteCompleted(cluster_->Completed(kJob));
  RecordPauses();
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
