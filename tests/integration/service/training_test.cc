// A job from its registration to its end, with workers that speak gRPC.
#include <thread>

#include "tests/integration/service/fake_worker.h"
#include "tests/integration/service/planner_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TrainingTest : public PlannerFixture {
 protected:
  v1::GetJobResponse Get(const std::string& job_id) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    auto response = client_->GetJob(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return *response;
  }
};

TEST_F(TrainingTest, AJobRunsFromRegistrationToItsEnd) {
  v1::JobSpec job = MakeJob("job", 2, 2);
  job.set_heartbeat_timeout_ms(5000);
  job.mutable_training()->set_iterations(6);
  Register(job);
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 6)).ok());

  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (uint64_t i = 0; i < 4; ++i) workers.push_back(std::make_unique<FakeWorker>(address(), "job", 100 + i));
  std::vector<absl::Status> ends(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      ends[i] = workers[i]->Register();
      if (!ends[i].ok()) return;
      workers[i]->StartHeartbeats();
      ends[i] = workers[i]->Work();
    });
  }
  for (std::thread& thread : threads) thread.join();

  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(ends[i].ok()) << ends[i];
    EXPECT_THAT(workers[i]->done(), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_EQ(workers[i]->Heartbeat("", /*leaving=*/true)->state(), v1::EPOCH_STATE_FINISHED);
  }
  const v1::GetJobResponse end = Get("job");
  EXPECT_EQ(end.status().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(end.status().completed_iteration(), 6);
  EXPECT_EQ(end.status().workers_size(), 0);
  ASSERT_EQ(end.iterations_size(), 6);
  EXPECT_DOUBLE_EQ(end.iterations(0).loss(), 4 * 0.5);
  EXPECT_EQ(end.iterations(0).measured_ns(), 3'000'000);
  EXPECT_DOUBLE_EQ(end.iterations(0).predicted_bubble(), 0.5);
  const std::string metrics = server_->metrics().Text();
  EXPECT_THAT(metrics, HasSubstr("penstock_tokens_total{kind=\"real\"} 600"));
  EXPECT_THAT(metrics, HasSubstr("penstock_job_iterations_total{training_job=\"job\"} 6\n"));
  EXPECT_THAT(metrics, HasSubstr("penstock_rpcs_total{code=\"OK\",method=\"ReportIteration\"} 24\n"));
  EXPECT_THAT(metrics, HasSubstr("penstock_rpc_seconds_count{method=\"ReportIteration\"} 24\n"));
  EXPECT_THAT(metrics, HasSubstr("penstock_rpcs_total{code=\"OK\",method=\"StreamPrograms\"} 4\n"));
  EXPECT_THAT(metrics, testing::ContainsRegex("process_resident_memory_bytes [1-9]"));
  EXPECT_THAT(metrics, testing::ContainsRegex("process_cpu_seconds_total [0-9.e-]+\n"));
  EXPECT_THAT(metrics, testing::ContainsRegex("penstock_build_info[{]commit=\"[0-9a-z-]+\",program="
                                              "\"penstock-planner\",version=\"[0-9.]+\"[}] 1"));
}

TEST_F(TrainingTest, ALostWorkerFailsTheEpochAndANewOneGoesOnFromTheCheckpoint) {
  v1::JobSpec job = MakeJob("job");
  job.set_heartbeat_timeout_ms(3000);
  job.mutable_training()->set_iterations(8);
  Register(job);
  ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 8)).ok());
  FakeWorker first(address(), "job", 1), second(address(), "job", 2);
  for (FakeWorker* worker : {&first, &second}) {
    ASSERT_TRUE(worker->Register().ok());
    worker->StartHeartbeats();
    ASSERT_TRUE(worker->Work(0, 5).ok());
  }

  second.StopHeartbeats();
  const absl::Status end = first.Work(5);

  EXPECT_THAT(end, Fails(absl::StatusCode::kFailedPrecondition, "rank 1 (127.0.0.1) was lost"));
  EXPECT_THAT(first.Heartbeat()->failure(), HasSubstr("rank 1 (127.0.0.1) was lost"));
  EXPECT_EQ(Get("job").status().state(), v1::JOB_STATE_FAILED);

  first.StopHeartbeats();
  FakeWorker third(address(), "job", 3), fourth(address(), "job", 4);
  for (FakeWorker* worker : {&third, &fourth}) {
    ASSERT_TRUE(worker->Register(-1, /*first_iteration=*/4).ok());
    worker->StartHeartbeats();
  }
  EXPECT_THAT(first.Heartbeat(), Fails(absl::StatusCode::kAborted, "epoch 1 is stale"));
  ASSERT_TRUE(third.Work(4, 4).ok());
  ASSERT_TRUE(fourth.Work(4).ok());
  EXPECT_THAT(fourth.done(), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(Get("job").status().state(), v1::JOB_STATE_FINISHED);
  EXPECT_EQ(Get("job").iterations_size(), 8);
}

}  // namespace
}  // namespace penstock
