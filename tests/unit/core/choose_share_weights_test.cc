// Which weights of shares are chosen for a job.
#include "planner/core/strategies/choose_share_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/strategies/strategy_planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::JobSpec ShareJob(uint32_t pipeline, uint32_t data) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_parameter_shares(true);
  return job;
}

std::vector<v1::Batch> TwoBatches() {
  return {MakeBatch({{0, 300}, {0, 200}, {0, 250}, {0, 100}, {0, 80}, {0, 60}, {0, 60}, {0, 90}}),
          MakeBatch({{0, 200}, {0, 150}, {0, 220}, {0, 120}, {0, 90}, {0, 40}, {0, 30}, {0, 70}})};
}

ShareWeightsChoice ChoiceFor(const v1::JobSpec& job) {
  const absl::StatusOr<ShareWeightsChoice> choice = ChooseShareWeights(job, TwoBatches());
  EXPECT_TRUE(choice.ok()) << choice.status();
  return choice.ok() ? *choice : ShareWeightsChoice();
}

TEST(ChooseShareWeightsTest, AreAlikeWhereNothingElseGains) {
  for (const v1::JobSpec& job : {ShareJob(1, 4), ShareJob(4, 1), ShareJob(2, 2)}) {
    const ShareWeightsChoice choice = ChoiceFor(job);
    EXPECT_THAT(choice.chosen.weights, IsEmpty());
    EXPECT_TRUE(choice.alike_fits());
    EXPECT_EQ(choice.chosen.iteration_ns, choice.alike.iteration_ns);
  }
}

TEST(ChooseShareWeightsTest, GiveASlowRankLessToUpdateWhereTheUpdateTakesLong) {
  v1::JobSpec job = ShareJob(1, 4);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(20);
  v1::SlowRank* slow = job.mutable_profile()->add_slow_ranks();
  slow->set_rank(2);
  slow->set_factor(3);
  const ShareWeightsChoice choice = ChoiceFor(job);
  ASSERT_THAT(choice.chosen.weights, SizeIs(4));
  EXPECT_EQ(choice.chosen.weights[0], 1000U);
  EXPECT_EQ(choice.chosen.weights[2], 333U);
  EXPECT_LT(choice.chosen.iteration_ns, 0.999 * choice.alike.iteration_ns);
  // 20 ns for each of 3000 bytes, three times as long; of 3600 bytes as long as the profile says. RESHARDs
  // take longer.
  const double gain = choice.alike.iteration_ns - choice.chosen.iteration_ns;
  EXPECT_LT(gain, 180'000 - 72'000);
  EXPECT_GT(gain, 0.95 * (180'000 - 72'000));
}

TEST(ChooseShareWeightsTest, AreThoseWithWhichAPlanIsAsLongAsIsSaid) {
  v1::JobSpec job = ShareJob(1, 2);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(20);
  v1::SlowRank* slow = job.mutable_profile()->add_slow_ranks();
  slow->set_rank(1);
  slow->set_factor(2);
  const ShareWeightsChoice choice = ChoiceFor(job);
  SetShareWeights(choice, &job);
  const auto planner = StrategyPlanner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  double sum = 0;
  int64_t peak = 0;
  for (const v1::Batch& batch : TwoBatches()) {
    const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch);
    ASSERT_TRUE(plan.ok()) << plan.status();
    sum += static_cast<double>(plan->predicted().makespan_ns());
    for (const v1::RankPrediction& rank : plan->predicted().ranks())
      peak = std::max(peak, rank.peak_memory_bytes());
  }
  EXPECT_EQ(choice.chosen.iteration_ns, sum / 2);
  EXPECT_EQ(choice.chosen.peak_bytes, peak);
}

// The last stage has a head that leaves no room for an equal share.
TEST(ChooseShareWeightsTest, LetAJobFitThatWouldNot) {
  v1::JobSpec job = ShareJob(2, 1);
  job.mutable_profile()->mutable_layers(1)->set_parameter_bytes(200'000);
  job.mutable_planning()->set_memory_limit_bytes(700'000);
  ASSERT_FALSE(StrategyPlanner::Create(job, Planner::Explain::kCauseAlone).ok());
  const ShareWeightsChoice choice = ChoiceFor(job);
  EXPECT_FALSE(choice.alike_fits());
  ASSERT_THAT(choice.chosen.weights, SizeIs(2));
  EXPECT_GT(choice.chosen.weights[0], 2 * choice.chosen.weights[1]);
  EXPECT_LE(choice.chosen.peak_bytes, 700'000);
}

// Where RESHARDs and updates take next to nothing.
TEST(ChooseShareWeightsTest, LeaveTheFullestRankRoomForMicroBatches) {
  v1::JobSpec job = ShareJob(2, 1);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e14);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(0);
  job.mutable_profile()->mutable_layers(1)->set_parameter_bytes(200'000);
  const ShareWeightsChoice roomy = ChoiceFor(job);
  job.mutable_planning()->set_memory_limit_bytes(roomy.alike.peak_bytes * 95 / 100);
  const ShareWeightsChoice choice = ChoiceFor(job);
  ASSERT_THAT(choice.chosen.weights, SizeIs(2));
  EXPECT_LT(choice.chosen.weights[1], choice.chosen.weights[0]);
  EXPECT_LE(choice.chosen.peak_bytes, job.planning().memory_limit_bytes());
}

TEST(ChooseShareWeightsTest, AreAlikeWhereEmptierRanksWouldMakeReshardsTooLong) {
  v1::JobSpec job = ShareJob(2, 1);
  job.mutable_profile()->mutable_layers(1)->set_parameter_bytes(200'000);
  EXPECT_THAT(ChoiceFor(job).chosen.weights, IsEmpty());
}

TEST(ChooseShareWeightsTest, AreForAllStrategiesOfAJob) {
  v1::JobSpec job = ShareJob(2, 1);
  job.mutable_planning()->clear_layers_per_stage();
  job.mutable_profile()->mutable_layers(1)->set_parameter_bytes(200'000);
  *job.add_strategies()->add_meshes()->mutable_mesh() = MakeMesh(2, 1, 1, 1);
  v1::Strategy* tensors = job.add_strategies();
  *tensors->add_meshes()->mutable_mesh() = MakeMesh(1, 1, 2, 1);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    v1::TensorCost* cost = layer.add_tensor();
    cost->set_degree(2);
    cost->set_efficiency(1);
  }
  job.mutable_planning()->set_memory_limit_bytes(800'000);
  const ShareWeightsChoice choice = ChoiceFor(job);
  EXPECT_FALSE(choice.alike_fits());
  ASSERT_THAT(choice.chosen.weights, SizeIs(2));
  SetShareWeights(choice, &job);
  EXPECT_TRUE(StrategyPlanner::Create(job, Planner::Explain::kCauseAlone).ok());
}

// Samples of a batch are short; others may come that are as long as the model takes.
TEST(ChooseShareWeightsTest, HoldWhateverEqualSharesHold) {
  v1::JobSpec job = ShareJob(2, 1);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e14);
  job.mutable_profile()->set_optimizer_ns_per_parameter_byte(0);
  job.mutable_profile()->mutable_layers(1)->set_parameter_bytes(200'000);
  job.mutable_profile()->mutable_layers(0)->mutable_stored_full()->set_target_token_bytes(30);
  int differ = 0;
  for (const int64_t limit : {850'000, 900'000, 950'000, 1'000'000, 1'100'000}) {
    job.mutable_planning()->set_memory_limit_bytes(limit);
    job.mutable_planning()->clear_share_weights();
    const auto longest = [&] {
      const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
      EXPECT_TRUE(planner.ok()) << planner.status();
      uint32_t length = 0;
      while (planner.ok() && length < 4096 &&
             (*planner)->ValidateBatch(MakeBatch({{0, length + 16}}), Planner::Explain::kCauseAlone).ok())
        length += 16;
      return length;
    };
    const uint32_t equal = longest();
    const ShareWeightsChoice choice = ChoiceFor(job);
    differ += choice.chosen.weights.empty() ? 0 : 1;
    SetShareWeights(choice, &job);
    EXPECT_GE(longest(), equal) << limit;
  }
  EXPECT_GT(differ, 0);
}

TEST(ChooseShareWeightsTest, SayWhatIsWrongWhereNoneHelp) {
  v1::JobSpec job = ShareJob(2, 1);
  job.mutable_planning()->set_memory_limit_bytes(20'000);
  EXPECT_THAT(std::string(ChooseShareWeights(job, TwoBatches()).status().message()),
              HasSubstr("limit 20000"));
  job = ShareJob(2, 1);
  job.mutable_planning()->clear_parameter_shares();
  EXPECT_THAT(std::string(ChooseShareWeights(job, TwoBatches()).status().message()),
              HasSubstr("job.planning.share_weights"));
  EXPECT_FALSE(ChooseShareWeights(ShareJob(2, 1), {}).ok());
}

TEST(ChooseShareWeightsTest, AreNoneWhenItIsStopped) {
  StopFlag flag;
  flag.Set();
  EXPECT_TRUE(absl::IsCancelled(
      ChooseShareWeights(ShareJob(2, 1), TwoBatches(), RunSerially, StopToken(&flag)).status()));
}

}  // namespace
}  // namespace penstock::core
