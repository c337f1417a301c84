// What passes hide of RESHARDs: the formula against rounds one by one, and plans that have it.
#include "planner/core/cost/reshard_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "planner/core/strategies/strategy_planner.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"
#include "tests/unit/core/sound_plan.h"

namespace penstock::core {
namespace {

// The first or the last one on a stage.
struct OuterPass {
  int64_t layers = 0;
  double start = 0;
  double end = 0;
};

// A rank's stages, the lowest first.
using RankPasses = std::vector<OuterPass>;

RankPasses RandomRank(int64_t layers, Random* random) {
  const auto stages =
      static_cast<int64_t>(random->Range(1, static_cast<uint32_t>(std::min<int64_t>(3, layers))));
  RankPasses rank(static_cast<size_t>(stages), {.layers = 1});
  for (int64_t layer = stages; layer < layers; ++layer)
    ++rank[random->Range(0, static_cast<uint32_t>(stages) - 1)].layers;
  // In any order, one after the other.
  std::vector<size_t> order;
  for (size_t stage = 0; stage < rank.size(); ++stage) order.push_back(stage);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random->Range(0, static_cast<uint32_t>(i) - 1)]);
  double now = random->Range(0, 1000);
  for (const size_t stage : order) {
    rank[stage].start = now;
    now += random->Range(1, 1000);
    rank[stage].end = now;
    now += random->Chance(50) ? 0 : random->Range(0, 300);
  }
  return rank;
}

// When the gradients of a rank's layers have been made, from the uppermost one down.
std::vector<double> MadeAt(const RankPasses& rank) {
  std::vector<double> made;
  for (size_t stage = rank.size(); stage-- > 0;) {
    const OuterPass& pass = rank[stage];
    for (int64_t layer = 1; layer <= pass.layers; ++layer)
      made.push_back(pass.start +
                     (pass.end - pass.start) * static_cast<double>(layer) / static_cast<double>(pass.layers));
  }
  return made;
}

// When the parameters of a rank's layers are used, from the lowest one up.
std::vector<double> UsedAt(const RankPasses& rank) {
  std::vector<double> used;
  for (const OuterPass& pass : rank) {
    for (int64_t layer = 0; layer < pass.layers; ++layer)
      used.push_back(pass.start +
                     (pass.end - pass.start) * static_cast<double>(layer) / static_cast<double>(pass.layers));
  }
  return used;
}

// The least of all stages of all ranks. `apart`: of a pass.
template <typename Apart>
double LeastLead(const std::vector<RankPasses>& ranks, int64_t layers, const ReshardTime& time, Apart apart) {
  double lead = std::numeric_limits<double>::infinity();
  for (const RankPasses& rank : ranks) {
    int64_t below = 0;
    for (const OuterPass& pass : rank) {
      const StageOfRank of_rank = {.layers_of_rank = layers, .layers = pass.layers, .below = below};
      lead = std::min(lead, apart(pass) + time.LeadNs(static_cast<int64_t>(pass.end - pass.start), of_rank));
      below += pass.layers;
    }
  }
  return lead;
}

// Rounds of a layer of each rank, one after the other.
TEST(ReshardTimeTest, IsThatOfRoundsThatBeginWhenAllRanksHaveMadeTheirs) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const int64_t layers = random.Range(1, 12);
    const ReshardTime time = {.whole_ns = random.Range(1, 3000), .rounds = layers, .overlap = 1};
    std::vector<RankPasses> ranks;
    for (uint32_t rank = 0; rank < random.Range(1, 4); ++rank) ranks.push_back(RandomRank(layers, &random));
    double end = 0, now = 0;
    for (int64_t round = 0; round < layers; ++round) {
      for (const RankPasses& rank : ranks) {
        now = std::max(now, MadeAt(rank)[static_cast<size_t>(round)]);
        for (const OuterPass& pass : rank) end = std::max(end, pass.end);
      }
      now += static_cast<double>(time.whole_ns) / static_cast<double>(layers);
    }
    const double lead = LeastLead(ranks, layers, time, [&](const OuterPass& pass) { return end - pass.end; });
    // Never before the passes have ended: somebody's last layer is made then.
    EXPECT_NEAR(static_cast<double>(time.LeftNs(lead)), now - end, 1.01) << "seed " << seed;
    EXPECT_GE(time.LeftNs(lead), time.LeastLeftNs()) << "seed " << seed;
  }
}

TEST(ReshardTimeTest, OfParametersIsThatOfRoundsForWhichNoLayerWaits) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const int64_t layers = random.Range(1, 12);
    const ReshardTime time = {.whole_ns = random.Range(1, 3000), .rounds = layers, .overlap = 1};
    std::vector<RankPasses> ranks;
    for (uint32_t rank = 0; rank < random.Range(1, 4); ++rank) ranks.push_back(RandomRank(layers, &random));
    double begin = std::numeric_limits<double>::infinity();
    for (const RankPasses& rank : ranks)
      for (const OuterPass& pass : rank) begin = std::min(begin, pass.start);
    double before = 0;
    for (const RankPasses& rank : ranks) {
      const std::vector<double> used = UsedAt(rank);
      for (int64_t round = 0; round < layers; ++round) {
        const double there =
            static_cast<double>(time.whole_ns) * static_cast<double>(round + 1) / static_cast<double>(layers);
        before = std::max(before, there - (used[static_cast<size_t>(round)] - begin));
      }
    }
    const double lead =
        LeastLead(ranks, layers, time, [&](const OuterPass& pass) { return pass.start - begin; });
    EXPECT_NEAR(static_cast<double>(time.LeftNs(lead)), before, 1.01) << "seed " << seed;
    EXPECT_GE(time.LeftNs(lead), time.LeastLeftNs()) << "seed " << seed;
  }
}

// Random passes, of whatever ranks; links are slower or faster than was thought.
TEST(ReshardTimeTest, HowLongAllRoundsTookFollowsFromWhatPassesLeftOfThem) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const int64_t layers = random.Range(1, 12);
    const ReshardTime time = {.whole_ns = 100'000 * random.Range(1, 30),
                              .rounds = random.Range(1, static_cast<uint32_t>(layers)),
                              .overlap = 0.25 * random.Range(0, 4)};
    ReshardTime truth = time;
    truth.whole_ns = time.whole_ns * random.Range(1, 40) / 10;
    std::vector<PassBeside> passes(random.Range(0, 4));
    double lead = passes.empty() ? 0 : std::numeric_limits<double>::infinity();
    for (PassBeside& pass : passes) {
      pass.stage.layers = random.Range(1, static_cast<uint32_t>(layers));
      pass.stage.below = random.Range(0, static_cast<uint32_t>(layers - pass.stage.layers));
      pass.stage.layers_of_rank = layers;
      pass.apart_ns = 1000.0 * random.Range(0, 500);
      pass.pass_ns = 1000 * random.Range(1, 3000);
      lead = std::min(lead, pass.apart_ns + truth.LeadNs(pass.pass_ns, pass.stage));
    }
    EXPECT_NEAR(
        time.FactorOf(static_cast<double>(truth.LeftNs(lead)), passes) * static_cast<double>(time.whole_ns),
        static_cast<double>(truth.whole_ns), 20)
        << "seed " << seed;
  }
}

TEST(ReshardTimeTest, IsAllOfItWhereNothingGoesOnBesideComputing) {
  const ReshardTime time = {.whole_ns = 1000, .rounds = 10, .overlap = 0};
  EXPECT_EQ(time.LeftNs(500), 1000);
  const ReshardTime half = {.whole_ns = 1000, .rounds = 10, .overlap = 0.5};
  EXPECT_EQ(half.LeftNs(500), 750);
  EXPECT_EQ(half.LeftNs(-3), 1000);
  const ReshardTime one = {.whole_ns = 1000, .rounds = 1, .overlap = 1};
  EXPECT_EQ(one.LeastLeftNs(), 1000) << "a round waits for all";
}

// With layers of so many bytes; an exchange goes on beside all that ranks compute.
v1::JobSpec LargeJob(uint32_t pipeline, uint32_t data, double bytes) {
  v1::JobSpec job = GptJob(pipeline, data, v1::POLICY_PACKED);
  job.mutable_planning()->set_parameter_shares(true);
  job.mutable_planning()->set_schedule(v1::SCHEDULE_READY_FIRST);
  job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(bytes);
  v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
  cluster->set_exchange_overlap(1);
  cluster->set_intra_node_bytes_per_second(1e12);
  return job;
}

// Duration of the RESHARD of this part, the same on all ranks.
int64_t ReshardOf(const v1::Plan& plan, uint32_t part) {
  for (const v1::Instruction& instruction : plan.programs(0).instructions())
    if (instruction.op() == v1::OP_RESHARD && instruction.part() == part)
      return instruction.expected_duration_ns();
  return -1;
}

TEST(ReshardTimeTest, APlanLeavesTheLastRoundWhereAPassTakesLonger) {
  // Two replicas need 80,004,000 bytes each: 40,002,000 go, nine rounds of 4 MiB, of which there are eight.
  const v1::Batch batch = MakeBatch({{0, 3000}, {0, 3000}});
  const v1::Plan plan = SoundPlanOf(LargeJob(1, 2, 1e7), batch);
  constexpr int64_t kWhole = 40'002 + 100;
  EXPECT_EQ(ReshardOf(plan, 0), kWhole - kWhole * 7 / 8);
  EXPECT_EQ(ReshardOf(plan, 1), kWhole - kWhole * 7 / 8);
  EXPECT_EQ(plan.predicted().ranks(0).bubble().fill_ns(), ReshardOf(plan, 0));
  EXPECT_EQ(plan.predicted().makespan_ns() - plan.predicted().last_backward_ns() - ReshardOf(plan, 1),
            plan.programs(0).instructions().rbegin()->expected_duration_ns());
}

TEST(ReshardTimeTest, APlanLeavesWhatIsLongerThanItsLastPasses) {
  v1::JobSpec job = LargeJob(1, 2, 1e7);
  job.mutable_profile()->mutable_cluster()->set_intra_node_bytes_per_second(1e10);
  const v1::Plan plan = SoundPlanOf(job, MakeBatch({{0, 3000}, {0, 3000}}));
  const v1::Instruction *first = nullptr, *last = nullptr;
  for (const v1::Instruction& instruction : plan.programs(0).instructions()) {
    if (instruction.op() == v1::OP_FORWARD) first = &instruction;
    if (instruction.op() == v1::OP_BACKWARD) last = &instruction;
  }
  ASSERT_NE(first, nullptr);
  ASSERT_NE(last, nullptr);
  constexpr int64_t kWhole = 4'000'200 + 100;
  ASSERT_LT(last->expected_duration_ns(), kWhole);
  EXPECT_EQ(ReshardOf(plan, 0), kWhole - first->expected_duration_ns() * 7 / 8);
  EXPECT_EQ(ReshardOf(plan, 1), kWhole - last->expected_duration_ns() * 7 / 8);
}

TEST(ReshardTimeTest, ARankWithoutAPassHoldsUpNoRound) {
  const v1::Plan plan = SoundPlanOf(LargeJob(1, 3, 1e7), MakeBatch({{0, 3000}, {0, 3000}}));
  // 53,336,000 bytes go in two messages.
  constexpr int64_t kWhole = 53'336 + 200;
  EXPECT_LT(ReshardOf(plan, 0), kWhole / 4);
  EXPECT_LT(ReshardOf(plan, 1), kWhole / 4);
}

TEST(ReshardTimeTest, MeshesSideBySideHaveWhatAllOfThemHide) {
  v1::JobSpec job = LargeJob(2, 1, 1e7);
  job.mutable_planning()->clear_layers_per_stage();
  v1::Strategy* strategy = job.add_strategies();
  for (const auto& [pipeline, data] : {std::pair{2U, 1U}, std::pair{1U, 2U}}) {
    v1::Mesh* mesh = strategy->add_meshes()->mutable_mesh();
    mesh->set_pipeline(pipeline);
    mesh->set_data(data);
  }
  *job.mutable_mesh() = strategy->meshes(0).mesh();
  const v1::Plan plan = SoundPlanOf(job, MakeBatch({{0, 3000}, {0, 3000}, {0, 2500}, {0, 2000}}));
  ASSERT_EQ(plan.meshes_size(), 2);
  // The fewest layers of a rank are four, of the pipeline.
  const auto planner = StrategyPlanner::Create(job, Planner::Explain::kCauseAlone);
  const int64_t whole = (*planner)->planner(0).planner(0).costs().ReshardNs();
  EXPECT_EQ(ReshardOf(plan, 0), whole - whole * 3 / 4);
  EXPECT_EQ(ReshardOf(plan, 1), whole - whole * 3 / 4);
}

}  // namespace
}  // namespace penstock::core
