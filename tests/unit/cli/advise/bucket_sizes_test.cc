// Which size of gradients' buckets is planned to be the fastest.
#include "planner/cli/advise/bucket_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/cli/advise/levers.h"
#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;

constexpr uint64_t kMib = uint64_t{1} << 20;

// Eight layers of 32 MB in float32 on each replica, summed beside passes.
v1::JobSpec JobWithSums(double bytes_per_second) {
  v1::JobSpec job = core::GptJob(1, 4, v1::POLICY_PACKED);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(32e6);
  v1::Cluster& cluster = *job.mutable_profile()->mutable_cluster();
  cluster.set_exchange_overlap(1);
  cluster.set_intra_node_bytes_per_second(bytes_per_second);
  return job;
}

std::vector<v1::Batch> TwoBatches() {
  return {core::MakeBatch({{0, 3000}, {0, 2500}, {0, 2700}, {0, 2800}}),
          core::MakeBatch({{0, 1000}, {0, 1500}, {0, 1200}, {0, 900}})};
}

absl::StatusOr<std::optional<SizedBuckets>> Fastest(const v1::JobSpec& job) {
  const auto planner = core::Planner::Create(job);
  EXPECT_TRUE(planner.ok()) << planner.status();
  return FastestBuckets(job, (*planner)->topology(), TwoBatches(), core::RunSerially);
}

TEST(WalkToFastestTest, GoesUpOrDownAsLongAsItTakesLess) {
  for (const uint64_t fastest : {1, 2, 3, 4, 5}) {
    std::map<uint64_t, int> asked;
    const auto walked = WalkToFastest({1, 2, 3, 4, 5}, 3, [&](uint64_t size) -> absl::StatusOr<int64_t> {
      ++asked[size];
      return std::abs(static_cast<int64_t>(size) - static_cast<int64_t>(fastest));
    });
    ASSERT_TRUE(walked.ok()) << walked.status();
    EXPECT_EQ(*walked, fastest);
    for (const auto& [size, times] : asked) EXPECT_EQ(times, 1) << size;
  }
}

// Of 2 and 4 there are as many buckets as of 3.
TEST(WalkToFastestTest, GoesOnWhereTwoTakeTheSame) {
  const auto walked = WalkToFastest({1, 2, 3, 4, 5}, 3, [](uint64_t size) -> absl::StatusOr<int64_t> {
    return size == 5 ? 6 : size == 1 ? 5 : 7;
  });
  EXPECT_EQ(*walked, 5U);
}

TEST(WalkToFastestTest, StaysWhereNothingTakesLess) {
  const auto walked = WalkToFastest({1, 2, 3}, 2, [](uint64_t) -> absl::StatusOr<int64_t> { return 7; });
  EXPECT_EQ(*walked, 2U);
  EXPECT_FALSE(WalkToFastest({1}, 1, [](uint64_t) -> absl::StatusOr<int64_t> {
                 return absl::InternalError("no");
               }).ok());
}

TEST(BucketSizesTest, AreThoseThatDifferForTheLayersOfARank) {
  EXPECT_THAT(OtherBucketSizes(JobWithSums(1e9)), ElementsAre(kMib, 16 * kMib, 64 * kMib, kMib << 20));
  v1::JobSpec small = JobWithSums(1e9);
  small.mutable_profile()->mutable_layers(0)->set_parameter_bytes(1e6);
  small.mutable_planning()->set_gradient_bucket_bytes(16 * kMib);
  EXPECT_THAT(OtherBucketSizes(small), ElementsAre(kMib, 4 * kMib));
}

// All sizes that are tried, one by one, on all batches.
TEST(FastestBucketsTest, TakeNoLongerThanAnyOtherSize) {
  const v1::JobSpec job = JobWithSums(1e12);
  const auto fastest = Fastest(job);
  ASSERT_TRUE(fastest.ok() && fastest->has_value()) << fastest.status();
  for (const uint64_t bytes : OtherBucketSizes(job)) {
    v1::JobSpec sized = job;
    sized.mutable_planning()->set_gradient_bucket_bytes(bytes);
    EXPECT_LE((*fastest)->planned_ns, *PlannedNs(sized, TwoBatches())) << bytes;
  }
  EXPECT_LE((*fastest)->planned_ns, (*fastest)->before_ns);
  EXPECT_LT((*fastest)->planned_ns, *PlannedNs(job, TwoBatches())) << "planned behind the passes";
}

// Latencies that are longer than a bucket.
TEST(FastestBucketsTest, AreLargeOnLinksOfLongLatency) {
  v1::JobSpec job = JobWithSums(1e13);
  job.mutable_planning()->set_gradient_bucket_bytes(kMib);
  job.mutable_profile()->mutable_cluster()->set_intra_node_latency_ns(1e6);
  const auto fastest = Fastest(job);
  ASSERT_TRUE(fastest.ok() && fastest->has_value()) << fastest.status();
  EXPECT_GT((*fastest)->bytes, 16 * kMib);
  EXPECT_LT((*fastest)->planned_ns, (*fastest)->before_ns);
}

TEST(FastestBucketsTest, AreNotLookedForWherePassesHideNothing) {
  v1::JobSpec job = JobWithSums(1e12);
  job.mutable_profile()->mutable_cluster()->set_exchange_overlap(0);
  EXPECT_FALSE((*Fastest(job)).has_value());
  v1::JobSpec alone = core::GptJob(4, 1, v1::POLICY_PACKED);
  alone.mutable_profile()->mutable_cluster()->set_exchange_overlap(1);
  EXPECT_FALSE((*Fastest(alone)).has_value());
}

}  // namespace
}  // namespace penstock::cli
