// Quotas of owners, over gRPC.
#include "absl/strings/str_cat.h"
#include "penstock/client/retry_iteration.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using testing::HasSubstr;

constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

class QuotasTest : public PlannerFixture {
 protected:
  void RegisterJobOf(const std::string& owner, const std::string& id) {
    v1::JobSpec spec = MakeJob(id);
    spec.set_owner(owner);
    Register(spec);
  }

  absl::StatusOr<v1::SubmitBatchesResponse> Submit(const std::string& id, uint64_t from, uint64_t to) {
    return client_->SubmitBatches(MakeSubmission(id, from, to));
  }

  absl::Status PlanBatch() {
    v1::PlanBatchRequest request;
    *request.mutable_job() = MakeJob("what-if");
    *request.mutable_batch() = MakeBatch(0);
    return client_->PlanBatch(request).status();
  }
};

TEST_F(QuotasTest, AFeederBeyondItsOwnersSamplesIsToldWhenAndFromWhereToGoOn) {
  Serve({.engine = {.owners = {.samples_a_minute = 6}}});
  RegisterJobOf("a", "first");
  RegisterJobOf("a", "second");
  RegisterJobOf("b", "other");
  ASSERT_TRUE(Submit("first", 0, 10).ok());
  for (const char* id : {"first", "second"}) {
    const auto refused = Submit(id, id == std::string("first") ? 10 : 0, 11);
    EXPECT_THAT(refused, Fails(kExhausted,
                               "owner 'a' has used its samples, the quota is 6 a minute: try "
                               "again in 5m"));
    EXPECT_TRUE(RetryIteration(refused.status()).has_value()) << "clients wait for that";
  }
  EXPECT_TRUE(Submit("first", 0, 10).ok()) << "they are there";
  EXPECT_TRUE(Submit("other", 0, 10).ok());
  const std::string metrics = server_->metrics().Text();
  EXPECT_THAT(metrics, HasSubstr("penstock_owner_refusals_total{owner=\"a\",quota=\"samples\"} 2\n"));
  EXPECT_THAT(metrics, HasSubstr("penstock_owner_samples_total{owner=\"b\"} 40\n"));
}

TEST_F(QuotasTest, WhatIfsOfAHostThatNobodyKnowsShareAQuota) {
  Serve({.engine = {.owners = {.samples_a_minute = 6}}});
  EXPECT_TRUE(PlanBatch().ok());
  EXPECT_TRUE(PlanBatch().ok());
  EXPECT_THAT(PlanBatch(), Fails(kExhausted, "127.0.0.1 has used its samples"));
  EXPECT_THAT(server_->metrics().Text(), HasSubstr("penstock_owner_samples_total{owner=\"\"} 8\n"));
}

TEST_F(QuotasTest, WhoHasUsedItsPlanningTimeRegistersAndSubmitsNothingNew) {
  Serve({.engine = {.owners = {.planning_seconds_a_minute = 1e-9}}});
  // Its preparation is charged, a moment after it is there.
  RegisterJobOf("a", "first");
  absl::Status submitted;
  for (uint64_t next = 0; submitted.ok() && next < 1000; ++next)
    submitted = Submit("first", next, next + 1).status();
  EXPECT_THAT(submitted, Fails(kExhausted, "--planning-seconds-of-owner-a-minute"));
  v1::RegisterJobRequest request;
  *request.mutable_job() = MakeJob("second");
  request.mutable_job()->set_owner("a");
  EXPECT_THAT(client_->RegisterJob(request), Fails(kExhausted, "owner 'a' has used its planning time"));
  RegisterJobOf("b", "other");
}

TEST_F(QuotasTest, AStreamBeyondTheQuotaEndsAndThoseThatAreOpenGoOn) {
  Serve({.engine = {.owners = {.streams = 1}}});
  RegisterJobOf("a", "job");
  RegisterJobOf("b", "other");
  ASSERT_TRUE(Submit("job", 0, 2).ok());
  const auto open = Read("job", 0);
  EXPECT_TRUE(open->Next().ok());
  EXPECT_THAT(Read("job", 1)->Next(), Fails(kExhausted,
                                            "try again when one is closed, or raise "
                                            "--streams-of-owner"));
  EXPECT_TRUE(open->Next().ok());
  ASSERT_TRUE(Submit("other", 0, 1).ok());
  EXPECT_TRUE(Read("other", 0)->Next().ok());
}

}  // namespace
}  // namespace penstock
