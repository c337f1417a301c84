// A planner that is killed again and again while four workers train: they reconnect and go on, and the result
// is that of a run that was left alone, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

constexpr uint64_t kIterations = 240;
constexpr int kKills = 6;

// What an iteration came to; equal only where every bit is.
struct Figures {
  uint64_t iteration = 0;
  double loss = 0;
  double norm = 0;
  bool operator==(const Figures&) const = default;
};

class PlannerKillTest : public ::testing::Test {
 protected:
  PlannerKillTest() : batches_(TinyBatches(samples_, 12, kIterations)) {
    WriteTinyDataset(dataset_, samples_);
    // PENSTOCK_SEED repeats a run.
    const char* given = std::getenv("PENSTOCK_SEED");
    if (given == nullptr || !absl::SimpleAtoi(given, &seed_)) seed_ = std::random_device()();
    random_.seed(seed_);
  }

  static v1::JobSpec Job(const std::string& id) {
    v1::JobSpec job = TinyJob();
    job.set_job_id(id);
    job.mutable_mesh()->set_pipeline(2);
    job.mutable_mesh()->set_data(2);
    job.mutable_training()->set_iterations(kIterations);
    job.set_look_ahead_window(4096);
    return job;
  }

  void Start(const v1::JobSpec& job) {
    cluster_.Register(job);
    cluster_.Submit(job.job_id(), batches_);
    cluster_.StartWorkers(job, {.dataset = dataset_});
  }

  std::vector<Figures> FiguresOf(const std::string& job_id) {
    std::vector<Figures> figures;
    for (const v1::IterationSummary& summary : cluster_.Summaries(job_id)) {
      figures.push_back({summary.iteration(), summary.loss(), summary.gradient_norm()});
    }
    return figures;
  }

  // Milliseconds from the kill until one more iteration is completed.
  int64_t KillPlanner(uint64_t completed) {
    const absl::Time killed = absl::Now();
    cluster_.planner().Signal(SIGKILL);
    EXPECT_TRUE(cluster_.planner().WaitFor(absl::Seconds(5)).has_value());
    cluster_.StartPlanner();
    cluster_.WaitForIterations("killed", completed + 1);
    return absl::ToInt64Milliseconds(absl::Now() - killed);
  }

  uint32_t seed_ = 0;
  std::mt19937 random_;
  const std::vector<TinySample> samples_ = TinySamples(36);
  const std::vector<v1::Batch> batches_;
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

TEST_F(PlannerKillTest, KillsOfThePlannerChangeNothing) {
  SCOPED_TRACE("PENSTOCK_SEED=" + std::to_string(seed_));
  cluster_.StartPlanner();
  Start(Job("left-alone"));
  cluster_.ExpectAllFinish();
  const std::vector<Figures> expected = FiguresOf("left-alone");
  ASSERT_EQ(expected.size(), kIterations);

  Start(Job("killed"));
  std::vector<int64_t> pauses_ms;
  for (int kill = 0; kill < kKills; ++kill) {
    const uint64_t completed = kill * (kIterations / kKills) + random_() % (kIterations / kKills - 4);
    cluster_.WaitForIterations("killed", completed);
    pauses_ms.push_back(KillPlanner(std::max(completed, cluster_.Completed("killed"))));
    if (HasFatalFailure()) return;
  }
  cluster_.ExpectAllFinish();

  EXPECT_EQ(FiguresOf("killed"), expected);
  std::sort(pauses_ms.begin(), pauses_ms.end());
  RecordProperty("median_pause_ms", static_cast<int>(pauses_ms[kKills / 2]));
  RecordProperty("longest_pause_ms", static_cast<int>(pauses_ms.back()));
  // The workers gave up after eight seconds; what is left is room for a busy machine.
  EXPECT_LT(pauses_ms[kKills / 2], 8000);
}

}  // namespace
}  // namespace penstock::testing
