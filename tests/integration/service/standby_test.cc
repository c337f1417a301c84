// What a planner tells of jobs that another one leads: read from the store, and known as such.
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "planner/service/main/core_backend.h"
#include "planner/service/main/planner_server.h"
#include "planner/service/store/memory_event_store.h"
#include "tests/integration/cli/penstock_process.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/fake_lease.h"
#include "tests/support/faulty_store.h"
#include "tests/support/planner_pair_fixture.h"
#include "tests/support/postgres_proxy.h"
#include "tests/support/raw_call.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/unit/core/job_builder.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kPatience = absl::Seconds(20);

v1::GetJobRequest JobRequest(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return request;
}

class StandbyTest : public PlannerPairFixture {
 protected:
  void SetUp() override {
    PlannerPairFixture::SetUp();
    if (planners_ == nullptr) return;
    client_ = std::make_unique<PlannerClient>(planners_->address(leader_));
    reader_ = std::make_unique<PlannerClient>(planners_->address(standby_));
    reader_->EndWhereAnotherLeads();
    reader_->TakeStandbys([this](const StandbyWords& words) { words_ = words; });
    AwaitAStandbyThatKnowsTheLeader();
  }

  // It knows nobody until it has read the lease.
  void AwaitAStandbyThatKnowsTheLeader() {
    const absl::Time deadline = absl::Now() + kPatience;
    do {
      ASSERT_LT(absl::Now(), deadline) << planners_->Logs();
      ASSERT_THAT(reader_->ListJobs(), IsOk());
    } while (!words_.has_value() || words_->leader != PlannerPair::NameOf(leader_));
  }

  void Register(const std::string& job_id) {
    v1::RegisterJobRequest request;
    *request.mutable_job() = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
    request.mutable_job()->set_job_id(job_id);
    ASSERT_THAT(client_->RegisterJob(request), IsOk());
  }

  // GetJob of the standby, again until it has read what was committed before.
  v1::GetJobResponse AwaitTold(const std::string& job_id, uint64_t planned) {
    const absl::Time deadline = absl::Now() + kPatience;
    absl::StatusOr<v1::GetJobResponse> told;
    do {
      told = reader_->GetJob(JobRequest(job_id));
    } while ((!told.ok() || told->status().planned_iteration() < planned) && absl::Now() < deadline);
    EXPECT_THAT(told, IsOk());
    return told.ok() ? *told : v1::GetJobResponse();
  }

  Ended Run(const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--planner", planners_->address(standby_)});
    return penstock_.Run(all);
  }

  // Of the leader, and of the standby.
  std::unique_ptr<PlannerClient> client_;
  std::unique_ptr<PlannerClient> reader_;
  // Of the last answer of the standby.
  std::optional<StandbyWords> words_;
  Penstock penstock_;
};

TEST_F(StandbyTest, TellsJobsAndTheirProgressAndWhoLeads) {
  Register("mix");
  ASSERT_THAT(client_->SubmitBatches(MakeSubmission("mix", 0, 3)), IsOk());
  const v1::GetJobResponse told = AwaitTold("mix", 3);
  EXPECT_EQ(told.status().state(), v1::JOB_STATE_REGISTERED);
  EXPECT_EQ(told.status().next_iteration(), 3);
  EXPECT_EQ(told.job().mesh().pipeline(), 2);
  EXPECT_EQ(words_->leader, PlannerPair::NameOf(leader_));
  EXPECT_LT(words_->age, kPatience);
  const auto jobs = reader_->ListJobs();
  ASSERT_THAT(jobs, IsOk());
  ASSERT_EQ(jobs->jobs_size(), 1);
  EXPECT_EQ(jobs->jobs(0).job_id(), "mix");
  EXPECT_THAT(reader_->GetJob(JobRequest("other")), Fails(StatusCode::kNotFound, "other"));
}

TEST_F(StandbyTest, IsNotBelievedByAClientThatNeedsTheLeader) {
  Register("mix");
  AwaitTold("mix", 0);
  PlannerClient other(planners_->address(standby_));
  other.EndWhereAnotherLeads();
  EXPECT_THAT(other.GetJob(JobRequest("mix")),
              Fails(StatusCode::kUnavailable, absl::StrCat("'", PlannerPair::NameOf(leader_), "' leads")));
  EXPECT_THAT(other.ListJobs(), Fails(StatusCode::kUnavailable, "leads"));
}

TEST_F(StandbyTest, RefusesAllElseAtOnceWithTheLeadersName) {
  Register("mix");
  v1::DrainJobRequest request;
  request.set_job_id("mix");
  const absl::Time begin = absl::Now();
  const absl::Status refused = reader_->DrainJob(request).status();
  EXPECT_THAT(refused, Fails(StatusCode::kUnavailable, "leads"));
  EXPECT_EQ(LeaderNamedBy(refused), PlannerPair::NameOf(leader_));
  RecordProperty("refused_ms", static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - begin)));
  // Plans are not in the store, and measurements neither.
  v1::GetIterationRequest iteration;
  iteration.set_job_id("mix");
  EXPECT_EQ(LeaderNamedBy(reader_->GetIteration(iteration).status()), PlannerPair::NameOf(leader_));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "repeated until its deadline";
}

TEST_F(StandbyTest, TheCommandsSayThatTheseAreAStandbysWords) {
  Register("mix");
  AwaitTold("mix", 0);
  const std::string leader = absl::StrCat("'", PlannerPair::NameOf(leader_), "' leads");
  const Ended status = Run({"status"});
  EXPECT_EQ(status.code, 0) << status.errors;
  EXPECT_THAT(status.output, HasSubstr("serves no job; 1 job, as a standby says that read the store "));
  EXPECT_THAT(status.output, HasSubstr(leader));
  EXPECT_THAT(status.output, HasSubstr("pp 2 x dp 1"));
  const Ended jobs = Run({"jobs"});
  EXPECT_THAT(jobs.output, HasSubstr("as a standby says"));
  EXPECT_THAT(jobs.output, HasSubstr("mix"));
  const Ended rows = Run({"jobs", "--json"});
  EXPECT_EQ(nlohmann::json::parse(rows.output)[0]["job"], "mix");
  EXPECT_THAT(rows.errors, HasSubstr(leader));
  const auto json = nlohmann::json::parse(Run({"status", "--json"}).output);
  EXPECT_EQ(json["standby"]["leader"], PlannerPair::NameOf(leader_));
  EXPECT_GE(json["standby"]["age_ms"], 0);

  const std::string out = (std::filesystem::temp_directory_path() / "penstock-no-trace.json").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"drain", "--job", "mix"},
                                                {"diagnose", "--job", "mix"},
                                                {"trace", "--job", "mix", "--out", out}}) {
    const absl::Time begin = absl::Now();
    const Ended refused = Run(words);
    RecordProperty(words[0] + "_ms", static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - begin)));
    EXPECT_NE(refused.code, 0);
    EXPECT_THAT(refused.errors, HasSubstr(leader)) << words[0];
    EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << words[0] << " is repeated until its deadline";
  }
}

TEST_F(StandbyTest, TakesNoLeaseAndWritesNothingByReading) {
  Register("mix");
  const std::string lease = "SELECT term, holder FROM penstock_lease";
  const std::string before = Sql(lease);
  for (int i = 0; i < 3; ++i) ASSERT_THAT(reader_->ListJobs(), IsOk());
  EXPECT_EQ(Sql(lease), before);
}

TEST_F(StandbyTest, TellsTheLeadersAnswersOnceItLeads) {
  Register("mix");
  AwaitTold("mix", 0);
  planners_->process(leader_).Signal(SIGTERM);
  ASSERT_EQ(planners_->AwaitLeader({standby_}), standby_);
  words_.reset();
  EXPECT_THAT(reader_->GetJob(JobRequest("mix")), IsOk());
  EXPECT_FALSE(words_.has_value());
}

// The lease is still the dead leader's.
TEST_F(StandbyTest, IsAskedByWhoKnowsSeveralPlannersOfWhichNoneLeads) {
  ASSERT_EQ(setenv("PENSTOCK_LEASE_SECONDS", "30", /*overwrite=*/1), 0);
  PlannerPair planners(PENSTOCK_PLANNER, server_->Url(server_->NewDatabase()));
  planners.Start();
  unsetenv("PENSTOCK_LEASE_SECONDS");
  ASSERT_FALSE(HasFatalFailure());
  const int leader = planners.AwaitLeader();
  v1::RegisterJobRequest request;
  *request.mutable_job() = core::GptJob(2, 1, v1::POLICY_DYNAMIC);
  request.mutable_job()->set_job_id("mix");
  ASSERT_THAT(PlannerClient(planners.addresses()).RegisterJob(request), IsOk());
  const Ended led = penstock_.Run({"status", "--planner", planners.addresses()});
  EXPECT_THAT(led.output, HasSubstr("serves 1 job\n"));

  planners.process(leader).Signal(SIGKILL);
  const absl::Time begin = absl::Now();
  const Ended status = penstock_.Run({"status", "--planner", planners.addresses()});
  RecordProperty("status_ms", static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - begin)));
  EXPECT_EQ(status.code, 0) << status.errors;
  EXPECT_THAT(status.output, HasSubstr("1 job, as a standby says"));
  EXPECT_THAT(status.output, HasSubstr("mix"));
}

// Two planners behind a proxy that stops to answer.
TEST_F(StandbyTest, AnswersWithTheLastReadWhileTheDatabaseIsSilent) {
  PostgresProxy proxy(server_->socket_path());
  PlannerPair planners(PENSTOCK_PLANNER, proxy.Url(server_->NewDatabase()));
  planners.Start();
  ASSERT_FALSE(HasFatalFailure());
  PlannerClient standby(planners.address(1 - planners.AwaitLeader()));
  std::optional<StandbyWords> words;
  standby.TakeStandbys([&](const StandbyWords& heard) { words = heard; });
  ASSERT_THAT(standby.ListJobs(), IsOk());
  proxy.Freeze(true);
  const absl::Time deadline = absl::Now() + kPatience;
  do {
    ASSERT_LT(absl::Now(), deadline);
    ASSERT_THAT(standby.ListJobs(), IsOk());
  } while (words->age < absl::Seconds(2));
  proxy.Freeze(false);
}

// A standby in this process, with a store and a lease of the test's own.
class StandbyAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    certificates_.MakeCaller("client", "alice");
    certificates_.MakeCaller("client", "bob");
    certificates_.MakeCaller("operator", "");
    lease_.TakeOver("b:2 with\nmore");
    store::v1::Event event;
    *event.mutable_job_registered()->mutable_spec() = MakeJob("of-alice");
    event.mutable_job_registered()->mutable_spec()->set_owner("alice");
    const JobChange change = {
        .job = 1, .job_id = "of-alice", .first_sequence = 1, .events = {event.SerializeAsString()}};
    ASSERT_THAT(memory_.Commit({&change, 1}), IsOk());
    SharedStore store{.open_lease = [this] { return std::make_unique<FakeLease>(&lease_); },
                      .open = [this](Term) { return std::make_unique<FaultyStore>(&memory_); },
                      .open_to_read = [this] { return std::make_unique<FaultyStore>(&memory_); }};
    auto server =
        PlannerServer::Start({.security = certificates_.Server()}, &planners_, &checker_, std::move(store));
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  std::unique_ptr<PlannerClient> ClientOf(const std::string& caller) {
    auto client = std::make_unique<PlannerClient>(absl::StrCat("127.0.0.1:", server_->ports().planner),
                                                  *SecurityOfChannels(certificates_.Client(caller)));
    client->TakeStandbys([](const StandbyWords&) {});
    return client;
  }

  TestCertificates certificates_;
  MemoryEventStore memory_;
  SharedLease lease_;
  FakeBatchPlannerFactory planners_{nullptr};
  FakePlanChecker checker_;
  std::unique_ptr<PlannerServer> server_;
};

TEST_F(StandbyAccessTest, TellsAJobToThoseToWhomItsPlannerTellsIt) {
  EXPECT_THAT(ClientOf("client-alice")->GetJob(JobRequest("of-alice")), IsOk());
  EXPECT_EQ(ClientOf("client-alice")->ListJobs()->jobs_size(), 1);
  EXPECT_EQ(ClientOf("operator")->ListJobs()->jobs_size(), 1);
  EXPECT_THAT(ClientOf("client-bob")->GetJob(JobRequest("of-alice")),
              Fails(StatusCode::kPermissionDenied, "somebody else's"));
  EXPECT_EQ(ClientOf("client-bob")->ListJobs()->jobs_size(), 0);
  EXPECT_THAT(ClientOf("")->ListJobs(), Fails(StatusCode::kUnauthenticated, ""));
}

TEST_F(StandbyAccessTest, NamesALeaderWhoseNameIsNoMetadata) {
  const auto client = ClientOf("operator");
  std::string leader;
  client->TakeStandbys([&](const StandbyWords& words) { leader = words.leader; });
  const absl::Time deadline = absl::Now() + kPatience;
  while (leader.empty() && absl::Now() < deadline) ASSERT_THAT(client->ListJobs(), IsOk());
  EXPECT_EQ(leader, "b:2?with?more");
}

}  // namespace
}  // namespace penstock
