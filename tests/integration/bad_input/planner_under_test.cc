#include "tests/integration/bad_input/planner_under_test.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/status/status_macros.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "penstock/client/planner_client.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

constexpr uint64_t kIterations = 4;

v1::JobSpec Named(v1::JobSpec job, const std::string& id) {
  job.set_job_id(id);
  return job;
}

v1::JobSpec Gpt(const std::string& id) { return Named(core::GptJob(2, 1, v1::POLICY_DYNAMIC), id); }

std::map<std::string, std::unique_ptr<google::protobuf::Message>> MakeValidRequests() {
  std::map<std::string, std::unique_ptr<google::protobuf::Message>> requests;
  const auto add = [&]<typename Request>(const std::string& name, Request request) {
    requests[name] = std::make_unique<Request>(std::move(request));
  };
  const auto of_job = [&]<typename Request>(const std::string& name, Request request) {
    request.set_job_id("job");
    add(name, std::move(request));
  };
  v1::RegisterJobRequest registration;
  *registration.mutable_job() = Gpt("other");
  add("RegisterJob gpt", registration);
  *registration.mutable_job() = Named(core::T5Job(2, 1, v1::POLICY_DYNAMIC), "other");
  add("RegisterJob t5", registration);
  v1::PlanBatchRequest plan;
  *plan.mutable_batch() = MakeBatch(9);
  of_job("PlanBatch job", plan);
  *plan.mutable_job() = Gpt("other");
  add("PlanBatch gpt", plan);
  add("SubmitBatches", MakeSubmission("job", kIterations, kIterations + 2));
  add("RegisterWorker", MakeRegistration(7, /*rank=*/1));
  add("Heartbeat", MakeHeartbeat(/*rank=*/0, /*incarnation=*/1, /*epoch=*/1));
  add("ReportIteration", MakeReport(/*rank=*/0, /*iteration=*/0, /*incarnation=*/1, /*epoch=*/1));
  v1::StreamProgramsRequest stream;
  stream.set_incarnation(1);
  stream.set_epoch(1);
  of_job("StreamPrograms", stream);
  of_job("GetJob", v1::GetJobRequest());
  of_job("GetIteration", v1::GetIterationRequest());
  v1::ChangeStrategiesRequest change;
  change.add_strategies()->add_meshes()->mutable_mesh()->set_pipeline(2);
  change.mutable_strategies(0)->mutable_meshes(0)->mutable_mesh()->set_data(1);
  change.add_typical_samples()->set_target_tokens(20);
  change.set_typical_batch_size(4);
  of_job("ChangeStrategies", change);
  of_job("DrainJob", v1::DrainJobRequest());
  of_job("DeleteJob", v1::DeleteJobRequest());
  add("ListJobs", v1::ListJobsRequest());
  return requests;
}

absl::Status Prepare(PlannerClient& client) {
  v1::RegisterJobRequest job;
  *job.mutable_job() = Gpt("job");
  job.mutable_job()->set_heartbeat_timeout_ms(600'000);
  PENSTOCK_RETURN_IF_ERROR(client.RegisterJob(job).status());
  PENSTOCK_RETURN_IF_ERROR(client.SubmitBatches(MakeSubmission("job", 0, kIterations)).status());
  v1::GetIterationRequest last;
  last.set_job_id("job");
  last.set_iteration(kIterations - 1);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (!client.GetIteration(last).ok()) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the job is not planned");
  }
  return client.RegisterWorker(MakeRegistration(/*incarnation=*/1, /*rank=*/0)).status();
}

}  // namespace

std::unique_ptr<google::protobuf::Message> ValidRequest(const std::string& name) {
  static const auto& requests = *new auto(MakeValidRequests());
  const auto found = requests.find(name);
  if (found == requests.end()) return nullptr;
  std::unique_ptr<google::protobuf::Message> request(found->second->New());
  request->CopyFrom(*found->second);
  return request;
}

absl::StatusOr<std::unique_ptr<PlannerUnderTest>> PlannerUnderTest::Start(
    const std::vector<std::string>& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PlannerProcess> process,
                            PlannerProcess::Start(PENSTOCK_PLANNER, flags));
  PlannerClient client(process->address());
  PENSTOCK_RETURN_IF_ERROR(Prepare(client));
  return std::unique_ptr<PlannerUnderTest>(new PlannerUnderTest(std::move(process)));
}

absl::Status PlannerUnderTest::BeginAgain() {
  absl::Status status = TryToBeginAgain();
  for (int i = 0; i < 3 && absl::IsDeadlineExceeded(status); ++i) status = TryToBeginAgain();
  return status;
}

absl::Status PlannerUnderTest::TryToBeginAgain() {
  PlannerClient client(process_->address());
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client.ListJobs());
  for (const v1::JobStatus& job : jobs.jobs()) {
    v1::DeleteJobRequest request;
    request.set_job_id(job.job_id());
    request.set_force(true);
    // One whose stages were being chosen may be gone meanwhile.
    const absl::Status deleted = client.DeleteJob(request).status();
    if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
  }
  return Prepare(client);
}

void PlannerUnderTest::ExpectServing() {
  ASSERT_TRUE(process_->IsRunning()) << process_->Log();
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse health;
  const auto stub = grpc::health::v1::Health::NewStub(CreateClientChannel(process_->address()));
  ASSERT_TRUE(stub->Check(&context, {}, &health).ok());
  EXPECT_EQ(health.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  PlannerClient client(process_->address());
  v1::PlanBatchRequest plan;
  plan.set_job_id("job");
  *plan.mutable_batch() = MakeBatch(9);
  auto planned = client.PlanBatch(plan);
  for (int i = 0; i < 3 && absl::IsDeadlineExceeded(planned.status()); ++i) planned = client.PlanBatch(plan);
  EXPECT_TRUE(planned.ok()) << planned.status();
  EXPECT_TRUE(process_->Stop(absl::Seconds(10))) << process_->Log();
}

}  // namespace penstock
