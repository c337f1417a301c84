// Two real penstock-planner processes on one real PostgreSQL: one leads, the other takes over.
#include <signal.h>

#include <functional>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/service_names.h"
#include "planner/service/main/core_backend.h"
#include "planner/service/main/planner_server.h"
#include "tests/integration/service/fake_worker.h"
#include "tests/support/planner_pair_fixture.h"
#include "tests/support/postgres_proxy.h"
#include "tests/support/raw_call.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using absl::StatusCode;
using grpc::health::v1::HealthCheckResponse;
using testing::HasSubstr;

// From the loss of a leader until calls are answered again.
constexpr absl::Duration kTakeOver = absl::Seconds(10);
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr int kRanks = 4;

class TwoPlannersTest : public PlannerPairFixture {
 protected:
  void SetUp() override {
    PlannerPairFixture::SetUp();
    if (planners_ == nullptr) return;
    client_ = std::make_unique<PlannerClient>(planners_->addresses());
  }

  static v1::JobSpec Job() {
    v1::JobSpec job = core::GptJob(2, 2, v1::POLICY_DYNAMIC);
    // Each planner makes the same plans.
    job.set_fixed_costs(true);
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
    EXPECT_THAT(status, IsOk()) << planners_->Logs();
    EXPECT_LT(absl::Now() - start, kTakeOver);
  }

  // Workers of all ranks that train until they have done so many iterations.
  void StartTraining(uint64_t iterations) {
    for (int rank = 0; rank < kRanks; ++rank) {
      workers_.push_back(std::make_unique<FakeWorker>(planners_->addresses(), "job", 101 + rank));
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
    for (const absl::Status& end : ends_) EXPECT_THAT(end, IsOk()) << planners_->Logs();
  }
  void WaitForIterations(uint64_t count) {
    v1::GetJobRequest request;
    request.set_job_id("job");
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const auto job = client_->GetJob(request);
      if (job.ok() && job->status().completed_iteration() >= count) return;
      planners_->process(leader_).WaitFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << "iteration " << count << " is not done\n" << planners_->Logs();
  }

  // How a planner that follows refuses a call of a job. It names nobody until it has read the lease, and has
  // a while for that.
  absl::Status AwaitRefusalThatNamesALeader(int planner) {
    const absl::Time deadline = absl::Now() + kPatience;
    absl::Status refused;
    do {
      refused = CallRaw(CreateClientChannel(planners_->address(planner)), "DrainJob",
                        "\x0a\x03job");  // job_id: "job"
    } while (!absl::StrContains(refused.message(), "' leads") && absl::Now() < deadline);
    return refused;
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
    const absl::Time start = absl::Now();
    happen();
    SubmitAsSoonAsSomebodyLeads(4, 8);
    RecordProperty("answered_ms", static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - start)));
    ExpectAllTrained();
    for (const auto& worker : workers_) {
      EXPECT_THAT(worker->hashes(), testing::ElementsAreArray(UndisturbedHashes(8)));
      EXPECT_EQ(worker->Heartbeat().value().failure(), "");
    }
  }

  std::unique_ptr<PlannerClient> client_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<std::thread> trainers_;
  absl::Status ends_[kRanks];
};

TEST_F(TwoPlannersTest, AStandbyLivesAndAnswersWhatIfsAndNamesTheLeader) {
  EXPECT_EQ(planners_->HealthOf(standby_, ""), HealthCheckResponse::SERVING);
  EXPECT_EQ(planners_->HealthOf(standby_, kReadyForJobs), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(planners_->HealthOf(leader_, kReadyForJobs), HealthCheckResponse::SERVING);
  EXPECT_THAT(AwaitRefusalThatNamesALeader(standby_),
              Fails(StatusCode::kUnavailable, absl::StrCat("'", PlannerPair::NameOf(leader_), "' leads")));
  PlannerClient direct(planners_->address(standby_));
  EXPECT_THAT(direct.PlanBatch(WhatIf()), IsOk());
  // Those of a job are the leader's.
  v1::PlanBatchRequest of_job = WhatIf();
  of_job.set_job_id("job");
  EXPECT_THAT(direct.PlanBatch(of_job), Fails(StatusCode::kUnavailable, "leads"));

  planners_->process(leader_).Signal(SIGKILL);
  EXPECT_THAT(client_->PlanBatch(WhatIf()), IsOk()) << "nobody leads, but one lives";
}

TEST_F(TwoPlannersTest, AKilledLeaderIsReplacedAndTrainingGoesOn) {
  TrainThrough([&] { planners_->process(leader_).Signal(SIGKILL); });
  EXPECT_EQ(planners_->AwaitLeader({standby_}), standby_);
}

TEST_F(TwoPlannersTest, ALeaderThatStandsStillIsReplacedAndFollowsWhenItWakesUp) {
  TrainThrough([&] { planners_->process(leader_).Signal(SIGSTOP); });
  ASSERT_EQ(planners_->AwaitLeader({standby_}), standby_);
  planners_->process(leader_).Signal(SIGCONT);
  EXPECT_THAT(CallRaw(CreateClientChannel(planners_->address(leader_)), "SubmitBatches",
                      MakeSubmission("job", 8, 9).SerializeAsString()),
              Fails(StatusCode::kUnavailable, ""));
  EXPECT_THAT(AwaitRefusalThatNamesALeader(leader_),
              Fails(StatusCode::kUnavailable, absl::StrCat("'", PlannerPair::NameOf(standby_), "' leads")));
  EXPECT_FALSE(planners_->process(leader_).Poll().has_value()) << planners_->Log(leader_);
  v1::GetJobRequest request;
  request.set_job_id("job");
  EXPECT_EQ(client_->GetJob(request)->status().next_iteration(), 8);
}

TEST_F(TwoPlannersTest, ALeaderThatIsStoppedHandsOverAtOnce) {
  TrainThrough([&] {
    planners_->process(leader_).Signal(SIGTERM);
    planners_->AwaitLeader({standby_});
  });
  const auto end = planners_->process(leader_).WaitFor(absl::Seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << planners_->Log(leader_);
  EXPECT_THAT(planners_->Log(standby_), HasSubstr("planner leads term=3")) << "the lease was not waited for";
}

TEST_F(TwoPlannersTest, AStandbyThatIsStoppedEndsWithStatusZero) {
  planners_->process(standby_).Signal(SIGTERM);
  const auto end = planners_->process(standby_).WaitFor(absl::Seconds(5));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << planners_->Log(standby_);
  EXPECT_THAT(client_->ListJobs(), IsOk());
}

TEST_F(TwoPlannersTest, BothOutliveARestartOfTheDatabase) {
  TrainThrough([&] {
    server_->Kill();
    ASSERT_THAT(server_->Restart(), IsOk());
  });
  for (int planner = 0; planner < 2; ++planner) EXPECT_FALSE(planners_->process(planner).Poll().has_value());
}

TEST_F(TwoPlannersTest, BothEndInTimeWhileTheDatabaseIsSilent) {
  PostgresProxy proxy(server_->socket_path());
  PlannerPair planners(PENSTOCK_PLANNER, proxy.Url(server_->NewDatabase()));
  planners.Start();
  ASSERT_FALSE(HasFatalFailure());
  planners.AwaitLeader();
  proxy.Freeze(true);
  for (int planner = 0; planner < 2; ++planner) planners.process(planner).Signal(SIGTERM);
  for (int planner = 0; planner < 2; ++planner) {
    const auto end = planners.process(planner).WaitFor(absl::Seconds(10));
    ASSERT_TRUE(end.has_value()) << planners.Log(planner);
    EXPECT_EQ(end->code, 0) << planners.Log(planner);
  }
}

}  // namespace
}  // namespace penstock
