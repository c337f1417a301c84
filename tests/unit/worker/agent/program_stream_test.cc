// How a worker is sent its programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/unit/worker/agent/planner_agent_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

TEST_F(PlannerAgentTest, ReadsProgramsInOrderUntilTheJobIsFinished) {
  for (uint64_t iteration = 6; iteration < 16; ++iteration) planner_->AddProgram(ProgramOf(iteration));
  planner_->EndPrograms(grpc::Status::OK);
  const auto agent = Register();
  agent->StartPrograms(6);
  for (uint64_t iteration = 6; iteration < 16; ++iteration) {
    const absl::StatusOr<NextProgram> next = agent->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_FALSE(next->finished);
    EXPECT_EQ(next->program->iteration, iteration);
  }
  EXPECT_TRUE(agent->Next()->finished);
}

TEST_F(PlannerAgentTest, ShowsTheProgramThatComesNextOnceItIsThere) {
  planner_->AddProgram(ProgramOf(6));
  const auto agent = Register();
  agent->StartPrograms(6);
  EXPECT_EQ(agent->Next()->program->iteration, 6u);
  EXPECT_EQ(agent->Upcoming(), nullptr);
  for (uint64_t iteration = 7; iteration < 16; ++iteration) planner_->AddProgram(ProgramOf(iteration));
  planner_->EndPrograms(grpc::Status::OK);
  for (uint64_t iteration = 7; iteration < 16; ++iteration) {
    const std::shared_ptr<const Program> shown = agent->Upcoming();
    const absl::StatusOr<NextProgram> next = agent->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    if (shown != nullptr) {
      EXPECT_EQ(shown, next->program);
    }
  }
  EXPECT_TRUE(agent->Next()->finished);
  EXPECT_EQ(agent->Upcoming(), nullptr);
}

TEST_F(PlannerAgentTest, OpensABrokenStreamAgainWhereItEnded) {
  planner_->AddProgram(ProgramOf(6));
  planner_->EndPrograms({grpc::StatusCode::UNAVAILABLE, "restarting"});
  const auto agent = Register();
  agent->StartPrograms(6);
  EXPECT_EQ(agent->Next()->program->iteration, 6u);
  ASSERT_TRUE(planner_->WaitForStreams(2));
  planner_->AddProgram(ProgramOf(7));
  EXPECT_EQ(agent->Next()->program->iteration, 7u);
}

// Of two stages and one replica, and of two replicas of one stage.
v1::RegisterWorkerResponse RegistrationWithStrategies() {
  v1::RegisterWorkerResponse response = ValidRegistration();
  v1::JobSpec& job = *response.mutable_job();
  job.mutable_planning()->set_parameter_shares(true);
  *job.add_strategies()->add_meshes()->mutable_mesh() = job.mesh();
  *response.add_strategies() = response.topology();
  response.mutable_strategies(0)->mutable_replicas(0)->mutable_stages(0)->set_decoder_layers(1);
  response.mutable_strategies(0)->mutable_replicas(0)->mutable_stages(1)->set_decoder_layers(1);
  *response.mutable_topology() = response.strategies(0);
  return response;
}

v1::GetJobResponse JobThatGotAnother() {
  v1::GetJobResponse response;
  *response.mutable_job() = RegistrationWithStrategies().job();
  v1::Mesh& mesh = *response.mutable_job()->add_strategies()->add_meshes()->mutable_mesh();
  mesh.set_pipeline(1);
  mesh.set_data(2);
  return response;
}

// Of rank 1 on the second strategy.
v1::StreamProgramsResponse ProgramOnAnother(uint64_t iteration) {
  v1::StreamProgramsResponse response = ProgramOf(iteration);
  response.set_strategy(1);
  response.clear_layers_per_stage();
  response.add_layers_per_stage(2);
  response.mutable_program()->set_replica(1);
  response.mutable_program()->set_stages(0, 0);
  v1::CollectiveGroup* all = response.add_groups();
  for (const v1::Op op : {v1::OP_RESHARD, v1::OP_RESHARD, v1::OP_OPTIMIZER_STEP}) {
    const int id = response.program().instructions_size();
    v1::Instruction* instruction = response.mutable_program()->add_instructions();
    instruction->set_id(static_cast<uint32_t>(id));
    instruction->set_op(op);
    instruction->set_stream(op == v1::OP_RESHARD ? v1::STREAM_COLLECTIVE : v1::STREAM_COMPUTE);
    if (op == v1::OP_RESHARD) instruction->set_part(static_cast<uint32_t>(id));
    if (id > 0) instruction->add_deps(static_cast<uint32_t>(id - 1));
    instruction->mutable_collective()->set_sequence(static_cast<uint32_t>(id));
    instruction->mutable_collective()->set_bytes(8);
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    all->add_ranks(rank);
    v1::StageTopology* stage = response.mutable_new_topology()->add_replicas()->add_stages();
    stage->set_decoder_layers(2);
    stage->add_ranks(rank);
  }
  return response;
}

TEST_F(PlannerAgentTest, TakesAStrategyThatItsJobGetsLater) {
  planner_->SetRegistration(grpc::Status::OK, RegistrationWithStrategies());
  // Its planner starts again meanwhile: the stream is opened again, and tells of it again.
  planner_->SetJob({grpc::StatusCode::UNAVAILABLE, "restarting"});
  planner_->AddProgram(ProgramOnAnother(6));
  v1::StreamProgramsResponse known = ProgramOnAnother(7);
  known.clear_new_topology();
  planner_->AddProgram(known);
  const auto agent = Register();
  agent->StartPrograms(6);
  ASSERT_TRUE(planner_->WaitForStreams(2));
  planner_->SetJob(grpc::Status::OK, JobThatGotAnother());
  for (uint64_t iteration = 6; iteration < 8; ++iteration) {
    const absl::StatusOr<NextProgram> next = agent->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->program->iteration, iteration);
    EXPECT_EQ(next->program->strategy, 1);
    ASSERT_NE(next->program->added_strategy, nullptr);
    EXPECT_EQ(next->program->added_strategy->topology.replicas.size(), 2);
  }
  for (const v1::StreamProgramsRequest& request : planner_->stream_requests())
    EXPECT_TRUE(request.takes_new_strategies());
}

TEST_F(PlannerAgentTest, AStrategyThatItIsNotToldOfIsRefused) {
  planner_->SetRegistration(grpc::Status::OK, RegistrationWithStrategies());
  v1::StreamProgramsResponse program = ProgramOnAnother(6);
  program.clear_new_topology();
  planner_->AddProgram(program);
  const auto agent = Register();
  agent->StartPrograms(6);
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("strategy is 1, but the job has 1"));
}

TEST_F(PlannerAgentTest, RefusesAProgramOutOfOrder) {
  v1::StreamProgramsResponse program = ProgramOf(6);
  program.mutable_program()->set_rank(0);
  program.mutable_program()->set_stages(0, 0);
  planner_->AddProgram(program);
  const auto agent = Register();
  agent->StartPrograms(6);
  EXPECT_EQ(agent->Next().status().code(), absl::StatusCode::kInternal);
}

TEST_F(PlannerAgentTest, TellsThePlannerOfAProgramThatItCannotRun) {
  v1::StreamProgramsResponse program = ProgramOf(6);
  program.mutable_program()->add_instructions()->set_op(v1::OP_ALL_TO_ALL_DISPATCH);
  planner_->AddProgram(program);
  const auto agent = Register();
  agent->StartPrograms(6);
  EXPECT_EQ(agent->Next().status().code(), absl::StatusCode::kUnimplemented);
  std::string reported;
  for (const v1::HeartbeatRequest& request : planner_->heartbeats()) reported += request.failure();
  EXPECT_THAT(reported, HasSubstr("OP_ALL_TO_ALL_DISPATCH"));
}

TEST_F(PlannerAgentTest, AProgramThatItCannotRunIsItsOwnErrorWhateverThePlannerAnswers) {
  v1::StreamProgramsResponse program = ProgramOf(6);
  program.mutable_program()->add_instructions()->set_op(v1::OP_ALL_TO_ALL_DISPATCH);
  const auto agent = Register();
  planner_->FailEpochWhenToldOfAFailure();
  planner_->AddProgram(program);
  agent->StartPrograms(6);
  const absl::Status status = agent->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the epoch has failed"));
}

TEST_F(PlannerAgentTest, ARefusedStreamEndsAnEpochThatThePlannerThinksIsAliveAndNotTheWorker) {
  const auto agent = Register();
  planner_->EndPrograms({grpc::StatusCode::FAILED_PRECONDITION, "the epoch has failed"});
  agent->StartPrograms(6);
  EXPECT_THAT(agent->Next(), Fails(absl::StatusCode::kAborted, "the epoch has failed"));
  bool told = false;
  for (const v1::HeartbeatRequest& request : planner_->heartbeats())
    told = told || !request.failure().empty();
  EXPECT_TRUE(told) << "its peers would wait for it";
}

}  // namespace
}  // namespace penstock::worker
