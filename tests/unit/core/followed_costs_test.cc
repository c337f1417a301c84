// Profiles that are wrong by a factor of two, after twenty iterations.
#include "tests/unit/core/followed_costs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/core/calibrate/revise_profile.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

constexpr int kIterations = 20;
constexpr double kMostError = 0.08;

struct WrongByTwo {
  std::string name;
  v1::JobSpec job;
  v1::CostProfile truth;
};

v1::CostProfile With(const v1::JobSpec& job, const CostFactors& factors) {
  return ReviseProfile(job.profile(), Architecture::kGpt, factors);
}

WrongByTwo All(double factor) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  CostFactors factors;
  factors.all = factor;
  return {"all", job, With(job, factors)};
}

// On the ranks of all replicas.
WrongByTwo OneStage(double factor) {
  const v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  return {"one stage", job, WithSlowRank(WithSlowRank(job.profile(), 1, factor), 5, factor)};
}

WrongByTwo Head(double factor) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  // As that of a large vocabulary: as long as two layers.
  job.mutable_profile()->mutable_layers(1)->mutable_forward()->set_target_token_ns(20);
  CostFactors factors;
  factors.forward[kHead] = {factor, factor, factor};
  return {"the head", job, With(job, factors)};
}

// Gradients of inputs take as long as before.
WrongByTwo WeightGradients() {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  CostFactors factors;
  factors.backward_ratio[kDecoder].fill(1.5);
  factors.weight_share = 2 / 1.5;
  return {"gradients of weights", job, With(job, factors)};
}

WrongByTwo Links(uint32_t pipeline, uint32_t data, bool divided_state) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_shard_optimizer_state(divided_state);
  // Slow enough to be felt.
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(4e7);
  CostFactors factors;
  factors.links.fill(2);
  return {"links of " + std::to_string(pipeline) + " stages and " + std::to_string(data) + " replicas" +
              (divided_state ? ", divided state" : ""),
          job, With(job, factors)};
}

TEST(FollowedCostsTest, AProfileThatIsWrongByTwoForetellsAfterTwentyIterations) {
  for (const WrongByTwo& wrong :
       {All(2), All(0.5), OneStage(2), Head(2), Head(0.5), WeightGradients(), Links(2, 2, false),
        Links(1, 2, false), Links(1, 4, false), Links(1, 2, true)}) {
    FollowedCosts costs(wrong.job);
    EXPECT_GT(costs.WorstErrorAhead(wrong.truth), kMostError) << wrong.name;
    costs.Train(wrong.truth, kIterations, /*noise=*/0.02);
    EXPECT_LT(costs.WorstErrorAhead(wrong.truth), kMostError) << wrong.name;
  }
}

TEST(FollowedCostsTest, SpeedsOfLinksAreFoundWithoutAPipeline) {
  for (const bool divided_state : {false, true}) {
    const WrongByTwo wrong = Links(1, 4, divided_state);
    FollowedCosts costs(wrong.job);
    costs.Train(wrong.truth, kIterations, /*noise=*/0.02);
    const v1::CostProfile& found = costs.versions().back();
    const double speed = wrong.truth.cluster().intra_node_bytes_per_second();
    EXPECT_NEAR(found.cluster().intra_node_bytes_per_second(), speed, 0.05 * speed);
    // Nothing else was wrong.
    const double token_ns = wrong.job.profile().layers(0).forward().target_token_ns();
    EXPECT_NEAR(found.layers(0).forward().target_token_ns(), token_ns, 0.05 * token_ns);
    EXPECT_NEAR(found.optimizer_ns_per_parameter_byte(), 0.5, 0.05);
  }
}

}  // namespace
}  // namespace penstock::core
