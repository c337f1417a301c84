// What happens to a training run when something dies: nothing hangs, and everyone says who is to blame.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class FailureTest : public ::testing::Test {
 protected:
  // A job of 2 stages x 2 replicas that trains for longer than any test waits.
  static v1::JobSpec EndlessJob() {
    v1::JobSpec job = TinyJob();
    job.mutable_mesh()->set_pipeline(2);
    job.mutable_mesh()->set_data(2);
    job.mutable_training()->clear_iterations();
    job.set_look_ahead_window(4096);
    return job;
  }

  void Start(const v1::JobSpec& job, uint64_t iterations, WorkerSettings settings = {}) {
    WriteTinyDataset(dataset_, samples_);
    settings.dataset = dataset_;
    cluster_.StartPlanner();
    cluster_.Register(job);
    cluster_.Submit(job.job_id(), TinyBatches(samples_, 12, iterations));
    cluster_.StartWorkers(job, settings);
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  Cluster cluster_;
  const std::string dataset_ = cluster_.folder().Path("data");
};

TEST_F(FailureTest, WorkersFinishAJobInOrder) {
  v1::JobSpec job = EndlessJob();
  job.mutable_training()->set_iterations(3);
  Start(job, 3);
  cluster_.ExpectAllFinish();
  const std::vector<v1::IterationSummary> summaries = cluster_.Summaries(job.job_id());
  ASSERT_EQ(summaries.size(), 3u);
  for (const auto& s : summaries) std::cout << s.ShortDebugString() << "\n";
  EXPECT_NEAR(summaries[0].loss(), std::log(29), 0.2);
}

}  // namespace
}  // namespace penstock::testing
