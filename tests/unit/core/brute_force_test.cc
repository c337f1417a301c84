// The brute force itself: against schedules worked out by hand, and against searches without any pruning.
#include "tests/unit/core/brute_force.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/planner.h"
#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/simulate/bubble.h"
#include "planner/core/simulate/memory_account.h"
#include "planner/core/simulate/simulator.h"
#include "tests/support/sanitizers.h"
#include "tests/unit/core/brute_force_exact.h"
#include "tests/unit/core/brute_force_schedule.h"
#include "tests/unit/core/naive_schedule.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

SmallPass RandomPass(bool sends, Random* random) {
  SmallPass pass;
  pass.forward_ns = random->Range(1, 12);
  pass.weight_ns = random->Range(0, 12);
  pass.choices.push_back({pass.weight_ns + random->Range(0, 12), random->Range(4, 10)});
  if (random->Chance(60)) pass.choices.push_back({pass.choices[0].backward_ns + random->Range(1, 5), 2});
  pass.forward_bytes = random->Range(0, 2);
  pass.backward_bytes = random->Range(0, 4);
  pass.received_bytes = random->Range(0, 2);
  pass.put_aside_bytes = pass.choices[0].kept_bytes - pass.received_bytes;
  if (sends) pass.transfer_ns = pass.link_ns = random->Range(0, 9);
  return pass;
}

SmallPipeline RandomPipeline(uint64_t seed) {
  Random random(seed);
  SmallPipeline pipeline;
  static const std::vector<std::vector<int32_t>> kPlacements = {{0}, {0, 1}, {0, 0}, {0, 1, 0}, {0, 1, 2}};
  const uint32_t placement = random.Range(0, 4);
  pipeline.position_of_stage = kPlacements[placement];
  pipeline.stages = static_cast<int>(pipeline.position_of_stage.size());
  pipeline.split = random.Chance(60);
  // Three stages of two micro-batches are too many orders, and two stages with split passes and transfers.
  pipeline.micro_batches = static_cast<int>(random.Range(1, pipeline.stages == 3 ? 1 : 2));
  const bool too_many = pipeline.split && pipeline.micro_batches == 2;
  pipeline.positions =
      1 + *std::max_element(pipeline.position_of_stage.begin(), pipeline.position_of_stage.end());
  for (int m = 0; m < pipeline.micro_batches; ++m) {
    for (int s = 0; s < pipeline.stages; ++s) {
      const bool sends =
          s + 1 < pipeline.stages && pipeline.position_of_stage[s] != pipeline.position_of_stage[s + 1];
      pipeline.passes.push_back(RandomPass(sends && !too_many, &random));
    }
  }
  const int64_t bytes = random.Chance(30) ? 1000 : random.Range(6, 40);
  pipeline.available_bytes.assign(pipeline.positions, bytes);
  for (int s = 0; s < pipeline.stages; ++s) pipeline.reduce_ns.push_back(random.Range(0, 9));
  return pipeline;
}

TEST(BruteForceTest, PruningLosesNoSchedule) {
  int possible = 0;
  int waited = 0;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(Cases(120)); ++seed) {
    const SmallPipeline pipeline = RandomPipeline(seed);
    const int64_t naive = NaiveBestEnd(pipeline);
    int64_t nodes = 1000000;
    const SmallSchedule best = BestSchedule(pipeline, kForever, /*any=*/false, &nodes);
    ASSERT_TRUE(best.complete) << seed;
    ASSERT_EQ(best.found, naive < kForever) << seed;
    if (!best.found) continue;
    ++possible;
    EXPECT_EQ(best.end_ns, naive) << "seed " << seed << "\n" << best.text;
    EXPECT_LE(LeastEnd(pipeline), naive) << seed;
    EXPECT_FALSE(BestSchedule(pipeline, naive, false, &nodes).found) << seed;
    EXPECT_TRUE(BestSchedule(pipeline, naive + 1, false, &nodes).found) << seed;
    if (pipeline.available_bytes[0] < 1000) ++waited;
  }
  EXPECT_GT(possible, Cases(60));
  EXPECT_GT(waited, Cases(20));
}

SmallPipeline TwoStages(int micro_batches, bool split) {
  SmallPipeline pipeline;
  pipeline.stages = 2;
  pipeline.positions = 2;
  pipeline.position_of_stage = {0, 1};
  pipeline.micro_batches = micro_batches;
  SmallPass pass;
  pass.forward_ns = 10;
  pass.weight_ns = 10;
  pass.choices = {{20, 1}};
  pass.put_aside_bytes = 1;
  pass.transfer_ns = pass.link_ns = 1;
  for (int i = 0; i < micro_batches * 2; ++i) pipeline.passes.push_back(pass);
  pipeline.available_bytes = {100, 100};
  pipeline.reduce_ns = {0, 0};
  pipeline.split = split;
  return pipeline;
}

int64_t BestEnd(const SmallPipeline& pipeline) {
  int64_t nodes = 100000;
  return BestSchedule(pipeline, kForever, false, &nodes).end_ns;
}

TEST(BruteForceTest, FindsWhatCanBeWorkedOutByHand) {
  // Up 10 + 1 + 10, back 20 + 1 + 20; split: the second stage's weight pass is off the way.
  EXPECT_EQ(BestEnd(TwoStages(1, false)), 62);
  EXPECT_EQ(BestEnd(TwoStages(1, true)), 52);
  // The second rank works without a break from 11 on for 60, then the gradient and its 20.
  EXPECT_EQ(BestEnd(TwoStages(2, false)), 92);
  EXPECT_EQ(OneForwardOneBackwardEnd(TwoStages(2, false), {0, 1}), 92);
  EXPECT_EQ(ExactOneForwardOneBackwardEnd(TwoStages(2, false), {0, 1}), 92);
  // Its last input gradient ends at 51 at the earliest: 1 + 10 + 10 more.
  EXPECT_EQ(BestEnd(TwoStages(2, true)), 72);
  // With room for one micro-batch only, the second enters when the first has left.
  SmallPipeline narrow = TwoStages(2, false);
  narrow.available_bytes = {1, 1};
  EXPECT_EQ(BestEnd(narrow), 124);
}

// Builds the programs of every order of passes and every choice of recompute, and asks the simulator when
// they end.
class NaiveExact {
 public:
  NaiveExact(const CostModel& costs, const SmallPipeline& pipeline)
      : costs_(costs), pipeline_(pipeline), phase_(pipeline.passes.size(), 0) {
    replica_.costs.Resize(pipeline.stages, pipeline.micro_batches);
    replica_.costs.positions = pipeline.positions;
    replica_.costs.position_of_stage = pipeline.position_of_stage;
    replica_.recompute.resize(pipeline.passes.size());
    for (size_t i = 0; i < pipeline.passes.size(); ++i) {
      replica_.costs.forward_ns[i] = pipeline.passes[i].forward_ns;
      replica_.costs.weight_ns[i] = pipeline.passes[i].weight_ns;
      replica_.costs.transfer_ns[i] = pipeline.passes[i].transfer_ns;
      replica_.memory.push_back(pipeline.passes[i].memory);
    }
  }

  // kForever when nothing fits; nothing when there are more orders than `most`.
  std::optional<int64_t> Best(int64_t most) {
    left_ = most;
    Extend(0);
    if (left_ < 0) return std::nullopt;
    return best_;
  }

  int64_t fitting() const { return fitting_; }
  int64_t tried() const { return tried_; }

 private:
  // Puts one more pass of the rank at its end, or goes on with the next rank.
  void Extend(int rank) {
    if (rank == pipeline_.positions) return Try();
    bool done = true;
    for (size_t i = 0; i < phase_.size() && left_ >= 0; ++i) {
      if (pipeline_.position_of_stage[i % pipeline_.stages] != rank || phase_[i] == 3) continue;
      done = false;
      if (phase_[i] == 0) {
        for (const PassChoice& choice : pipeline_.passes[i].choices) {
          replica_.costs.backward_ns[i] = choice.backward_ns;
          replica_.recompute[i] = choice.recompute;
          Add(rank, i, PassKind::kForward, 1);
        }
      } else if (phase_[i] == 1) {
        Add(rank, i, PassKind::kBackward, 3);
        if (pipeline_.split && pipeline_.passes[i].weight_ns > 0) {
          Add(rank, i, PassKind::kBackwardInput, 2);
        }
      } else {
        Add(rank, i, PassKind::kBackwardWeight, 3);
      }
    }
    if (done) Extend(rank + 1);
  }

  void Add(int rank, size_t i, PassKind kind, int phase) {
    const int before = phase_[i];
    phase_[i] = phase;
    const int stages = pipeline_.stages;
    order_.push_back({kind, static_cast<int>(i) % stages, static_cast<int>(i) / stages});
    Extend(rank);
    order_.pop_back();
    phase_[i] = before;
  }

  void Try() {
    if (--left_ < 0) return;
    replica_.passes = ByRank(order_, pipeline_.position_of_stage, pipeline_.positions);
    const auto programs = BuildPrograms(costs_, {&replica_, 1});
    if (!programs.ok()) return;
    ++tried_;
    const std::vector<RankMemory> memory = AccountMemory(*programs);
    for (int rank = 0; rank < pipeline_.positions; ++rank) {
      const int64_t limit = pipeline_.available_bytes[rank] + programs->static_bytes[rank];
      if (memory[rank].peak_bytes > limit) return;
    }
    ++fitting_;
    EXPECT_TRUE(simulator_.Run(*programs).ok());
    best_ = std::min(best_, LastPassEnd(*programs, simulator_));
  }

  const CostModel& costs_;
  const SmallPipeline& pipeline_;
  std::vector<int> phase_;
  std::vector<Pass> order_;
  ReplicaPipeline replica_;
  Simulator simulator_;
  int64_t left_ = 0;
  int64_t tried_ = 0;
  int64_t fitting_ = 0;
  int64_t best_ = kForever;
};

// A planner of one replica for a few samples.
std::unique_ptr<Planner> SmallPlanner(int seed, bool plenty, Batch* batch, v1::Batch* proto) {
  RandomJobLimits limits;
  limits.samples = 3;
  limits.pipeline = 3;
  limits.replicas = 1;
  limits.layers = 4;
  RandomPlanningCase given = MakeRandomCase(seed, limits);
  given.job.mutable_planning()->set_policy(v1::POLICY_DYNAMIC);
  if (plenty) given.job.mutable_planning()->set_memory_limit_bytes(int64_t{1} << 40);
  auto planner = Planner::Create(given.job);
  if (!planner.ok()) return nullptr;
  const auto samples = BatchFromProto(given.batch, (*planner)->job());
  if (!samples.ok()) return nullptr;
  *batch = *samples;
  *proto = given.batch;
  return *std::move(planner);
}

// Every sample alone, and memory from too little to enough for most orders.
SmallPipeline TightPipeline(const Planner& planner, const Batch& batch, Random* random) {
  std::vector<std::vector<uint32_t>> micro_batches;
  for (uint32_t sample = 0; sample < batch.samples.size(); ++sample) micro_batches.push_back({sample});
  SmallPipeline pipeline = MakePackedPipeline(planner.costs(), planner.job(), batch.samples, micro_batches);
  std::vector<int64_t> most(pipeline.positions, 0);
  for (size_t i = 0; i < pipeline.passes.size(); ++i) {
    const SmallPass& pass = pipeline.passes[i];
    most[pipeline.position_of_stage[i % pipeline.stages]] +=
        pass.choices.front().kept_bytes + pass.memory.peak + pass.memory.input + pass.memory.output;
  }
  const uint32_t percent = random->Range(30, 110);
  for (int rank = 0; rank < pipeline.positions; ++rank) {
    pipeline.available_bytes[rank] = most[rank] * percent / 100;
  }
  return pipeline;
}

TEST(BruteForceTest, ExactSearchLosesNoOrder) {
  Random random(5);
  int found = 0;
  int bound_by_memory = 0;
  for (int seed = 0; seed < Cases(300); ++seed) {
    Batch batch;
    v1::Batch proto;
    const auto planner = SmallPlanner(seed, /*plenty=*/true, &batch, &proto);
    if (planner == nullptr) continue;
    const SmallPipeline pipeline = TightPipeline(*planner, batch, &random);
    NaiveExact naive(planner->costs(), pipeline);
    const std::optional<int64_t> optimum = naive.Best(/*most=*/3000);
    if (!optimum.has_value()) continue;
    int64_t nodes = 1000000;
    const SmallSchedule best = BestExactSchedule(planner->costs(), pipeline, kForever, /*any=*/false, &nodes);
    ASSERT_TRUE(best.complete) << seed;
    ASSERT_EQ(best.found, *optimum < kForever) << seed;
    const SmallSchedule any = BestExactSchedule(planner->costs(), pipeline, kForever, /*any=*/true, &nodes);
    EXPECT_EQ(any.found, best.found) << seed;
    if (!best.found) continue;
    ++found;
    EXPECT_EQ(best.end_ns, *optimum) << seed << "\n" << best.text;
    if (naive.fitting() < naive.tried()) ++bound_by_memory;
  }
  EXPECT_GT(found, Cases(50));
  EXPECT_GT(bound_by_memory, Cases(25));
}

// Where memory is plenty both searches have the same schedules: these transfers never wait in another order.
TEST(BruteForceTest, ExactOptimumIsBetweenTheOptimisticOneAndThePlan) {
  int plenty_jobs = 0;
  int tight_jobs = 0;
  for (int seed = 0; seed < Cases(600); ++seed) {
    Batch batch;
    v1::Batch proto;
    const bool plenty = seed % 4 == 0;
    const auto planner = SmallPlanner(seed, plenty, &batch, &proto);
    if (planner == nullptr || planner->job().schedule == ScheduleFamily::kOneForwardOneBackward) continue;
    BruteForceOptions options{kForever, /*nodes=*/20000};
    const BruteForceAnswer optimistic = BruteForce(planner->costs(), planner->job(), batch.samples, options);
    options.exact = true;
    const BruteForceAnswer exact = BruteForce(planner->costs(), planner->job(), batch.samples, options);
    if (!optimistic.complete || !exact.complete) continue;
    EXPECT_TRUE(optimistic.found || !exact.found) << seed;
    const auto plan = planner->MakePlan(proto);
    if (plan.ok()) {
      EXPECT_TRUE(exact.found) << seed;
      EXPECT_LE(exact.makespan_ns, plan->predicted().makespan_ns()) << seed;
    }
    if (!exact.found) continue;
    if (plenty) {
      ++plenty_jobs;
      EXPECT_EQ(exact.makespan_ns, optimistic.makespan_ns) << seed;
    } else if (exact.makespan_ns > optimistic.makespan_ns) {
      ++tight_jobs;
    }
    EXPECT_GE(exact.makespan_ns, optimistic.makespan_ns) << seed;
  }
  EXPECT_GT(plenty_jobs, Cases(60));
  EXPECT_GE(tight_jobs, Cases(6));
}

}  // namespace
}  // namespace penstock::core
