// Two real penstock-planner processes on one real PostgreSQL: one leads, the other takes over.
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/grpc/channel.h"
#include "common/grpc/service_names.h"
#include "common/process/child_process.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "planner/service/main/core_backend.h"
#include "planner/service/main/planner_server.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using absl::StatusCode;
using grpc::health::v1::HealthCheckResponse;
using testing::HasSubstr;

constexpr char kLeaseSeconds[] = "2";
// From the loss of a leader until calls are answered again.
constexpr absl::Duration kTakeOver = absl::Seconds(10);
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr int kRanks = 4;

struct PlannerProcess {
  std::string address = "127.0.0.1:0";
  std::unique_ptr<ChildProcess> process;
};

class TwoPlannersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = PostgresServer::WhyNot()) GTEST_SKIP() << *reason;
    server_ = PostgresServer::Shared();
    ASSERT_NE(server_, nullptr);
    url_ = server_->Url(server_->NewDatabase());
    for (int i = 0; i < 2; ++i) Start(i);
    if (HasFatalFailure()) return;
    client_ = std::make_unique<PlannerClient>(addresses());
    leader_ = AwaitLeader({0, 1});
  }

  std::string addresses() const { return absl::StrCat(planners_[0].address, ",", planners_[1].address); }
  static std::string NameOf(int planner) { return absl::StrCat("planner-", planner, ".test:7070"); }
  std::string LogOf(int planner) const { return folder_.Read(absl::StrCat("log-", planner)); }

  // Again: at the same address.
  void Start(int planner) {
    const std::string port_file = folder_.Path(absl::StrCat("ports-", planner));
    std::filesystem::remove(port_file);
    auto child = ChildProcess::Start(
        {.arguments = {PENSTOCK_PLANNER, "--store", url_, "--listen", planners_[planner].address,
                       "--port-file", port_file, "--lease-seconds", kLeaseSeconds, "--advertise",
                       NameOf(planner), "--metrics-listen=127.0.0.1:0", "--planning-threads=2"},
         .log_path = folder_.Path(absl::StrCat("log-", planner))});
    ASSERT_TRUE(child.ok()) << child.status();
    planners_[planner].process = *std::move(child);
    const absl::Time deadline = absl::Now() + kPatience;
    while (!std::filesystem::exists(port_file) && absl::Now() < deadline) {
      ASSERT_FALSE(planners_[planner].process->WaitFor(absl::Milliseconds(10)).has_value()) << LogOf(planner);
    }
    const auto ports = nlohmann::json::parse(*ReadFile(port_file));
    planners_[planner].address = absl::StrCat("127.0.0.1:", ports["planner_port"].get<int>());
  }

  HealthCheckResponse::ServingStatus HealthOf(int planner, const std::string& service) const {
    const auto stub = grpc::health::v1::Health::NewStub(CreateClientChannel(planners_[planner].address));
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
    HealthCheckResponse response;
    const bool answered = stub->Check(&context, request, &response).ok();
    return answered ? response.status() : HealthCheckResponse::UNKNOWN;
  }
  bool Leads(int planner) const { return HealthOf(planner, kLeads) == HealthCheckResponse::SERVING; }

  // The first of `planners` that leads.
  int AwaitLeader(const std::vector<int>& planners) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      for (const int planner : planners) {
        if (Leads(planner)) return planner;
      }
      planners_[planners[0]].process->WaitFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << "nobody leads\n" << LogOf(0) << LogOf(1);
    return planners[0];
  }

  PlannerProcess& leader() { return planners_[leader_]; }
  PlannerProcess& standby() { return planners_[1 - leader_]; }

  static v1::JobSpec Job() {
    v1::JobSpec job = core::GptJob(2, 2, v1::POLICY_DYNAMIC);
    job.set_job_id("job");
    return job;
  }
  static absl::Status Register(PlannerClient* client) {
    v1::RegisterJobRequest request;
    *request.mutable_job() = Job();
    return client->RegisterJob(request).status();
  }
  static v1::PlanBatchRequest WhatIf() {
    v1::PlanBatchRequest request;
    *request.mutable_job() = Job();
    *request.mutable_batch() = MakeBatch(0);
    return request;
  }

  // A call that needs a leader, again and again until it is answered.
  void SubmitAsSoonAsSomebodyLeads(uint64_t from, uint64_t to) {
    const absl::Time start = absl::Now();
    absl::Status status;
    do {
      status = client_->SubmitBatches(MakeSubmission("job", from, to)).status();
    } while (absl::IsUnavailable(status) && absl::Now() < start + kPatience);
    EXPECT_THAT(status, IsOk()) << LogOf(0) << LogOf(1);
    EXPECT_LT(absl::Now() - start, kTakeOver);
  }

  // Workers of all ranks that train until they have done so many iterations.
  void StartTraining(uint64_t iterations) {
    for (int rank = 0; rank < kRanks; ++rank) {
      workers_.push_back(std::make_unique<FakeWorker>(addresses(), "job", 101 + rank));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      trainers_.emplace_back([this, rank, iterations] {
        FakeWorker& worker = *workers_[rank];
        ends_[rank] = worker.Register(rank);
        if (!ends_[rank].ok()) return;
        worker.StartHeartbeats();
        do {
          ends_[rank] = worker.Work(worker.done().size(), iterations - worker.done().size());
        } while (absl::IsUnavailable(ends_[rank]));
      });
    }
  }
  void ExpectAllTrained() {
    for (std::thread& trainer : trainers_) trainer.join();
    trainers_.clear();
    for (const absl::Status& end : ends_) EXPECT_THAT(end, IsOk()) << LogOf(0) << LogOf(1);
  }
  void WaitForIterations(uint64_t count) {
    v1::GetJobRequest request;
    request.set_job_id("job");
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const auto job = client_->GetJob(request);
      if (job.ok() && job->status().completed_iteration() >= count) return;
      leader().process->WaitFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << "iteration " << count << " is not done\n" << LogOf(0) << LogOf(1);
  }

  // Hashes of the plans of a planner that nobody disturbs.
  static std::vector<std::string> UndisturbedHashes(uint64_t iterations) {
    const CorePlannerFactory planners;
    const CorePlanChecker checker;
    const auto server = PlannerServer::Start({}, &planners, &checker);
    EXPECT_THAT(server, IsOk());
    PlannerClient client(absl::StrCat("127.0.0.1:", (*server)->ports().planner));
    EXPECT_THAT(Register(&client), IsOk());
    EXPECT_THAT(client.SubmitBatches(MakeSubmission("job", 0, iterations)), IsOk());
    v1::StreamProgramsRequest request;
    request.set_job_id("job");
    const auto stream = client.StreamPrograms(request, kPatience);
    std::vector<std::string> hashes;
    while (hashes.size() < iterations) {
      hashes.push_back(absl::BytesToHexString(stream->Next().value()->content_hash()));
    }
    return hashes;
  }

  // Trains four iterations, has something `happen` to the leader, and trains four more.
  void TrainThrough(const std::function<void()>& happen) {
    ASSERT_THAT(Register(client_.get()), IsOk());
    SubmitAsSoonAsSomebodyLeads(0, 4);
    StartTraining(8);
    WaitForIterations(4);
    happen();
    SubmitAsSoonAsSomebodyLeads(4, 8);
    ExpectAllTrained();
    for (const auto& worker : workers_) {
      EXPECT_THAT(worker->hashes(), testing::ElementsAreArray(UndisturbedHashes(8)));
      EXPECT_EQ(worker->Heartbeat().value().failure(), "");
    }
  }

  const TemporaryFolder folder_;
  PostgresServer* server_ = nullptr;
  std::string url_;
  PlannerProcess planners_[2];
  int leader_ = 0;
  std::unique_ptr<PlannerClient> client_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<std::thread> trainers_;
  absl::Status ends_[kRanks];
};

TEST_F(TwoPlannersTest, AStandbyLivesAndAnswersWhatIfsAndNamesTheLeader) {
  const int other = 1 - leader_;
  EXPECT_EQ(HealthOf(other, ""), HealthCheckResponse::SERVING);
  EXPECT_EQ(HealthOf(other, kReadyForJobs), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(HealthOf(leader_, kReadyForJobs), HealthCheckResponse::SERVING);
  PlannerClient direct(standby().address);
  EXPECT_THAT(direct.ListJobs({}, absl::Milliseconds(300)),
              Fails(StatusCode::kUnavailable, absl::StrCat("'", NameOf(leader_), "' leads")));
  EXPECT_THAT(direct.PlanBatch(WhatIf()), IsOk());
  // Those of a job are the leader's.
  v1::PlanBatchRequest of_job = WhatIf();
  of_job.set_job_id("job");
  EXPECT_THAT(direct.PlanBatch(of_job), Fails(StatusCode::kUnavailable, "leads"));

  leader().process->Signal(SIGKILL);
  EXPECT_THAT(client_->PlanBatch(WhatIf()), IsOk()) << "nobody leads, but one lives";
}

TEST_F(TwoPlannersTest, AKilledLeaderIsReplacedAndTrainingGoesOn) {
  TrainThrough([&] { leader().process->Signal(SIGKILL); });
  EXPECT_TRUE(Leads(1 - leader_));
}

TEST_F(TwoPlannersTest, ALeaderThatStandsStillIsReplacedAndFollowsWhenItWakesUp) {
  TrainThrough([&] { leader().process->Signal(SIGSTOP); });
  ASSERT_TRUE(Leads(1 - leader_));
  leader().process->Signal(SIGCONT);
  PlannerClient direct(leader().address);
  EXPECT_THAT(direct.SubmitBatches(MakeSubmission("job", 8, 9), absl::Seconds(1)),
              Fails(StatusCode::kUnavailable, ""));
  const absl::Time deadline = absl::Now() + kPatience;
  absl::Status refused;
  do {
    refused = direct.ListJobs({}, absl::Milliseconds(100)).status();
  } while (!absl::StrContains(refused.message(), "' leads") && absl::Now() < deadline);
  EXPECT_THAT(refused, Fails(StatusCode::kUnavailable, absl::StrCat("'", NameOf(1 - leader_), "' leads")));
  EXPECT_FALSE(leader().process->Poll().has_value()) << LogOf(leader_);
  v1::GetJobRequest request;
  request.set_job_id("job");
  EXPECT_EQ(client_->GetJob(request)->status().next_iteration(), 8);
}

TEST_F(TwoPlannersTest, ALeaderThatIsStoppedHandsOverAtOnce) {
  absl::Time stopped;
  TrainThrough([&] {
    stopped = absl::Now();
    leader().process->Signal(SIGTERM);
  });
  const auto end = leader().process->WaitFor(absl::Seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << LogOf(leader_);
  EXPECT_THAT(LogOf(1 - leader_), HasSubstr("planner leads term=3")) << "the lease was not waited for";
}

TEST_F(TwoPlannersTest, AStandbyThatIsStoppedEndsWithStatusZero) {
  standby().process->Signal(SIGTERM);
  const auto end = standby().process->WaitFor(absl::Seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << LogOf(1 - leader_);
  EXPECT_THAT(client_->ListJobs(), IsOk());
}

TEST_F(TwoPlannersTest, BothOutliveARestartOfTheDatabase) {
  TrainThrough([&] {
    server_->Kill();
    ASSERT_THAT(server_->Restart(), IsOk());
  });
  for (const PlannerProcess& planner : planners_) EXPECT_FALSE(planner.process->Poll().has_value());
}

}  // namespace
}  // namespace penstock
