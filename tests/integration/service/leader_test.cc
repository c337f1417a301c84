// What calls see of a planner in this process that begins to lead and ceases to, with a lease of the test's
// own.
#include <thread>

#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "planner/service/store/open/open_event_store.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/fake_lease.h"
#include "tests/support/raw_call.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using absl::StatusCode;

class LeaderTest : public PlannerFixture {
 protected:
  // Another leads to begin with.
  void SetUp() override {
    lease_.TakeOver("b:2");
    const std::string url = absl::StrCat("sqlite:", folder_.Path("planner.db"));
    SharedStore store{.open_lease = [this] { return std::make_unique<FakeLease>(&lease_); },
                      .open = [url](Term) { return OpenEventStore(url, {}); }};
    auto server =
        PlannerServer::Start({.lease_time = absl::Seconds(3)}, planners_, checker_, std::move(store));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    client_ = std::make_unique<PlannerClient>(address());
  }

  // Looks at jobs until the planner leads, or does not; it looks at its lease every half second.
  void AwaitLeads(bool leads) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    absl::Status last;
    do {
      last = client_->ListJobs({}, absl::Milliseconds(40)).status();
      if (absl::Now() > deadline) FAIL() << last;
    } while (last.ok() != leads);
  }

  v1::PlanBatchRequest WhatIf() {
    v1::PlanBatchRequest request;
    *request.mutable_job() = MakeJob("what-if");
    *request.mutable_batch() = MakeBatch(0);
    return request;
  }

  const TemporaryFolder folder_;
  SharedLease lease_;
};

TEST_F(LeaderTest, AWhatIfThatAStandbyHasBegunIsAnsweredWhenItLeads) {
  Event started, go_on;
  gate_ = [&](const v1::Batch&) {
    started.Notify();
    go_on.Await();
  };
  absl::Status answer = absl::UnknownError("not called");
  std::thread caller([&] { answer = client_->PlanBatch(WhatIf()).status(); });
  ASSERT_TRUE(started.Await());
  lease_.TakeOver("");
  AwaitLeads(true);
  go_on.Notify();
  caller.join();
  EXPECT_TRUE(answer.ok()) << answer;
}

TEST_F(LeaderTest, StreamsAndJobsOutliveManyChangesOfTheLeader) {
  lease_.TakeOver("");
  AwaitLeads(true);
  Register(MakeJob("job", 1));
  for (uint64_t iteration = 0; iteration < 3; ++iteration) {
    ASSERT_TRUE(client_->SubmitBatches(MakeSubmission("job", iteration, iteration + 1)).ok());
    const auto stream = Read("job", 0, iteration);
    const auto program = stream->Next();
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->iteration(), iteration);
    ASSERT_TRUE(client_->ReportIteration(MakeReport(0, iteration)).ok());

    lease_.TakeOver("b:2");
    EXPECT_THAT(stream->Next(), Fails(StatusCode::kUnavailable, "the planner stops"));
    AwaitLeads(false);
    EXPECT_THAT(CallRaw(CreateClientChannel(address()), "ListJobs", ""), Fails(StatusCode::kUnavailable, ""));
    EXPECT_TRUE(client_->PlanBatch(WhatIf()).ok());
    lease_.TakeOver("");
    AwaitLeads(true);
  }
  EXPECT_EQ(client_->ListJobs()->jobs(0).completed_iteration(), 3);
  EXPECT_THAT(server_->metrics().Text(), testing::HasSubstr("penstock_leader 1"));
  EXPECT_THAT(server_->metrics().Text(),
              testing::HasSubstr("penstock_leader_changes_total{to=\"leader\"} 4"));
}

TEST_F(LeaderTest, ALeaderStopsWithWhatIsOpenAndGivesItsLeaseUp) {
  lease_.TakeOver("");
  AwaitLeads(true);
  Register(MakeJob("job", 1));
  const auto stream = Read("job", 0);
  std::thread stopper([&] { server_->Stop(); });
  EXPECT_THAT(stream->Next(), Fails(StatusCode::kUnavailable, "the planner stops"));
  stopper.join();
  EXPECT_EQ(lease_.Holder(), "");
}

}  // namespace
}  // namespace penstock
