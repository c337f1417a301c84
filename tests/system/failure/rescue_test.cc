// Ranks are lost that others hold the same as: the job goes on where it was, from what those hold, without
// any checkpoint in between; and from the checkpoint before where too many are lost at once. What is trained
// is that of a run that was left alone, bit for bit.

#include "worker/runtime/rescue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "tests/support/environment.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// So many samples that an iteration takes far longer than its step and its report, in which a rank that dies
// takes along what nobody else knows.
constexpr size_t kSamplesOfABatch = 96;

class RescuedRunTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kIterations = 60;
  // It cannot finish before the rest is submitted.
  static constexpr uint64_t kSubmittedFirst = kIterations - 4;

  RescuedRunTest() {
    WriteTinyDataset(dataset_, samples_);
    cluster_.StartPlanner();
  }

  // Writes no checkpoint but the last one.
  static v1::JobSpec Job(const std::string& id, uint32_t replicas) {
    v1::JobSpec job = TinyJob();
    job.set_job_id(id);
    job.mutable_mesh()->set_data(replicas);
    job.mutable_training()->set_iterations(kIterations);
    job.set_heartbeat_timeout_ms(4000);
    job.set_look_ahead_window(4096);
    return job;
  }

  WorkerSettings Settings(const std::string& job_id, bool resume) const {
    return {.dataset = dataset_,
            .checkpoint_dir = cluster_.folder().Path(job_id),
            .resume = resume,
            .arguments = arguments_};
  }

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

  std::vector<Figures> Undisturbed(uint32_t replicas) {
    Start(Job("left-alone", replicas));
    std::vector<Figures> figures = Finish("left-alone");
    EXPECT_EQ(figures.size(), kIterations);
    return figures;
  }

  struct Loss {
    // That all ranks had reported just before.
    uint64_t completed = 0;
    // Where the epoch began that got any further.
    uint64_t began = 0;
  };

  // Kills the ranks at once, starts them again and waits until the job has got further.
  Loss Lose(const v1::JobSpec& job, const std::vector<uint32_t>& ranks) {
    const uint64_t epoch = cluster_.Epoch(job.job_id());
    Loss loss = {.completed = cluster_.Completed(job.job_id())};
    for (const uint32_t rank : ranks) cluster_.worker(rank).Signal(SIGKILL);
    for (const uint32_t rank : ranks) cluster_.worker(rank).Stop(absl::ZeroDuration());
    for (const uint32_t rank : ranks)
      cluster_.RestartWorker(job, rank, Settings(job.job_id(), /*resume=*/true));
    cluster_.WaitForIterationAfterEpoch(job.job_id(), epoch);
    loss.began = BeganAt(job.job_id());
    return loss;
  }

  // Of the ranks one that has announced a rescue of the job "lost"; nothing where none does so soon.
  std::optional<uint32_t> AwaitARescueBy(const std::vector<uint32_t>& ranks) {
    const std::string checkpoints = cluster_.folder().Path("lost");
    for (const absl::Time end = absl::Now() + absl::Seconds(5); absl::Now() < end;) {
      for (const uint64_t iteration : PartialCheckpoints(checkpoints)) {
        const std::string folder = PartialCheckpointPath(checkpoints, iteration);
        for (const uint32_t rank : ranks)
          if (std::filesystem::exists(folder + "/rank-" + std::to_string(rank) + ".rescuing")) return rank;
      }
      cluster_.worker(ranks.front()).WaitFor(absl::Milliseconds(1));
    }
    return std::nullopt;
  }

  // The first iteration of the newest epoch.
  uint64_t BeganAt(const std::string& job_id) {
    const std::string log = ReadFile(cluster_.folder().Path("planner.log")).value_or("");
    const std::regex registered("worker registered.*job=" + job_id + " .*first_iteration=(\\d+)");
    uint64_t began = 0;
    for (std::sregex_iterator it(log.begin(), log.end(), registered); it != std::sregex_iterator(); ++it)
      began = std::stoull((*it)[1]);
    return began;
  }

  std::string LogOf(uint32_t rank) const {
    return ReadFile(cluster_.folder().Path("worker-" + std::to_string(rank) + ".log")).value_or("");
  }

  // PENSTOCK_SEED repeats a run.
  const uint32_t seed_ = FromEnvironment<uint32_t>("PENSTOCK_SEED", std::random_device()());
  std::mt19937 random_{seed_};
  std::vector<std::string> arguments_;
  const std::vector<TinySample> samples_ = TinySamples(2 * kSamplesOfABatch);
  const std::vector<v1::Batch> batches_ = TinyBatches(samples_, kSamplesOfABatch, kIterations);
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

TEST_F(RescuedRunTest, TheNextEpochBeginsWhereTheLossHappened) {
  SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed_));
  constexpr int kLosses = 8;
  const std::vector<Figures> expected = Undisturbed(2);
  const v1::JobSpec job = Job("lost", 2);
  Start(job);
  int rescued = 0;
  uint64_t done_again = 0;
  for (int i = 0; i < kLosses; ++i) {
    const uint64_t part = kSubmittedFirst / kLosses;
    cluster_.WaitForIterations(job.job_id(), i * part + 1 + random_() % (part - 2), Cluster::Epochs::kMany);
    const uint32_t rank = random_() % 2;
    const Loss loss = Lose(job, {rank});
    if (HasFatalFailure()) return;
    if (loss.began >= loss.completed) {
      ++rescued;
      continue;
    }
    // It died between its step and its report.
    done_again += loss.completed - loss.began;
    EXPECT_THAT(LogOf(1 - rank), ::testing::ContainsRegex("why=(not_reported|not_sound|incomplete)"));
  }
  RecordProperty("losses", kLosses);
  RecordProperty("rescued", rescued);
  RecordProperty("iterations_done_again", static_cast<int>(done_again));
  EXPECT_GE(rescued, kLosses / 2) << cluster_.AllWorkerLogs();
  EXPECT_EQ(Finish(job.job_id()), expected);
}

TEST_F(RescuedRunTest,
       RanksThatDoNotFollowEachOtherMayBeLostTogetherAndOthersCostWhatWasDoneSinceTheCheckpoint) {
  const std::vector<Figures> expected = Undisturbed(4);
  const v1::JobSpec job = Job("lost", 4);
  Start(job);
  uint64_t newest = 0;
  // Until it did not hit a step or a report.
  for (int i = 0; i < 5 && newest == 0; ++i) {
    cluster_.WaitForIterations(job.job_id(), 4, Cluster::Epochs::kMany);
    const Loss loss = Lose(job, {1, 3});
    if (HasFatalFailure()) return;
    if (loss.began >= loss.completed) newest = loss.began;
  }
  ASSERT_GT(newest, 0u) << cluster_.AllWorkerLogs();
  const auto checkpoint =
      OpenCheckpoint(cluster_.folder().Path(job.job_id()), newest, CheckpointDepth::kContents);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  // Nobody else has the share of rank 2.
  cluster_.WaitForIterations(job.job_id(), newest + 4, Cluster::Epochs::kMany);
  const Loss loss = Lose(job, {1, 2});
  if (HasFatalFailure()) return;
  EXPECT_EQ(loss.began, newest);
  EXPECT_THAT(LogOf(0), HasSubstr("going back to the newest checkpoint"));
  EXPECT_EQ(Finish(job.job_id()), expected);
}

// Nobody holds what ranks 1 and 2 have, so those that are left wait for them in vain; one of them is killed
// meanwhile and cannot take back what it announced.
TEST_F(RescuedRunTest, ARankThatIsKilledAtARescueHoldsUpNobodyForLongerThanThatRescue) {
  const std::vector<Figures> expected = Undisturbed(4);
  const v1::JobSpec job = Job("lost", 4);
  Start(job);
  std::optional<uint32_t> killed_at_it;
  // Until it did not hit a step, after which nobody tries.
  for (int i = 0; i < 5 && !killed_at_it.has_value(); ++i) {
    cluster_.WaitForIterations(job.job_id(), 4, Cluster::Epochs::kMany);
    const uint64_t epoch = cluster_.Epoch(job.job_id());
    const absl::Time began = absl::Now();
    std::vector<uint32_t> lost = {1, 2};
    for (const uint32_t rank : lost) cluster_.worker(rank).Signal(SIGKILL);
    killed_at_it = AwaitARescueBy({0, 3});
    if (killed_at_it.has_value()) lost.push_back(*killed_at_it);
    for (const uint32_t rank : lost) cluster_.worker(rank).Stop(absl::ZeroDuration());
    for (const uint32_t rank : lost)
      cluster_.RestartWorker(job, rank, Settings(job.job_id(), /*resume=*/true));
    cluster_.WaitForIterationAfterEpoch(job.job_id(), epoch);
    if (HasFatalFailure()) return;
    const absl::Duration pause = absl::Now() - began;
    RecordProperty("pause_ms", static_cast<int>(absl::ToInt64Milliseconds(pause)));
    EXPECT_LT(pause, worker::kLongestRescue);
  }
  EXPECT_TRUE(killed_at_it.has_value()) << cluster_.AllWorkerLogs();
  EXPECT_EQ(Finish(job.job_id()), expected);
}

// A replacement that stands by has looked for a checkpoint before there was any, and comes first or last.
TEST_F(RescuedRunTest, AWorkerThatLookedTooEarlyLooksAgainAndNoIterationIsMissing) {
  const std::vector<Figures> expected = Undisturbed(2);
  const v1::JobSpec job = Job("lost", 2);
  Start(job);
  cluster_.WaitForIterations(job.job_id(), 4);
  const std::string log = cluster_.folder().Path("standby.log");
  const auto standby = cluster_.StartWorker(job, 1, Settings(job.job_id(), /*resume=*/true), log);
  ASSERT_NE(standby, nullptr);
  const absl::Time deadline = absl::Now() + Cluster::kDeadline;
  while (!absl::StrContains(ReadFile(log).value_or(""), "not registered yet") && absl::Now() < deadline)
    standby->WaitFor(absl::Milliseconds(5));
  const uint64_t completed = cluster_.Completed(job.job_id());
  const uint64_t epoch = cluster_.Epoch(job.job_id());
  cluster_.worker(1).Stop(absl::ZeroDuration());
  cluster_.WaitForIterationAfterEpoch(job.job_id(), epoch);
  if (HasFatalFailure()) return;
  RecordProperty("completed", static_cast<int>(completed));
  RecordProperty("began", static_cast<int>(BeganAt(job.job_id())));
  cluster_.Submit(job.job_id(), batches_);
  const std::optional<ExitStatus> ended = standby->WaitFor(Cluster::kDeadline);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << ReadFile(log).value_or("");
  EXPECT_EQ(cluster_.FiguresOf(job.job_id()), expected);
}

TEST_F(RescuedRunTest, WithoutARescueTheJobGoesBackToItsNewestCheckpoint) {
  arguments_ = {"--no-rescue"};
  const v1::JobSpec job = Job("lost", 2);
  Start(job);
  cluster_.WaitForIterations(job.job_id(), 4);
  const Loss loss = Lose(job, {1});
  if (HasFatalFailure()) return;
  EXPECT_GE(loss.completed, 4u);
  EXPECT_EQ(loss.began, 0u);
  EXPECT_THAT(LogOf(0), Not(HasSubstr("ranks that are left hold")));
}

}  // namespace
}  // namespace penstock::testing
