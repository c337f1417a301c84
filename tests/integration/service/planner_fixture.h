// A planner in this process, served over gRPC on loopback, with a client.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "penstock/client/planner_client.h"
#include "planner/service/engine/fake_batch_planner.h"
#include "planner/service/main/planner_server.h"
#include "tests/unit/service/requests.h"

namespace penstock {

class PlannerFixture : public testing::Test {
 protected:
  void SetUp() override { Serve({}); }

  // Before the planners and checkers of a derived fixture go, which threads of the server use.
  void TearDown() override {
    client_.reset();
    server_.reset();
  }

  void Serve(const PlannerServerOptions& options) {
    client_.reset();
    server_.reset();
    auto server = PlannerServer::Start(options, planners_, checker_);
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

  // A stream without worker.
  std::unique_ptr<ProgramStream> Read(const std::string& job_id, uint32_t rank, uint64_t from = 0) {
    v1::StreamProgramsRequest request;
    request.set_job_id(job_id);
    request.set_rank(rank);
    request.set_from_iteration(from);
    return client_->StreamPrograms(request, absl::Seconds(20));
  }

  // Called before each plan of the fake planner. Set it while nothing is planned.
  FakeBatchPlanner::Gate gate_;
  FakeBatchPlannerFactory fake_planners_{[this](const v1::Batch& batch) {
    if (gate_) gate_(batch);
  }};
  FakePlanChecker fake_checker_;
  // Who plans for the next Serve().
  const BatchPlannerFactory* planners_ = &fake_planners_;
  const PlanChecker* checker_ = &fake_checker_;
  std::unique_ptr<PlannerServer> server_;
  std::unique_ptr<PlannerClient> client_;
};

}  // namespace penstock
