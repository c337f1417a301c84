// The schedule, its timeline, memory fitting, and the programs cut from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "planner/core/comm/build_programs.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/schedule/memory_fit.h"
#include "planner/core/schedule/one_forward_one_backward.h"
#include "planner/core/schedule/pipeline_estimate.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/schedule/rank_passes.h"
#include "planner/core/simulate/bubble.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

CostModel ModelOf(const v1::JobSpec& spec) {
  const Job job = *JobFromProto(spec);
  return CostModel(*ProfileFromProto(spec.profile(), job.architecture), job);
}

// All micro-batches and stages take the same.
PipelineCosts UniformCosts(int stages, int micro_batches, int64_t forward, int64_t backward,
                           int64_t transfer) {
  PipelineCosts costs;
  costs.Resize(stages, micro_batches);
  for (auto& time : costs.forward_ns) time = forward;
  for (auto& time : costs.backward_ns) time = backward;
  for (auto& time : costs.transfer_ns) time = transfer;
  costs.ranks = stages;
  costs.rank_of_stage.resize(stages);
  std::iota(costs.rank_of_stage.begin(), costs.rank_of_stage.end(), 0);
  return costs;
}

RankPasses PassesOf(const PipelineCosts& costs, const PassOrder& order) {
  RankPasses passes;
  MakeRankPasses(costs, order, &passes);
  return passes;
}

TEST(OneForwardOneBackwardTest, StagesRunAheadByTheirDistanceToTheEnd) {
  PassOrder order;
  MakeOneForwardOneBackward(3, 4, &order);
  EXPECT_THAT(order.forwards_before, ElementsAre(3, 4, 4, 4, 2, 3, 4, 4, 1, 2, 3, 4));
}

TEST(PipelineEstimateTest, AUniformPipelineTakesWhatTheFormulaSays) {
  // (micro-batches + stages - 1) * (forward + backward).
  PassOrder order;
  MakeOneForwardOneBackward(4, 6, &order);
  EXPECT_EQ(PipelineEstimate().Run(UniformCosts(4, 6, 10, 20, 0), order), (6 + 3) * 30);
}

TEST(PipelineEstimateTest, OneMicroBatchPaysForEveryTransferTwice) {
  PassOrder order;
  MakeOneForwardOneBackward(3, 1, &order);
  EXPECT_EQ(PipelineEstimate().Run(UniformCosts(3, 1, 10, 20, 7), order), 3 * 30 + 4 * 7);
}

TEST(PipelineTimelineTest, OppositeTransfersOfALinkWaitForEachOther) {
  // Two stages, two micro-batches, transfers longer than passes: forward 0 ends at 1, its transfer at 11, the
  // next at 21. Backward 0 ends at 13: its gradient waits for the link until 21.
  PassOrder order;
  MakeOneForwardOneBackward(2, 2, &order);
  PipelineTimeline timeline;
  const PipelineCosts costs = UniformCosts(2, 2, 1, 1, 10);
  ASSERT_TRUE(timeline.Run(costs, PassesOf(costs, order)));
  for (const PipelineEvent& event : timeline.events()) {
    if (event.kind == EventKind::kTransferStart && event.gradient && event.micro_batch == 0) {
      EXPECT_EQ(event.time_ns, 21);
    }
  }
  // Gradient 0 until 31, gradient 1 (ready at 23) until 41, and the last backward pass.
  EXPECT_EQ(timeline.makespan_ns(), 42);
}

TEST(PipelineTimelineTest, EqualsTheEstimateWhenNothingIsSent) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const int stages = 1 + static_cast<int>(random() % 6);
    const int micro_batches = 1 + static_cast<int>(random() % 12);
    PipelineCosts costs = UniformCosts(stages, micro_batches, 0, 0, 0);
    for (auto& time : costs.forward_ns) time = 1 + random() % 100;
    for (auto& time : costs.backward_ns) time = 1 + random() % 200;
    PassOrder order;
    MakeOneForwardOneBackward(stages, micro_batches, &order);
    PipelineTimeline timeline;
    ASSERT_TRUE(timeline.Run(costs, PassesOf(costs, order)));
    EXPECT_EQ(PipelineEstimate().Run(costs, order), timeline.makespan_ns());
  }
}

// A replica with random micro-batches.
ReplicaPipeline RandomPipeline(const CostModel& costs, int micro_batches, std::mt19937* random) {
  ReplicaPipeline pipeline;
  pipeline.costs.Resize(costs.stages(), micro_batches);
  for (int m = 0; m < micro_batches; ++m) {
    TokenSums sums;
    AddPacked({0, static_cast<uint32_t>(1 + (*random)() % 500), 0}, &sums);
    LayerCosts layers;
    costs.Layers(sums, &layers);
    for (int stage = 0; stage < costs.stages(); ++stage) {
      const size_t at = pipeline.costs.at(m, stage);
      pipeline.memory.push_back(costs.Memory(stage, sums));
      pipeline.costs.forward_ns[at] = costs.ForwardNs(stage, layers);
      pipeline.costs.backward_ns[at] = costs.BackwardNs(stage, layers, {});
      pipeline.costs.transfer_ns[at] = pipeline.memory[at].output * ((*random)() % 20);
    }
  }
  pipeline.recompute.resize(pipeline.memory.size());
  pipeline.costs.ranks = costs.ranks();
  pipeline.costs.rank_of_stage = costs.rank_of_stage();
  PassOrder order;
  MakeOneForwardOneBackward(costs.stages(), micro_batches, &order);
  pipeline.passes = PassesOf(pipeline.costs, order);
  return pipeline;
}

TEST(BuildProgramsTest, MemoryEndsWhereItBegan) {
  std::mt19937 random(13);
  const CostModel costs = ModelOf(GptJob(4, 1, v1::POLICY_DYNAMIC));
  const ReplicaPipeline pipeline = RandomPipeline(costs, 7, &random);
  const ProgramSet programs = *BuildPrograms(costs, {&pipeline, 1});
  const std::vector<RankMemory> memory = AccountMemory(programs);
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    EXPECT_EQ(memory[rank].final_bytes, programs.static_bytes[rank]);
    EXPECT_GT(memory[rank].peak_bytes, programs.static_bytes[rank]);
  }
}

TEST(BuildProgramsTest, AReceiveStandsBeforeThePassDuringWhichItsTransferStarts) {
  std::mt19937 random(17);
  const CostModel costs = ModelOf(GptJob(3, 1, v1::POLICY_DYNAMIC));
  const ReplicaPipeline pipeline = RandomPipeline(costs, 8, &random);
  const ProgramSet programs = *BuildPrograms(costs, {&pipeline, 1});
  Simulator simulator;
  ASSERT_TRUE(simulator.Run(programs).ok());
  for (int rank = 0; rank < programs.ranks(); ++rank) {
    int64_t latest_end = 0;
    for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
      const Op op = programs.instructions[i].op;
      if (op == Op::kForward || op == Op::kBackward) latest_end = simulator.end_ns()[i];
      if (op == Op::kRecv) {
        EXPECT_LE(latest_end, simulator.start_ns()[i]);
      }
    }
  }
}

// Micro-batches of 100 tokens on a GPT: 4 layers a stage keep 40,000 bytes, 4,000 with full recompute.
PipelineMemory EqualMemory(const CostModel& costs, int micro_batches) {
  TokenSums sums;
  AddPacked({0, 100, 0}, &sums);
  PipelineMemory memory{costs.stages(), micro_batches, {}};
  for (int m = 0; m < micro_batches; ++m) {
    for (int stage = 0; stage < costs.stages(); ++stage) memory.memory.push_back(costs.Memory(stage, sums));
  }
  return memory;
}

TEST(MemoryFitTest, WithRoomThereIsNoRecomputeAndTheScheduleRunsFullyAhead) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  MemoryFitOptions options;
  options.available_bytes = {1'000'000, 1'000'000};
  std::vector<StageRecompute> recompute;
  PassOrder order;
  ASSERT_TRUE(FitMemory(costs, EqualMemory(costs, 3), options, &recompute, &order));
  EXPECT_THAT(order.forwards_before, ElementsAre(2, 3, 3, 1, 2, 3));
  EXPECT_THAT(recompute, Each(::testing::Field(&StageRecompute::full, 0)));
}

TEST(MemoryFitTest, OnlyAsManyLayersAreRecomputedAsMemoryAsksFor) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  MemoryFitOptions options;
  // Two micro-batches need 2 * (40,000 + 1,600 tokens) and 5,000 + 3 * 1,600 around them: 10,000 short of
  // 93,000.
  options.available_bytes = {83'000, 1'000'000};
  std::vector<StageRecompute> recompute;
  PassOrder order;
  ASSERT_TRUE(FitMemory(costs, EqualMemory(costs, 2), options, &recompute, &order));
  EXPECT_THAT(order.forwards_before, ElementsAre(2, 2, 1, 2));
  // A layer gives back 9,000 bytes: two layers of the second micro-batch.
  EXPECT_EQ(recompute[0].full, 0);
  EXPECT_EQ(recompute[2].full, 2);
  EXPECT_EQ(recompute[1].full + recompute[3].full, 0);
}

TEST(MemoryFitTest, WaitingInsteadOfRecomputeRunsLessFarAhead) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  MemoryFitOptions options;
  options.available_bytes = {83'000, 1'000'000};
  options.prefer_waiting = true;
  std::vector<StageRecompute> recompute;
  PassOrder order;
  ASSERT_TRUE(FitMemory(costs, EqualMemory(costs, 2), options, &recompute, &order));
  EXPECT_THAT(order.forwards_before, ElementsAre(1, 2, 1, 2));
  EXPECT_THAT(recompute, Each(::testing::Field(&StageRecompute::full, 0)));
}

TEST(MemoryFitTest, AMicroBatchThatDoesNotFitAloneIsRefused) {
  const CostModel costs = ModelOf(GptJob(2, 1, v1::POLICY_DYNAMIC));
  MemoryFitOptions options;
  options.available_bytes = {10'000, 1'000'000};
  std::vector<StageRecompute> recompute;
  PassOrder order;
  EXPECT_FALSE(FitMemory(costs, EqualMemory(costs, 2), options, &recompute, &order));
}

}  // namespace
}  // namespace penstock::core
