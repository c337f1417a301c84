// The real penstock-planner as a process: ports, signals, exit statuses, and clients that see it come and go.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/net/listening.h"
#include "common/process/child_process.h"
#include "penstock/client/planner_client.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/support/port_file.h"
#include "tests/support/raw_call.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class BinaryTest : public testing::Test {
 protected:
  std::unique_ptr<ChildProcess> Run(std::vector<std::string> flags) {
    flags.push_back(absl::StrCat("--store=sqlite:", folder_.Path("planner.db")));
    return RunOnStore(std::move(flags));
  }

  // With --store among the flags.
  std::unique_ptr<ChildProcess> RunOnStore(std::vector<std::string> flags) {
    flags.insert(flags.begin(), PENSTOCK_PLANNER);
    auto child = ChildProcess::Start({.arguments = flags, .log_path = folder_.Path("log")});
    EXPECT_TRUE(child.ok()) << child.status();
    return *std::move(child);
  }

  // Starts a planner and waits until it serves.
  void Serve(std::vector<std::string> flags = {}) {
    const std::string port_file = folder_.Path("ports.json");
    std::filesystem::remove(port_file);
    flags.insert(flags.end(), {"--port-file", port_file});
    planner_ = Run(flags);
    const absl::StatusOr<ServedPorts> ports = AwaitPorts(*planner_, port_file);
    ASSERT_TRUE(ports.ok()) << ports.status() << "\n" << folder_.Read("log");
    ports_ = *ports;
    client_ = std::make_unique<PlannerClient>(address());
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", ports_.planner); }

  static v1::RegisterJobRequest JobRequest() {
    v1::RegisterJobRequest request;
    *request.mutable_job() = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
    request.mutable_job()->set_job_id("job");
    return request;
  }

  std::unique_ptr<ProgramStream> Stream(uint32_t rank) {
    v1::StreamProgramsRequest request;
    request.set_job_id("job");
    request.set_rank(rank);
    return client_->StreamPrograms(request, absl::Seconds(20));
  }

  // A job with three planned iterations, and a stream that has read them and waits for the fourth.
  std::unique_ptr<ProgramStream> OpenStream() {
    EXPECT_TRUE(client_->RegisterJob(JobRequest()).ok());
    EXPECT_TRUE(client_->SubmitBatches(MakeSubmission("job", 0, 3)).ok());
    auto stream = Stream(0);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream->Next().ok());
    return stream;
  }

  const TemporaryFolder folder_;
  ServedPorts ports_;
  std::unique_ptr<ChildProcess> planner_;
  std::unique_ptr<PlannerClient> client_;
};

TEST_F(BinaryTest, SigtermEndsOpenStreamsAndTheProcessWithStatusZero) {
  Serve();
  const auto stream = OpenStream();
  const auto other = Stream(1);
  planner_->Signal(SIGTERM);
  EXPECT_THAT(stream->Next(), Fails(StatusCode::kUnavailable, "the planner stops"));
  const auto end = planner_->WaitFor(absl::Seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << end->ToString();
  EXPECT_THAT(folder_.Read("log"), HasSubstr("planner stopped"));
}

TEST_F(BinaryTest, SigintEndsItToo) {
  Serve();
  planner_->Signal(SIGINT);
  const auto end = planner_->WaitFor(absl::Seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << end->ToString();
}

TEST_F(BinaryTest, AKilledPlannerIsUnavailableToItsClients) {
  Serve();
  const auto stream = OpenStream();
  planner_->Signal(SIGKILL);
  EXPECT_THAT(stream->Next(), Fails(StatusCode::kUnavailable, ""));
  EXPECT_THAT(CallRaw(CreateClientChannel(address()), "ListJobs", ""), Fails(StatusCode::kUnavailable, ""));
}

// A stopped process holds its connections: only a ping that is not answered tells.
TEST_F(BinaryTest, AStreamThatWasIdleForLongNoticesAPlannerThatHangs) {
  Serve();
  client_ = std::make_unique<PlannerClient>(
      CreateClientChannel(address(), {.interval_ms = 1500, .timeout_ms = 3000}));
  const auto stream = OpenStream();
  absl::Status end;
  absl::Time ended;
  std::thread reader([&] {  // connections are looked after while somebody waits
    end = stream->Next().status();
    ended = absl::Now();
  });
  // Four pings: more than gRPC sends by itself without data.
  EXPECT_FALSE(planner_->WaitFor(absl::Milliseconds(4 * 1500 + 500)).has_value());
  const absl::Time stopped = absl::Now();
  planner_->Signal(SIGSTOP);
  reader.join();
  EXPECT_THAT(end, Fails(StatusCode::kUnavailable, ""));
  EXPECT_GT(ended, stopped) << "it did not wait for the answer to a ping";
  EXPECT_LT(ended - stopped, absl::Seconds(20));
}

TEST_F(BinaryTest, APlannerThatWasKilledGoesOnFromItsStore) {
  Serve();
  OpenStream();
  const std::string hash = Stream(0)->Next().value()->content_hash();
  planner_->Signal(SIGKILL);
  ASSERT_TRUE(planner_->WaitFor(absl::Seconds(5)).has_value());

  Serve();

  const auto stream = Stream(0);
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    const auto program = stream->Next();
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->value().iteration(), iteration);
    EXPECT_EQ(program->value().content_hash() == hash, iteration == 0);
  }
  EXPECT_TRUE(client_->RegisterJob(JobRequest()).ok());
  EXPECT_EQ(client_->SubmitBatches(MakeSubmission("job", 1, 5))->next_iteration(), 5);
  EXPECT_THAT(client_->SubmitBatches(MakeSubmission("job", 2, 3, /*tokens=*/11)),
              Fails(StatusCode::kAlreadyExists, "iteration 2"));
}

TEST_F(BinaryTest, TwoPlannersDoNotShareAFile) {
  Serve();
  const auto second = Run({});
  const auto end = second->WaitFor(absl::Seconds(20));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 1);
  EXPECT_THAT(folder_.Read("log"), HasSubstr("planner.db"));
}

TEST_F(BinaryTest, ACallThatMayBeRepeatedWaitsForAPlannerThatComesBack) {
  const std::string listen = WithUnusedPort("127.0.0.1:0").value();
  Serve({"--listen", listen});
  ASSERT_TRUE(planner_->Stop(absl::Seconds(5)).ok());
  absl::Status registered = absl::UnknownError("not called");
  std::thread caller([&, client = client_.get()] {
    registered = client->RegisterJob(JobRequest(), absl::Seconds(20)).status();
  });
  const auto first_client = std::move(client_);
  Serve({"--listen", listen});
  caller.join();
  EXPECT_TRUE(registered.ok()) << registered;
}

TEST_F(BinaryTest, WritesThePortsThatItServes) {
  Serve();
  EXPECT_EQ(nlohmann::json::parse(folder_.Read("ports.json")).size(), 1);
  ASSERT_TRUE(planner_->Stop(absl::Seconds(5)).ok());
  Serve(
      {"--metrics-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--page-listen", "127.0.0.1:0"});
  EXPECT_GT(ports_.metrics, 0);
  EXPECT_GT(ports_.health, 0);
  EXPECT_GT(ports_.page, 0);
}

TEST_F(BinaryTest, AWrongFlagIsNamedAndEndsWithStatusTwo) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--planning-threads", "0"},
                                                {"--listen", "nowhere:x"},
                                                {"--log-format", "xml"},
                                                {"--store", "postgres://localhost/penstock"}}) {
    const auto end = Run(flags)->WaitFor(absl::Seconds(10));
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->code, 2) << flags[0];
    EXPECT_THAT(folder_.Read("log"), HasSubstr(flags[0]));
  }
}

// Status 2 is for what would end the same again.
TEST_F(BinaryTest, APortInUseIsNamedAndEndsWithStatusOneSoThatItIsTriedAgain) {
  Serve();
  for (const char* flag : {"--listen", "--health-listen", "--metrics-listen", "--page-listen"}) {
    const auto end = RunOnStore({flag, address(), "--store=memory"})->WaitFor(absl::Seconds(20));
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->code, 1) << flag;
    EXPECT_THAT(folder_.Read("log"),
                HasSubstr(absl::StrCat(flag, ": cannot listen on '", address(), "': the port is in use")));
  }
}

TEST_F(BinaryTest, VersionEndsWithStatusZero) {
  const auto end = Run({"--version"})->WaitFor(absl::Seconds(10));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0);
  EXPECT_THAT(folder_.Read("log"), HasSubstr("penstock-planner 0"));
}

TEST_F(BinaryTest, HelpEndsWithStatusZero) {
  const auto end = Run({"--help"})->WaitFor(absl::Seconds(10));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0);
  EXPECT_THAT(folder_.Read("log"), HasSubstr("--port-file"));
}

TEST_F(BinaryTest, LogsJsonLinesWhenAskedTo) {
  Serve({"--log-format", "json"});
  ASSERT_TRUE(planner_->Stop(absl::Seconds(5)).ok());
  const std::string log = folder_.Read("log");
  const auto line = nlohmann::json::parse(log.substr(0, log.find('\n')));
  EXPECT_EQ(line["message"], "planner serves");
  EXPECT_EQ(line["planner_port"], ports_.planner);
}

// Stopped, or on a machine that was paused: it heard nobody, which says nothing about them.
TEST_F(BinaryTest, NoWorkerIsLostBecauseThePlannerStoodStill) {
  Serve();
  v1::RegisterJobRequest job = JobRequest();
  job.mutable_job()->set_heartbeat_timeout_ms(1000);
  ASSERT_TRUE(client_->RegisterJob(job).ok());
  FakeWorker first(address(), "job", 101);
  FakeWorker second(address(), "job", 102);
  ASSERT_TRUE(first.Register().ok() && second.Register().ok());
  first.StartHeartbeats();
  second.StartHeartbeats();

  planner_->Signal(SIGSTOP);
  planner_->WaitFor(absl::Milliseconds(2500));
  planner_->Signal(SIGCONT);

  // Until both have been heard again.
  v1::GetJobRequest ask;
  ask.set_job_id("job");
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  const auto is_heard = [](const v1::WorkerStatus& worker) { return worker.heartbeat_age_ms() < 500; };
  v1::JobStatus status;
  do {
    planner_->WaitFor(absl::Milliseconds(200));
    const auto answer = client_->GetJob(ask);
    ASSERT_TRUE(answer.ok()) << answer.status();
    status = answer->status();
  } while (!std::ranges::all_of(status.workers(), is_heard) && absl::Now() < deadline);
  EXPECT_EQ(status.state(), v1::JOB_STATE_RUNNING) << status.failure();
  EXPECT_EQ(status.epoch(), 1);
}

}  // namespace
}  // namespace penstock
