// What happens to a training run when something dies: nothing hangs, and everyone says who is to blame.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>

#include "common/process/log_tail.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class FailureTest : public ::testing::Test {
 protected:
  // More than are executed while a test looks.
  static constexpr uint64_t kManyIterations = 600;

  // Workers that end at the first loss, for whoever supervises them to start all of them again.
  static WorkerSettings EndAtOnce() { return {.arguments = {"--max-rejoins=0"}}; }

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

TEST_F(FailureTest, AKilledWorkerEndsAllOthersWhichNameIt) {
  Start(EndlessJob(), kManyIterations, EndAtOnce());
  cluster_.WaitForIterations("tiny", 3);
  cluster_.worker(2).Signal(SIGKILL);
  for (uint32_t rank : {0, 1, 3}) {
    EXPECT_EQ(cluster_.ExpectEnd(rank, absl::Seconds(10)).code, 1) << "rank " << rank;
    EXPECT_THAT(cluster_.WorkerLog(rank), HasSubstr("rank 2")) << "rank " << rank;
  }
  v1::GetJobRequest request;
  request.set_job_id("tiny");
  const absl::StatusOr<v1::GetJobResponse> job = cluster_.client().GetJob(request);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->status().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(job->status().failure(), HasSubstr("rank 2"));
}

TEST_F(FailureTest, AWorkerThatStopsAnsweringIsLostAndNamed) {
  v1::JobSpec job = EndlessJob();
  // Longer than a busy machine holds up a worker that starts.
  job.set_heartbeat_timeout_ms(4000);
  Start(job, kManyIterations, EndAtOnce());
  cluster_.WaitForIterations("tiny", 3);
  cluster_.worker(1).Signal(SIGSTOP);
  for (uint32_t rank : {0, 2, 3}) {
    EXPECT_EQ(cluster_.ExpectEnd(rank, absl::Seconds(30)).code, 1) << "rank " << rank;
    EXPECT_THAT(cluster_.WorkerLog(rank), HasSubstr("rank 1")) << "rank " << rank;
  }
}

TEST_F(FailureTest, AKilledPlannerEndsTheWorkersWhenItDoesNotComeBack) {
  Start(EndlessJob(), kManyIterations, {.arguments = {"--max-rejoins=0", "--planner-timeout=4"}});
  cluster_.WaitForIterations("tiny", 3);
  cluster_.planner().Stop(absl::ZeroDuration());
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(cluster_.ExpectEnd(rank, absl::Seconds(20)).code, 1) << "rank " << rank;
  }
  // Each gives up by itself; whoever does first takes its peers along.
  std::string logs;
  for (uint32_t rank = 0; rank < 4; ++rank) logs += cluster_.WorkerLog(rank);
  EXPECT_THAT(logs, HasSubstr("the planner at 127.0.0.1:"));
}

TEST_F(FailureTest, SigtermEndsEverythingWithinSeconds) {
  Start(EndlessJob(), kManyIterations, EndAtOnce());
  cluster_.WaitForIterations("tiny", 3);
  for (uint32_t rank = 0; rank < 4; ++rank) cluster_.worker(rank).Signal(SIGTERM);
  cluster_.planner().Signal(SIGTERM);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(cluster_.ExpectEnd(rank, absl::Seconds(10)).code, 1) << "rank " << rank;
    EXPECT_THAT(cluster_.WorkerLog(rank), AnyOf(HasSubstr("SIGTERM"), HasSubstr("rank "))) << "rank " << rank;
  }
  const std::optional<ExitStatus> planner = cluster_.planner().WaitFor(absl::Seconds(40));
  ASSERT_TRUE(planner.has_value());
  EXPECT_EQ(planner->code, 0);
}

TEST_F(FailureTest, SigtermToOneWorkerEndsTheOthersWhichNameIt) {
  Start(EndlessJob(), kManyIterations, EndAtOnce());
  cluster_.WaitForIterations("tiny", 3);
  cluster_.worker(3).Signal(SIGTERM);
  EXPECT_EQ(cluster_.ExpectEnd(3, absl::Seconds(10)).code, 1);
  EXPECT_THAT(cluster_.WorkerLog(3), HasSubstr("SIGTERM"));
  for (uint32_t rank : {0, 1, 2}) {
    EXPECT_EQ(cluster_.ExpectEnd(rank, absl::Seconds(10)).code, 1) << "rank " << rank;
    EXPECT_THAT(cluster_.WorkerLog(rank), HasSubstr("rank 3")) << "rank " << rank;
  }
}

TEST_F(FailureTest, AnOldIncarnationIsAborted) {
  Start(EndlessJob(), kManyIterations, EndAtOnce());
  cluster_.WaitForIterations("tiny", 1);
  v1::HeartbeatRequest ghost;
  ghost.set_job_id("tiny");
  ghost.set_rank(0);
  ghost.set_incarnation(12345);
  ghost.set_epoch(1);
  EXPECT_EQ(cluster_.client().Heartbeat(ghost).status().code(), absl::StatusCode::kAborted);

  v1::StreamProgramsRequest stream;
  stream.set_job_id("tiny");
  stream.set_rank(0);
  stream.set_incarnation(12345);
  stream.set_epoch(1);
  EXPECT_EQ(cluster_.client().StreamPrograms(stream, absl::Seconds(10))->Next().status().code(),
            absl::StatusCode::kAborted);
}

TEST_F(FailureTest, AWorkerOfATakenRankIsRefused) {
  const v1::JobSpec job = EndlessJob();
  Start(job, kManyIterations, EndAtOnce());
  cluster_.WaitForIterations("tiny", 1);
  const std::string log = cluster_.folder().Path("intruder.log");
  auto intruder =
      cluster_.StartWorker(job, 0, {.dataset = dataset_, .arguments = {"--planner-timeout=2"}}, log);
  ASSERT_NE(intruder, nullptr);
  const std::optional<ExitStatus> ended = intruder->WaitFor(absl::Seconds(20));
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 1);
  EXPECT_THAT(LogTail(log, 5), HasSubstr("ALREADY_EXISTS"));
}

}  // namespace
}  // namespace penstock::testing
