#include "planner/service/state/admission.h"

#include <gtest/gtest.h>

#include "penstock/client/retry_iteration.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

constexpr uint64_t kNoLimit = 1'000'000;

class AdmissionTest : public testing::Test {
 protected:
  // Accepts the iterations 10, 11, 12 with content "a", "b", "c".
  AdmissionTest() {
    for (const char* hash : {"a", "b", "c"}) admission_.Accept(hash);
  }
  Admission admission_{10};
};

TEST_F(AdmissionTest, TheNextIterationIsNew) { EXPECT_EQ(*admission_.CountKnown(13, {"d"}, kNoLimit), 0); }

TEST_F(AdmissionTest, TheSameContentAgainIsKnown) {
  EXPECT_EQ(*admission_.CountKnown(10, {"a", "b", "c"}, kNoLimit), 3);
}

TEST_F(AdmissionTest, ARequestMayOverlapWhatIsKnown) {
  EXPECT_EQ(*admission_.CountKnown(12, {"c", "d", "e"}, kNoLimit), 1);
}

TEST_F(AdmissionTest, OtherContentExistsAlready) {
  EXPECT_THAT(admission_.CountKnown(11, {"b", "x"}, kNoLimit),
              Fails(absl::StatusCode::kAlreadyExists, "iteration 12"));
}

TEST_F(AdmissionTest, AGapIsRefused) {
  EXPECT_THAT(admission_.CountKnown(14, {"e"}, kNoLimit),
              Fails(absl::StatusCode::kFailedPrecondition, "iteration 13 is expected next"));
}

TEST_F(AdmissionTest, AGapThatReachesBeyondTheWindowIsToldWhereToRetryFrom) {
  const absl::Status status = admission_.CountKnown(160, {"x"}, /*limit=*/26).status();
  EXPECT_THAT(status, Fails(absl::StatusCode::kResourceExhausted, "iteration 160 is beyond"));
  EXPECT_THAT(RetryIteration(status), testing::Optional(13));
}

TEST_F(AdmissionTest, NothingComesBeforeTheFirstIteration) {
  EXPECT_THAT(admission_.CountKnown(9, {"z"}, kNoLimit),
              Fails(absl::StatusCode::kInvalidArgument, "first_iteration 10"));
}

TEST_F(AdmissionTest, BeyondTheWindowNothingIsTakenAndTheRetryIterationIsNamed) {
  const absl::Status status = admission_.CountKnown(12, {"c", "d", "e"}, /*limit=*/14).status();
  EXPECT_THAT(status, Fails(absl::StatusCode::kResourceExhausted, "iteration 14 is beyond"));
  EXPECT_THAT(RetryIteration(status), testing::Optional(13));
}

TEST_F(AdmissionTest, TheLastIterationOfTheWindowIsTaken) {
  EXPECT_EQ(*admission_.CountKnown(13, {"d", "e"}, /*limit=*/15), 0);
}

TEST_F(AdmissionTest, KnownContentIsFineBehindAWindowThatMovedBack) {
  EXPECT_EQ(*admission_.CountKnown(11, {"b", "c"}, /*limit=*/12), 2);
}

TEST_F(AdmissionTest, RemembersTheLast4096Iterations) {
  while (admission_.next_iteration() < 10 + 4100) admission_.Accept("later");
  EXPECT_EQ(*admission_.CountKnown(14, {"later"}, kNoLimit), 1);
  EXPECT_THAT(admission_.CountKnown(13, {"later"}, kNoLimit),
              Fails(absl::StatusCode::kFailedPrecondition, "too old"));
}

TEST(ContentHashTest, DependsOnTheIterationAndOnEverySample) {
  const v1::Batch batch = MakeBatch(3);
  v1::Batch other = batch;
  other.mutable_samples(2)->set_input_tokens(1);
  EXPECT_EQ(ContentHash(batch.SerializeAsString()), ContentHash(MakeBatch(3).SerializeAsString()));
  EXPECT_NE(ContentHash(batch.SerializeAsString()), ContentHash(other.SerializeAsString()));
  EXPECT_NE(ContentHash(batch.SerializeAsString()), ContentHash(MakeBatch(4).SerializeAsString()));
}

}  // namespace
}  // namespace penstock
