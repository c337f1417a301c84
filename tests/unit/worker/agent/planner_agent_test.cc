#include "worker/agent/planner_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/time/clock.h"
#include "common/grpc/security/server_security.h"
#include "common/sync/sync.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/unit/worker/agent/fake_planner.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::RegisterWorkerResponse ValidRegistration() {
  v1::RegisterWorkerResponse response;
  response.set_rank(1);
  response.set_epoch(4);
  response.set_heartbeat_interval_ms(10);
  v1::JobSpec& job = *response.mutable_job();
  job.set_job_id("job");
  v1::ModelSpec& model = *job.mutable_model();
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(2);
  model.set_hidden(8);
  model.set_heads(2);
  model.set_ffn(16);
  model.set_vocab(32);
  model.set_max_sequence_length(64);
  model.set_dtype(v1::DATA_TYPE_FLOAT32);
  job.mutable_mesh()->set_pipeline(2);
  job.mutable_mesh()->set_data(1);
  v1::ReplicaTopology& replica = *response.mutable_topology()->add_replicas();
  for (uint32_t rank = 0; rank < 2; ++rank) replica.add_stages()->add_ranks(rank);
  return response;
}

// A program of rank 1 without instructions.
v1::StreamProgramsResponse ProgramOf(uint64_t iteration) {
  v1::StreamProgramsResponse response;
  response.set_iteration(iteration);
  response.set_loss_tokens(1);
  response.add_layers_per_stage(1);
  response.add_layers_per_stage(1);
  response.mutable_program()->set_rank(1);
  response.mutable_program()->add_stages(1);
  return response;
}

v1::HeartbeatResponse InState(v1::EpochState state) {
  v1::HeartbeatResponse response;
  response.set_state(state);
  return response;
}

// Waits for the one call of a failure listener.
class FailureProbe {
 public:
  PlannerAgent::FailureListener listener() {
    return [this](const absl::Status& why) {
      MutexLock lock(&mutex_);
      why_ = why;
      changed_.SignalAll();
    };
  }

  absl::Status Wait() {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mutex_);
    while (!why_.has_value() && absl::Now() < deadline) changed_.WaitWithTimeout(&mutex_, absl::Seconds(1));
    return why_.value_or(absl::OkStatus());
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> why_;
};

class PlannerAgentTest : public ::testing::Test {
 protected:
  PlannerAgentTest() : planner_(std::make_unique<FakePlanner>()) {
    planner_->SetRegistration(grpc::Status::OK, ValidRegistration());
  }

  AgentOptions Options() const {
    return {.planner = planner_->address(),
            .job_id = "job",
            .host = "10.0.0.7",
            .rank = 1,
            .incarnation = 99,
            .first_iteration = 6,
            .planner_timeout = absl::Seconds(20),
            .taken_timeout = absl::Seconds(1)};
  }

  std::unique_ptr<PlannerAgent> Register() {
    auto agent = PlannerAgent::Register(Options());
    EXPECT_TRUE(agent.ok()) << agent.status();
    return *std::move(agent);
  }

  // Declared first: agents of the tests end before it.
  std::unique_ptr<FakePlanner> planner_;
};

TEST_F(PlannerAgentTest, RegistersWithWhatItIs) {
  const auto agent = Register();
  EXPECT_EQ(agent->registration().rank, 1u);
  EXPECT_EQ(agent->registration().epoch, 4u);
  const v1::RegisterWorkerRequest request = planner_->registrations().front();
  EXPECT_EQ(request.incarnation(), 99u);
  EXPECT_EQ(request.host(), "10.0.0.7");
  EXPECT_EQ(request.rank(), 1);
  EXPECT_EQ(request.first_iteration(), 6u);
}

TEST_F(PlannerAgentTest, RegistrationPassesOnARefusal) {
  planner_->SetRegistration({grpc::StatusCode::INVALID_ARGUMENT, "rank 1 of 1"});
  const absl::Status status = PlannerAgent::Register(Options()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1 of 1"), HasSubstr(planner_->address())));
  EXPECT_EQ(planner_->registrations().size(), 1u);
}

TEST_F(PlannerAgentTest, RegistrationWaitsForARankWhoseHolderMayBeGone) {
  planner_->SetRegistration({grpc::StatusCode::ALREADY_EXISTS, "rank 1 is taken"});
  EXPECT_EQ(PlannerAgent::Register(Options()).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_GT(planner_->registrations().size(), 1u);

  AgentOptions options = Options();
  options.taken_timeout = absl::Seconds(60);
  options.wait = [&](absl::Duration) {
    planner_->SetRegistration(grpc::Status::OK, ValidRegistration());
    return absl::OkStatus();
  };
  EXPECT_TRUE(PlannerAgent::Register(options).ok());
}

TEST_F(PlannerAgentTest, RegistrationEndsWhenTheWorkerIsToldToEnd) {
  planner_->SetRegistration({grpc::StatusCode::UNAVAILABLE, "starting"});
  AgentOptions options = Options();
  options.planner_timeout = absl::Minutes(10);
  options.wait = [](absl::Duration) { return absl::CancelledError("stopped by SIGTERM"); };
  EXPECT_EQ(PlannerAgent::Register(options).status(), absl::CancelledError("stopped by SIGTERM"));
}

TEST_F(PlannerAgentTest, RegistrationWaitsForTheJobForAWhile) {
  planner_->SetRegistration({grpc::StatusCode::NOT_FOUND, "no job 'job'"});
  AgentOptions options = Options();
  options.planner_timeout = absl::Seconds(1);
  EXPECT_EQ(PlannerAgent::Register(options).status().code(), absl::StatusCode::kNotFound);
  EXPECT_GT(planner_->registrations().size(), 1u);
}

TEST_F(PlannerAgentTest, AnnouncesTheRendezvousAndLearnsWhenAllAreThere) {
  const auto agent = Register();
  agent->AnnounceRendezvous("10.0.0.7:1234");
  // One may have been on its way.
  ASSERT_TRUE(planner_->WaitForHeartbeats(planner_->heartbeats().size() + 2));
  EXPECT_EQ(planner_->heartbeats().back().rendezvous_address(), "10.0.0.7:1234");
  v1::HeartbeatResponse ready = InState(v1::EPOCH_STATE_READY);
  ready.add_hosts("a");
  ready.add_hosts("b");
  ready.set_rendezvous_address("a:1234");
  planner_->SetHeartbeat(grpc::Status::OK, ready);
  const absl::StatusOr<Rendezvous> rendezvous = agent->WaitUntilReady(absl::Seconds(20));
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  EXPECT_EQ(rendezvous->address, "a:1234");
  EXPECT_THAT(rendezvous->hosts, ElementsAre("a", "b"));
}

TEST_F(PlannerAgentTest, GivesUpWaitingForMissingRanks) {
  EXPECT_EQ(Register()->WaitUntilReady(absl::Milliseconds(30)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

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

TEST_F(PlannerAgentTest, DoesNotReportWhatFollowsFromAFailureThatThePlannerKnows) {
  v1::HeartbeatResponse failed = InState(v1::EPOCH_STATE_FAILED);
  failed.set_failure("rank 0 was lost");
  const auto agent = Register();
  planner_->SetHeartbeat(grpc::Status::OK, failed);
  planner_->EndPrograms({grpc::StatusCode::FAILED_PRECONDITION, "the epoch has failed"});
  agent->StartPrograms(6);
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("rank 0 was lost"));
  for (const v1::HeartbeatRequest& request : planner_->heartbeats()) EXPECT_EQ(request.failure(), "");
}

TEST_F(PlannerAgentTest, SendsReportsInOrder) {
  const auto agent = Register();
  for (uint64_t iteration = 0; iteration < 40; ++iteration) {
    ASSERT_TRUE(
        agent->Report({.iteration = iteration, .instructions = {{.id = 3, .start_ns = 5}}, .loss = 0.5})
            .ok());
  }
  ASSERT_TRUE(agent->FlushReports(absl::Seconds(20)).ok());
  const std::vector<v1::ReportIterationRequest> reports = planner_->reports();
  ASSERT_EQ(reports.size(), 40u);
  for (uint64_t iteration = 0; iteration < 40; ++iteration)
    EXPECT_EQ(reports[iteration].iteration(), iteration);
  EXPECT_EQ(reports[0].loss(), 0.5);
  EXPECT_EQ(reports[0].instructions(0).id(), 3u);
  EXPECT_EQ(reports[0].epoch(), 4u);
}

TEST_F(PlannerAgentTest, SendsReportsThatAFailureHasHeldUpWhenItIsToldTo) {
  const auto agent = Register();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  planner_->SetReport({grpc::StatusCode::UNAVAILABLE, "busy"});
  for (uint64_t iteration = 0; iteration < 3; ++iteration)
    ASSERT_TRUE(agent->Report({.iteration = iteration}).ok());
  ASSERT_TRUE(planner_->WaitForReportAttempts(1));
  planner_->SetHeartbeat(grpc::Status::OK, InState(v1::EPOCH_STATE_FAILED));
  EXPECT_FALSE(probe.Wait().ok());
  // One that comes when the epoch has failed already.
  EXPECT_FALSE(agent->Report({.iteration = 3}).ok());
  planner_->SetReport(grpc::Status::OK);
  EXPECT_TRUE(planner_->reports().empty());
  ASSERT_TRUE(agent->SendLeftReports(absl::Seconds(20)).ok());
  const std::vector<v1::ReportIterationRequest> reports = planner_->reports();
  ASSERT_EQ(reports.size(), 4u);
  for (uint64_t iteration = 0; iteration < 4; ++iteration)
    EXPECT_EQ(reports[iteration].iteration(), iteration);
  EXPECT_EQ(reports[0].epoch(), 4u);
  EXPECT_TRUE(agent->SendLeftReports(absl::Seconds(20)).ok()) << "nothing is left";
}

TEST_F(PlannerAgentTest, ReportsThatAreLeftEndWithTheErrorOfThePlanner) {
  const auto agent = Register();
  planner_->SetReport({grpc::StatusCode::UNAVAILABLE, "busy"});
  ASSERT_TRUE(agent->Report({.iteration = 0}).ok());
  ASSERT_TRUE(planner_->WaitForReportAttempts(1));
  planner_->SetReport({grpc::StatusCode::ABORTED, "epoch 4 is stale"});
  agent->Stop(absl::UnavailableError("rank 0 was lost"));
  EXPECT_TRUE(absl::IsAborted(agent->SendLeftReports(absl::Seconds(20))));
}

TEST_F(PlannerAgentTest, SaysThatItIsStillThereAfterAFailureWhereItLingers) {
  const auto agent = Register();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  planner_->SetHeartbeat(grpc::Status::OK, InState(v1::EPOCH_STATE_FAILED));
  EXPECT_FALSE(probe.Wait().ok());
  agent->Linger();
  ASSERT_TRUE(planner_->WaitForHeartbeats(planner_->heartbeats().size() + 3));
  EXPECT_EQ(planner_->heartbeats().back().epoch(), 4u);
  EXPECT_EQ(planner_->heartbeats().back().failure(), "");
}

TEST_F(PlannerAgentTest, AsksWhatAllRanksHaveReportedInItsEpoch) {
  const auto agent = Register();
  v1::GetJobResponse job;
  job.mutable_status()->set_epoch(4);
  job.mutable_status()->set_completed_iteration(47);
  planner_->SetJob(grpc::Status::OK, job);
  EXPECT_EQ(agent->Completed().value_or(0), 47u);
  job.mutable_status()->set_epoch(5);
  planner_->SetJob(grpc::Status::OK, job);
  EXPECT_TRUE(absl::IsAborted(agent->Completed().status()));
  planner_->SetJob({grpc::StatusCode::NOT_FOUND, "no such job"});
  EXPECT_TRUE(absl::IsNotFound(agent->Completed().status()));
}

TEST_F(PlannerAgentTest, AFailedEpochEndsEveryWaitAndTellsTheListener) {
  const auto agent = Register();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  agent->StartPrograms(6);
  v1::HeartbeatResponse failed = InState(v1::EPOCH_STATE_FAILED);
  failed.set_failure("rank 0 was lost");
  planner_->SetHeartbeat(grpc::Status::OK, failed);
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("rank 0 was lost"));
  EXPECT_THAT(std::string(probe.Wait().message()), HasSubstr("rank 0 was lost"));
  EXPECT_THAT(std::string(agent->WaitUntilReady(absl::Seconds(20)).status().message()),
              HasSubstr("rank 0 was lost"));
}

TEST_F(PlannerAgentTest, AStaleIncarnationEndsTheWorker) {
  const auto agent = Register();
  planner_->SetHeartbeat({grpc::StatusCode::ABORTED, "incarnation 99 is stale"});
  const absl::Status status = agent->WaitUntilReady(absl::Seconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
}

TEST_F(PlannerAgentTest, APlannerThatIsGoneIsGivenUpAfterTheWindow) {
  AgentOptions options = Options();
  options.planner_timeout = absl::Milliseconds(300);
  const auto registered = PlannerAgent::Register(options);
  ASSERT_TRUE(registered.ok()) << registered.status();
  PlannerAgent* const agent = registered->get();
  FailureProbe probe;
  agent->SetFailureListener(probe.listener());
  agent->StartPrograms(6);
  const std::string address = planner_->address();
  planner_ = nullptr;
  const absl::Status status = agent->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(address), HasSubstr("has not answered")));
  EXPECT_EQ(probe.Wait(), status);
}

TEST_F(PlannerAgentTest, APlannerThatComesBackInTimeIsUsedAgain) {
  AgentOptions options = Options();
  options.planner_timeout = absl::Seconds(30);
  const auto agent = PlannerAgent::Register(options);
  ASSERT_TRUE(agent.ok());
  (*agent)->StartPrograms(6);
  const int port = planner_->port();
  planner_ = nullptr;
  ASSERT_TRUE((*agent)->Report({.iteration = 6}).ok());
  planner_ = std::make_unique<FakePlanner>(port);
  planner_->AddProgram(ProgramOf(6));
  EXPECT_EQ((*agent)->Next()->program->iteration, 6u);
  EXPECT_TRUE((*agent)->FlushReports(absl::Seconds(20)).ok());
  EXPECT_TRUE(planner_->WaitForHeartbeats(1));
}

TEST_F(PlannerAgentTest, AReportThatGotNoAnswerIsSentAgain) {
  for (const auto code :
       {grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED}) {
    planner_ = std::make_unique<FakePlanner>();
    planner_->SetRegistration(grpc::Status::OK, ValidRegistration());
    const auto agent = Register();
    planner_->SetReport({code, "no answer"});
    ASSERT_TRUE(agent->Report({.iteration = 6}).ok());
    ASSERT_TRUE(planner_->WaitForReportAttempts(2)) << code;
    planner_->SetReport(grpc::Status::OK);
    EXPECT_TRUE(agent->FlushReports(absl::Seconds(20)).ok()) << code;
    EXPECT_EQ(planner_->reports().size(), 1u);
  }
}

// A planner that was killed may have refused it for what the next one does not know.
TEST_F(PlannerAgentTest, ARefusedReportEndsAnEpochThatThePlannerThinksIsAliveAndNotTheWorker) {
  const auto agent = Register();
  planner_->SetReport({grpc::StatusCode::FAILED_PRECONDITION, "not sent"});
  ASSERT_TRUE(agent->Report({.iteration = 0}).ok());
  EXPECT_THAT(agent->FlushReports(absl::Seconds(20)), Fails(absl::StatusCode::kAborted, "not sent"));
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

TEST_F(PlannerAgentTest, ReportingAFailureReturnsThePlannersVerdict) {
  const auto agent = Register();
  ASSERT_TRUE(planner_->WaitForHeartbeats(1));
  v1::HeartbeatResponse failed = InState(v1::EPOCH_STATE_FAILED);
  failed.set_failure("rank 1 reported: rank 0 is gone");
  planner_->SetHeartbeat(grpc::Status::OK, failed);
  const absl::Status verdict =
      agent->ReportFailure(absl::UnavailableError("rank 0 is gone"), absl::Seconds(20));
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("rank 1 reported: rank 0 is gone"));
}

TEST_F(PlannerAgentTest, AFailureIsReportedUntilAPlannerThatComesBackHasHeardIt) {
  AgentOptions options = Options();
  options.planner_timeout = absl::Seconds(60);
  const auto agent = PlannerAgent::Register(options);
  ASSERT_TRUE(agent.ok());
  const int port = planner_->port();
  planner_ = nullptr;
  std::thread restarter([&] {
    planner_ = std::make_unique<FakePlanner>(port);
    planner_->FailEpochWhenToldOfAFailure();
  });
  const absl::Status verdict =
      (*agent)->ReportFailure(absl::UnavailableError("rank 0 is gone"), absl::Seconds(60));
  restarter.join();
  EXPECT_EQ(verdict.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("the epoch has failed"));
}

TEST_F(PlannerAgentTest, LeavingIsTold) {
  const auto agent = Register();
  agent->Leave();
  bool left = false;
  for (const v1::HeartbeatRequest& request : planner_->heartbeats()) left = left || request.leaving();
  EXPECT_TRUE(left);
}

TEST_F(PlannerAgentTest, StopEndsAWaitFromAnotherThread) {
  const auto agent = Register();
  agent->StartPrograms(6);
  std::thread stopper([&] {
    planner_->WaitForStreams(1);
    agent->Stop(absl::CancelledError("stopped by SIGTERM"));
  });
  EXPECT_THAT(std::string(agent->Next().status().message()), HasSubstr("SIGTERM"));
  stopper.join();
}

TEST(PlannerAgentCertificatesTest, APlannersExpiredCertificateIsNamed) {
  TestCertificates certificates;
  certificates.RenewPlanner(/*days=*/-1);
  const absl::StatusOr<SecuredServer> secured =
      Secure(certificates.Server(), [](Role, absl::string_view) { return true; });
  ASSERT_THAT(secured, IsOk());
  FakePlanner planner(/*port=*/0, secured->credentials);
  AgentOptions options = {.planner = planner.address(),
                          .security = certificates.Client(""),
                          .planner_timeout = absl::ZeroDuration()};
  testing::internal::CaptureStderr();
  EXPECT_THAT(PlannerAgent::Register(options),
              Fails(absl::StatusCode::kDeadlineExceeded, "the certificate of the planner at "));
  // Told once while it tries again, and not only at the end.
  options.planner_timeout = absl::Seconds(1);
  EXPECT_THAT(PlannerAgent::Register(options), Fails(absl::StatusCode::kDeadlineExceeded, " expired on "));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("not registered yet; trying again"));
  EXPECT_THAT(log, HasSubstr("; renew it there"));
}

}  // namespace
}  // namespace penstock::worker
