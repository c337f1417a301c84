// Other strategies for a job that runs: over gRPC, with the real planner core, on a store that a second
// planner takes up.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/verify/check_plan.h"
#include "planner/service/main/core_backend.h"
#include "planner/service/store/open/open_event_store.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/core/job_builder.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ServedStrategiesTest : public PlannerFixture {
 protected:
  void SetUp() override {
    planners_ = &core_planners_;
    checker_ = &core_checker_;
    ServeStore();
    Register(Spec());
  }

  // On the store of the planner before it.
  void ServeStore() {
    client_.reset();
    server_.reset();
    absl::StatusOr<std::unique_ptr<EventStore>> store =
        OpenEventStore(absl::StrCat("sqlite:", folder_.Path("planner.db")), {});
    ASSERT_TRUE(store.ok()) << store.status();
    auto server = PlannerServer::Start({}, planners_, checker_, *std::move(store));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<PlannerClient>(address());
  }

  static v1::Strategy StrategyOf(const v1::Mesh& mesh) {
    v1::Strategy strategy;
    *strategy.add_meshes()->mutable_mesh() = mesh;
    return strategy;
  }

  // Of two ranks; stages are chosen.
  static v1::JobSpec Spec() {
    v1::JobSpec job = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
    job.set_job_id("job");
    job.set_fixed_costs(true);
    job.set_look_ahead_window(64);
    job.mutable_planning()->set_parameter_shares(true);
    job.mutable_planning()->clear_layers_per_stage();
    job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
    *job.add_strategies() = StrategyOf(MakeMesh(2, 1, 1, 1));
    *job.add_strategies() = StrategyOf(MakeMesh(1, 2, 1, 1));
    *job.mutable_mesh() = job.strategies(0).meshes(0).mesh();
    return job;
  }

  absl::StatusOr<v1::ChangeStrategiesResponse> Change(const std::vector<v1::Mesh>& meshes,
                                                      absl::Duration deadline = absl::Seconds(60)) {
    v1::ChangeStrategiesRequest request;
    request.set_job_id("job");
    for (const v1::Mesh& mesh : meshes) *request.add_strategies() = StrategyOf(mesh);
    return client_->ChangeStrategies(request, deadline);
  }

  // Once it is planned.
  v1::GetIterationResponse Held(uint64_t iteration) {
    v1::GetIterationRequest request;
    request.set_job_id("job");
    request.set_iteration(iteration);
    absl::StatusOr<v1::GetIterationResponse> held;
    do {
      held = client_->GetIteration(request);
    } while (absl::IsOutOfRange(held.status()) || absl::IsUnavailable(held.status()));
    EXPECT_TRUE(held.ok()) << held.status();
    return held.value_or(v1::GetIterationResponse());
  }

  void Submit(uint64_t from, uint64_t to) {
    const auto submitted = client_->SubmitBatches(MakeSubmission("job", from, to, 40));
    ASSERT_TRUE(submitted.ok()) << submitted.status();
  }

  std::vector<std::string> HashesTo(uint64_t end) {
    std::vector<std::string> hashes;
    for (uint64_t iteration = 0; iteration < end; ++iteration)
      hashes.push_back(Held(iteration).plan().content_hash());
    return hashes;
  }

  const TemporaryFolder folder_;
  CorePlannerFactory core_planners_;
  CorePlanChecker core_checker_;
};

TEST_F(ServedStrategiesTest, HoldFromTheFirstIterationWithoutAPlanAndAfterARestart) {
  Submit(0, 4);
  EXPECT_LT(Held(3).plan().strategy(), 2);
  const auto there = Change({MakeMesh(1, 1, 1, 2)});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->from_iteration(), 4);
  EXPECT_THAT(there->strategies(), ElementsAre(2));
  Submit(4, 8);
  for (uint64_t iteration = 4; iteration < 8; ++iteration) {
    const v1::GetIterationResponse held = Held(iteration);
    EXPECT_GE(held.plan().strategy(), 2);
    EXPECT_THAT(core::CheckPlan(held.batch(), held.plan()), IsEmpty());
  }
  const auto back = Change({MakeMesh(2, 1, 1, 1), MakeMesh(1, 1, 1, 2)});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->strategies(), ElementsAre(0, 2));
  Submit(8, 12);
  const std::vector<std::string> hashes = HashesTo(12);

  ServeStore();

  // Who registered it finds it: the specification is still the one that it was registered with.
  Register(Spec());
  EXPECT_EQ(HashesTo(12), hashes);
  const auto now = Change({});
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_EQ(now->from_iteration(), 8);
  EXPECT_THAT(now->strategies(), ElementsAre(0, 2));
  Submit(12, 14);
  EXPECT_THAT((std::vector<uint32_t>{0, 2}), Contains(Held(13).plan().strategy()));
  v1::GetJobRequest request;
  request.set_job_id("job");
  EXPECT_EQ(client_->GetJob(request)->job().strategies_size(), 3);
}

TEST_F(ServedStrategiesTest, WorkersAreToldWhereTheyAreOnAStrategyWithItsFirstProgram) {
  Submit(0, 2);
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (uint64_t incarnation : {101, 102}) {
    workers.push_back(std::make_unique<FakeWorker>(address(), "job", incarnation));
    ASSERT_TRUE(workers.back()->Register().ok());
    workers.back()->StartHeartbeats();
  }
  std::vector<std::unique_ptr<ProgramStream>> streams;
  for (const auto& worker : workers)
    streams.push_back(client_->StreamPrograms(worker->StreamRequest(0), absl::Seconds(60)));
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (const auto& stream : streams) {
      const auto program = stream->Next();
      ASSERT_TRUE(program.ok() && program->has_value()) << program.status();
      EXPECT_FALSE((*program)->has_new_topology());
    }
  }
  ASSERT_TRUE(Change({MakeMesh(1, 1, 1, 2)}).ok());
  Submit(2, 4);
  for (const uint64_t iteration : {2, 3}) {
    for (size_t rank = 0; rank < 2; ++rank) {
      const auto program = streams[rank]->Next();
      ASSERT_TRUE(program.ok() && program->has_value()) << program.status();
      EXPECT_EQ((*program)->iteration(), iteration);
      EXPECT_EQ((*program)->strategy(), 2);
      ASSERT_EQ((*program)->has_new_topology(), iteration == 2);
      if (iteration > 2) continue;
      EXPECT_THAT((*program)->new_topology().replicas(0).stages(0).ranks(), ElementsAre(0, 1));
    }
  }
}

TEST_F(ServedStrategiesTest, WorkersThatJoinAreWaitedForAndThoseOfEarlierVersionsRefuseThem) {
  Submit(0, 2);
  FakeWorker first(address(), "job", 101);
  FakeWorker second(address(), "job", 102);
  ASSERT_TRUE(first.Register().ok() && second.Register().ok());
  first.StartHeartbeats();
  second.StartHeartbeats();
  EXPECT_THAT(Change({MakeMesh(1, 1, 1, 2)}, absl::Seconds(1)),
              Fails(StatusCode::kUnavailable, "does not read programs yet"));
  v1::StreamProgramsRequest old = second.StreamRequest(0);
  old.clear_takes_new_strategies();
  const auto stream = client_->StreamPrograms(old, absl::Seconds(60));
  ASSERT_TRUE(stream->Next().ok());
  EXPECT_THAT(Change({MakeMesh(1, 1, 1, 2)}),
              Fails(StatusCode::kFailedPrecondition, "who reads the programs of rank 1 takes no strategies"));
}

TEST_F(ServedStrategiesTest, WhatIsWrongIsNamed) {
  v1::ChangeStrategiesRequest request;
  EXPECT_THAT(client_->ChangeStrategies(request), Fails(StatusCode::kInvalidArgument, "job_id"));
  request.set_job_id("other");
  EXPECT_THAT(client_->ChangeStrategies(request), Fails(StatusCode::kNotFound, "no job 'other'"));
  EXPECT_THAT(Change({MakeMesh(1, 2, 1, 1), MakeMesh(1, 3, 1, 1)}),
              Fails(StatusCode::kInvalidArgument, "strategies[1].meshes[0].mesh: 3 ranks"));
  EXPECT_THAT(Change({MakeMesh(1, 1, 1, 2), MakeMesh(2, 1, 1, 1), MakeMesh(1, 0, 1, 1)}),
              Fails(StatusCode::kInvalidArgument, "strategies[2]"));
  // The model has no so many heads.
  EXPECT_THAT(Change({MakeMesh(70, 1, 1, 1)}), Fails(StatusCode::kInvalidArgument, "strategies[0]"));
  request.set_job_id("job");
  request.set_typical_batch_size(4);
  EXPECT_THAT(client_->ChangeStrategies(request), Fails(StatusCode::kInvalidArgument, "typical_batch_size"));
}

TEST_F(ServedStrategiesTest, AFinishedJobHasNoNextIterations) {
  v1::DrainJobRequest drain;
  drain.set_job_id("job");
  ASSERT_TRUE(client_->DrainJob(drain).ok());
  EXPECT_THAT(Change({MakeMesh(1, 1, 1, 2)}), Fails(StatusCode::kFailedPrecondition, "is finished"));
  EXPECT_TRUE(Change({}).ok());
}

}  // namespace
}  // namespace penstock
