// The lower bound where it can be worked out by hand. Against optima of random jobs: random_jobs_test.cc.
#include "planner/core/bound/lower_bound.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// What is taken away for rounding, at most, in these tests.
constexpr int64_t kSlack = 100;

// A job with the figures of job_builder.h: a layer takes 1000 ns + 10 ns a token + 0.01 ns a squared token
// forward and twice that backward, half of it for weights; the head 500 ns + 5 ns a token.
struct Case {
  explicit Case(v1::JobSpec spec) : planner(*Planner::Create(spec)) {}

  int64_t Bound(const std::vector<uint32_t>& lengths) const {
    std::vector<SampleTokens> samples;
    for (const uint32_t length : lengths) samples.push_back({0, length, length});
    return LowerBound(planner->costs(), planner->job())(samples);
  }

  std::unique_ptr<Planner> planner;
};

// Without an optimizer and with links that take no time.
v1::JobSpec Gpt(uint32_t pipeline, uint32_t data = 1) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_DYNAMIC);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(0);
  v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
  for (auto set : {&v1::Cluster::set_intra_node_latency_ns, &v1::Cluster::set_inter_node_latency_ns}) {
    (cluster->*set)(0);
  }
  cluster->set_intra_node_bytes_per_second(1e18);
  cluster->set_inter_node_bytes_per_second(1e18);
  return job;
}

v1::JobSpec Unsplit(v1::JobSpec job) {
  job.mutable_planning()->set_schedule(v1::SCHEDULE_READY_FIRST);
  return job;
}

// Forward time of a layer, and of the head.
int64_t LayerNs(int64_t tokens) { return 1000 + 10 * tokens + tokens * tokens / 100; }
int64_t HeadNs(int64_t tokens) { return 500 + 5 * tokens; }

TEST(LowerBoundTest, OneSampleOnOneRankIsExact) {
  const int64_t exact = 3 * (8 * LayerNs(200) + HeadNs(200));
  EXPECT_NEAR(Case(Gpt(1)).Bound({200}), exact, kSlack);
  EXPECT_NEAR(Case(Unsplit(Gpt(1))).Bound({200}), exact, kSlack);
}

TEST(LowerBoundTest, TheWayOfOneSampleThroughAllStagesIsExact) {
  // Up and back through all layers. Split: of the weight gradients only those of the first stage's two
  // layers.
  const int64_t up = 8 * LayerNs(200) + HeadNs(200);
  EXPECT_NEAR(Case(Unsplit(Gpt(4))).Bound({200}), 3 * up, kSlack);
  EXPECT_NEAR(Case(Gpt(4)).Bound({200}), up + 8 * LayerNs(200) + 2 * HeadNs(200) + 2 * LayerNs(200), kSlack);
}

TEST(LowerBoundTest, ReductionAndOptimizerComeAfterTheLastBackwardPass) {
  v1::JobSpec job = Gpt(1, 2);
  const int64_t without = Case(job).Bound({200, 200});
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(0.5);
  // 8 layers of 1000 bytes, embedding and head of 2000 each.
  EXPECT_NEAR(Case(job).Bound({200, 200}) - without, 6000, 2);
  job.mutable_profile()->mutable_cluster()->set_intra_node_latency_ns(700);
  EXPECT_NEAR(Case(job).Bound({200, 200}) - without, 6000 + 2 * 700, 2);
}

TEST(LowerBoundTest, ReplicasShareTheWork) {
  const std::vector<uint32_t> lengths(40, 300);
  const int64_t one = Case(Gpt(1)).Bound(lengths);
  const int64_t four = Case(Gpt(1, 4)).Bound(lengths);
  // One overhead of 1000 ns a layer for each, once whatever the replicas.
  EXPECT_NEAR(4 * four - one, 3 * 3 * (8 * 1000 + 500), 4 * kSlack);
  // With fewer samples than replicas only so many have work.
  EXPECT_NEAR(Case(Gpt(1, 4)).Bound({300}), Case(Gpt(1)).Bound({300}), kSlack);
}

TEST(LowerBoundTest, IsExactWhereBackwardPassesHaveClosedFormsOfTheirOwn) {
  v1::JobSpec job = Gpt(4);
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  layer.mutable_backward_input()->set_target_square_ns(0.25);
  layer.mutable_backward_weight()->set_target_token_ns(3);
  layer.mutable_backward_weight()->set_fixed_ns(40);
  const int64_t input = 200 * 200 / 4;
  const int64_t weight = 3 * 200 + 40;
  const int64_t up = 8 * LayerNs(200) + HeadNs(200);
  EXPECT_NEAR(Case(Unsplit(job)).Bound({200}), up + 8 * (input + weight) + 2 * HeadNs(200), kSlack);
  EXPECT_NEAR(Case(job).Bound({200}), up + 8 * input + 2 * HeadNs(200) + 2 * weight, kSlack);
}

TEST(LowerBoundTest, SplittingNeverRaisesIt) {
  for (const uint32_t pipeline : {1, 2, 4}) {
    const std::vector<uint32_t> lengths = {30, 500, 20, 70, 1000};
    EXPECT_LE(Case(Gpt(pipeline)).Bound(lengths), Case(Unsplit(Gpt(pipeline))).Bound(lengths));
  }
}

TEST(LowerBoundTest, LessMemoryNeverLowersItAndRaisesItWhereItBinds) {
  const std::vector<uint32_t> lengths(20, 300);
  v1::JobSpec job = Gpt(2);
  const int64_t plenty = Case(job).Bound(lengths);
  int64_t before = plenty;
  for (const int64_t bytes : {1000000, 500000, 300000, 200000, 150000, 110000}) {
    job.mutable_planning()->set_memory_limit_bytes(bytes);
    const int64_t bound = Case(job).Bound(lengths);
    EXPECT_GE(bound, before - 2) << bytes;
    before = bound;
  }
  EXPECT_GT(before, plenty + plenty / 20);
}

TEST(LowerBoundTest, ManyMicroBatchesOrALongWaitForTheLastRank) {
  // Samples of one length on four stages: the last rank's work, behind the shortest fill, is not all.
  const std::vector<uint32_t> lengths(400, 10);
  const int64_t work = 3 * (2 * (LayerNs(10) - 1000) + HeadNs(10) - 500) * 400 + 3 * 2500;
  const int64_t fill = 6 * LayerNs(10);
  EXPECT_GT(Case(Gpt(4)).Bound(lengths), work + fill + 2 * 3 * 2500);
}

TEST(LowerBoundTest, StagesOfOneRankAddUp) {
  v1::JobSpec job = Unsplit(Gpt(2));
  const std::vector<uint32_t> lengths(30, 200);
  const int64_t even = Case(job).Bound(lengths);
  for (const uint32_t layers : {2, 2, 2, 2}) job.mutable_planning()->add_layers_per_stage(layers);
  for (const uint32_t rank : {0, 1, 1, 0}) job.mutable_planning()->add_rank_of_stage(rank);
  // Either rank has four layers in both; the second rank waits less before its first pass.
  EXPECT_NEAR(Case(job).Bound(lengths), even, even / 10);
  job.mutable_planning()->set_rank_of_stage(1, 0);
  EXPECT_GT(Case(job).Bound(lengths), even + even / 4);
}

TEST(LowerBoundTest, PaddedTablesBelowTheClosedFormLowerIt) {
  v1::JobSpec job = Gpt(1);
  const int64_t before = Case(job).Bound({64});
  v1::CostProfile* profile = job.mutable_profile();
  for (const uint32_t rows : {1, 8}) profile->mutable_grid()->add_micro_batch_size(rows);
  for (const uint32_t length : {64, 128}) profile->mutable_grid()->add_target_length(length);
  v1::LayerCost* layer = profile->mutable_layers(0);
  for (const int64_t tokens : {64, 128, 8 * 64, 8 * 128}) {
    // Half of the closed form, milliseconds; the forward pass alone.
    layer->mutable_forward_ms()->add_values(0.5e-6 * static_cast<double>(LayerNs(tokens)));
  }
  const int64_t after = Case(job).Bound({64});
  EXPECT_LT(after, before * 6 / 10);
  EXPECT_GT(after, before * 4 / 10);
}

}  // namespace
}  // namespace penstock::core
