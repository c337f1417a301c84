// A planner in this process, served over gRPC on loopback, with a client; and requests to send it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/client/planner_client.h"
#include "planner/service/engine/fake_batch_planner.h"
#include "planner/service/main/planner_server.h"

namespace penstock {

// Matches an absl::Status or StatusOr by code and a part of its message.
MATCHER_P2(Fails, code, part, "") {
  const absl::Status status = [&] {
    if constexpr (requires { arg.status(); }) {
      return arg.status();
    } else {
      return arg;
    }
  }();
  *result_listener << status.ToString();
  return status.code() == code && status.message().find(part) != absl::string_view::npos;
}

inline v1::JobSpec MakeJob(const std::string& id, uint32_t pipeline = 2, uint32_t data = 1) {
  v1::JobSpec job;
  job.set_job_id(id);
  job.mutable_mesh()->set_pipeline(pipeline);
  job.mutable_mesh()->set_data(data);
  job.set_heartbeat_timeout_ms(1000);
  return job;
}

inline v1::Batch MakeBatch(uint64_t iteration, uint32_t tokens = 10) {
  v1::Batch batch;
  batch.set_iteration(iteration);
  for (uint32_t i = 0; i < 4; ++i) {
    v1::Sample* sample = batch.add_samples();
    sample->set_sample_id(iteration * 4 + i);
    sample->set_target_tokens(tokens);
  }
  return batch;
}

// Batches of the iterations from .. to - 1.
inline v1::SubmitBatchesRequest MakeSubmission(const std::string& job_id, uint64_t from, uint64_t to,
                                               uint32_t tokens = 10) {
  v1::SubmitBatchesRequest request;
  request.set_job_id(job_id);
  for (uint64_t iteration = from; iteration < to; ++iteration) {
    *request.add_batches() = MakeBatch(iteration, tokens);
  }
  return request;
}

class PlannerFixture : public testing::Test {
 protected:
  void SetUp() override { Serve({}); }

  void Serve(const PlannerServerOptions& options) {
    client_.reset();
    server_.reset();
    auto server = PlannerServer::Start(options, &planners_, &checker_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<PlannerClient>(address());
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", server_->ports().planner); }

  void Register(const v1::JobSpec& job) {
    v1::RegisterJobRequest request;
    *request.mutable_job() = job;
    const auto response = client_->RegisterJob(request);
    ASSERT_TRUE(response.ok()) << response.status();
  }

  absl::StatusOr<v1::RegisterWorkerResponse> RegisterWorker(const std::string& job_id, uint64_t incarnation,
                                                            int32_t rank = -1) {
    v1::RegisterWorkerRequest request;
    request.set_job_id(job_id);
    request.set_incarnation(incarnation);
    request.set_host("127.0.0.1");
    request.set_rank(rank);
    return client_->RegisterWorker(request);
  }

  // A stream without worker.
  std::unique_ptr<ProgramStream> Read(const std::string& job_id, uint32_t rank, uint64_t from = 0) {
    v1::StreamProgramsRequest request;
    request.set_job_id(job_id);
    request.set_rank(rank);
    request.set_from_iteration(from);
    return client_->StreamPrograms(request, absl::Seconds(20));
  }

  FakeBatchPlannerFactory planners_;
  FakePlanChecker checker_;
  std::unique_ptr<PlannerServer> server_;
  std::unique_ptr<PlannerClient> client_;
};

}  // namespace penstock
