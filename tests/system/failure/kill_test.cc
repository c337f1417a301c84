// Processes of a run that are killed again and again while four workers train. The planner: workers reconnect
// and go on. A worker: the others join a new epoch with the one that takes its place. The result is that of a
// run that was left alone, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/environment.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

constexpr int kKills = 6;
constexpr uint64_t kCheckpointInterval = 8;

class KillTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kIterations = 120;
  static constexpr uint64_t kSubmittedFirst = kIterations - 4;

  KillTest() : batches_(TinyBatches(samples_, 12, kIterations)) { WriteTinyDataset(dataset_, samples_); }

  static v1::JobSpec Job(const std::string& id) {
    v1::JobSpec job = TinyJobOnFourRanks(id, kIterations);
    job.mutable_training()->set_checkpoint_interval(kCheckpointInterval);
    job.set_look_ahead_window(4096);
    return job;
  }

  WorkerSettings Settings(const std::string& job_id, bool resume) const {
    return {.dataset = dataset_, .checkpoint_dir = cluster_.folder().Path(job_id), .resume = resume};
  }

  // With its first batches, from which it cannot finish before the last kill, however late that comes.
  void Start(const v1::JobSpec& job) {
    cluster_.Register(job);
    cluster_.Submit(job.job_id(), {batches_.begin(), batches_.begin() + kSubmittedFirst});
    cluster_.StartWorkers(job, Settings(job.job_id(), /*resume=*/false));
  }

  std::vector<Figures> Finish(const std::string& job_id) {
    cluster_.Submit(job_id, batches_);
    cluster_.ExpectAllFinish();
    return cluster_.FiguresOf(job_id);
  }

  // Of a run that nobody disturbs.
  std::vector<Figures> Undisturbed() {
    cluster_.StartPlanner();
    Start(Job("left-alone"));
    std::vector<Figures> figures = Finish("left-alone");
    EXPECT_EQ(figures.size(), kIterations);
    return figures;
  }

  std::vector<pid_t> Pids() {
    std::vector<pid_t> pids;
    for (uint32_t rank = 0; rank < cluster_.size(); ++rank) pids.push_back(cluster_.worker(rank).pid());
    return pids;
  }

  // A random moment of the part of the job that belongs to a kill.
  void WaitForMomentOf(int kill, const std::string& job_id) {
    const uint64_t part = kIterations / kKills;
    cluster_.WaitForIterations(job_id, kill * part + random_() % (part - 4), Cluster::Epochs::kMany);
  }

  // Milliseconds from the kill until one more iteration is completed.
  int64_t KillPlanner(const std::string& job_id) {
    const uint64_t completed = cluster_.Completed(job_id);
    const absl::Time killed = absl::Now();
    cluster_.planner().Stop(absl::ZeroDuration());
    cluster_.StartPlanner();
    cluster_.WaitForIterations(job_id, std::min(completed + 1, kSubmittedFirst));
    return absl::ToInt64Milliseconds(absl::Now() - killed);
  }

  // Milliseconds from the kill until the next epoch has completed an iteration.
  int64_t KillWorker(const std::string& job_id, uint32_t rank, bool planner_too) {
    const uint64_t epoch = cluster_.Epoch(job_id);
    const absl::Time killed = absl::Now();
    cluster_.worker(rank).Stop(absl::ZeroDuration());
    if (planner_too) {
      cluster_.planner().Stop(absl::ZeroDuration());
      cluster_.StartPlanner();
    }
    cluster_.RestartWorker(Job(job_id), rank, Settings(job_id, /*resume=*/true));
    cluster_.WaitForIterationAfterEpoch(job_id, epoch);
    return absl::ToInt64Milliseconds(absl::Now() - killed);
  }

  void RecordPauses(const std::string& name, std::vector<int64_t> pauses_ms) {
    std::sort(pauses_ms.begin(), pauses_ms.end());
    RecordProperty(name + "_median_pause_ms", static_cast<int>(pauses_ms[kKills / 2]));
    RecordProperty(name + "_longest_pause_ms", static_cast<int>(pauses_ms.back()));
    // Room for a busy machine, and less than any time-out.
    EXPECT_LT(pauses_ms[kKills / 2], 8000);
  }

  // PENSTOCK_SEED repeats a run.
  const uint32_t seed_ = FromEnvironment<uint32_t>("PENSTOCK_SEED", std::random_device()());
  std::mt19937 random_{seed_};
  const std::vector<TinySample> samples_ = TinySamples(36);
  const std::vector<v1::Batch> batches_;
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

// One test: the run to compare with takes as long as the others.
TEST_F(KillTest, KillsOfThePlannerAndOfWorkersChangeNothingAndEndNoHealthyWorker) {
  SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed_));
  const std::vector<Figures> expected = Undisturbed();
  Start(Job("planner-killed"));
  const std::vector<pid_t> started = Pids();
  std::vector<int64_t> planner_pauses_ms;
  for (int kill = 0; kill < kKills; ++kill) {
    WaitForMomentOf(kill, "planner-killed");
    planner_pauses_ms.push_back(KillPlanner("planner-killed"));
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(Pids(), started);
  EXPECT_EQ(Finish("planner-killed"), expected);
  EXPECT_EQ(cluster_.Epoch("planner-killed"), 1);
  RecordPauses("planner", planner_pauses_ms);

  Start(Job("workers-killed"));
  std::vector<int64_t> worker_pauses_ms;
  for (int kill = 0; kill < kKills; ++kill) {
    WaitForMomentOf(kill, "workers-killed");
    std::vector<pid_t> pids = Pids();
    const uint32_t rank = random_() % pids.size();
    // Every third time both go.
    worker_pauses_ms.push_back(KillWorker("workers-killed", rank, /*planner_too=*/kill % 3 == 2));
    if (HasFatalFailure()) return;
    pids[rank] = cluster_.worker(rank).pid();
    EXPECT_EQ(Pids(), pids);
    for (uint32_t other = 0; other < cluster_.size(); ++other) {
      EXPECT_FALSE(cluster_.worker(other).Poll().has_value())
          << "rank " << other << cluster_.WorkerLog(other);
    }
  }
  EXPECT_EQ(Finish("workers-killed"), expected);
  RecordPauses("worker", worker_pauses_ms);
}

}  // namespace
}  // namespace penstock::testing
