// The schedule, its timeline, and the programs cut from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/simulate/memory_account.h"
#include "planner/core/simulate/simulator.h"
#include "tests/support/pass_lists.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// All micro-batches and stages take the same.
PipelineCosts UniformCosts(int stages, int micro_batches, int64_t forward, int64_t backward,
                           int64_t transfer) {
  PipelineCosts costs;
  costs.Resize(stages, micro_batches);
  for (auto& time : costs.forward_ns) time = forward;
  for (auto& time : costs.backward_ns) time = backward;
  for (auto& time : costs.transfer_ns) time = transfer;
  costs.positions = stages;
  costs.position_of_stage.resize(stages);
  std::iota(costs.position_of_stage.begin(), costs.position_of_stage.end(), 0);
  return costs;
}

// As "F0 F1 B0 ..." of one rank.
std::string PassNames(const RankPasses& passes, int rank) {
  std::string names;
  for (int32_t i = passes.rank_begin[rank]; i < passes.rank_begin[rank + 1]; ++i) {
    const Pass& pass = passes.passes[i];
    absl::StrAppend(&names, names.empty() ? "" : " ",
                    absl::string_view("FBIW").substr(static_cast<int>(pass.kind), 1), pass.micro_batch);
  }
  return names;
}

TEST(OneForwardOneBackwardTest, StagesRunAheadByTheirDistanceToTheEnd) {
  const RankPasses passes = ListOneForwardOneBackward(UniformCosts(3, 4, 10, 20, 0)).passes;
  EXPECT_EQ(PassNames(passes, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(PassNames(passes, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(PassNames(passes, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(ListSchedulerTest, AUniformPipelineTakesWhatTheFormulaSays) {
  // (micro-batches + stages - 1) * (forward + backward).
  EXPECT_EQ(ListOneForwardOneBackward(UniformCosts(4, 6, 10, 20, 0)).makespan_ns, (6 + 3) * 30);
}

TEST(ListSchedulerTest, OneMicroBatchPaysForEveryTransferTwice) {
  EXPECT_EQ(ListOneForwardOneBackward(UniformCosts(3, 1, 10, 20, 7)).makespan_ns, 3 * 30 + 4 * 7);
}

TEST(ListSchedulerTest, ASplitBackwardPassFillsTheDrainWithWeightGradients) {
  PipelineCosts costs = UniformCosts(4, 6, 10, 20, 0);
  for (auto& time : costs.weight_ns) time = 10;
  ScheduleRules rules;
  rules.split = {0, 1, 1, 1};
  rules.eager_weights = {1, 1, 1, 1};
  const ListedPasses listed = ListPasses(costs, rules);
  // The work of a rank, the fill of the last one, and at most one weight gradient in the way.
  EXPECT_LE(listed.makespan_ns, 6 * 30 + 3 * 10 + 10);
  EXPECT_THAT(PassNames(listed.passes, 3), ::testing::EndsWith("W5"));
}

TEST(PipelineTimelineTest, OppositeTransfersOfALinkWaitForEachOther) {
  // Two stages, two micro-batches, transfers longer than passes: forward 0 ends at 1, its transfer at 11, the
  // next at 21. Backward 0 ends at 13: its gradient waits for the link until 21.
  PipelineTimeline timeline;
  const PipelineCosts costs = UniformCosts(2, 2, 1, 1, 10);
  ASSERT_TRUE(timeline.Run(costs, ListOneForwardOneBackward(costs).passes));
  for (const PipelineEvent& event : timeline.events()) {
    if (event.kind == EventKind::kTransferStart && event.gradient && event.micro_batch == 0) {
      EXPECT_EQ(event.time_ns, 21);
    }
  }
  // Gradient 0 until 31, gradient 1 (ready at 23) until 41, and the last backward pass.
  EXPECT_EQ(timeline.makespan_ns(), 42);
}

TEST(PipelineTimelineTest, EqualsTheListScheduleWhenNothingIsSent) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const int stages = 1 + static_cast<int>(random() % 6);
    const int micro_batches = 1 + static_cast<int>(random() % 12);
    PipelineCosts costs = UniformCosts(stages, micro_batches, 0, 0, 0);
    for (auto& time : costs.forward_ns) time = 1 + random() % 100;
    for (auto& time : costs.backward_ns) time = 1 + random() % 200;
    PipelineTimeline timeline;
    const ListedPasses listed = ListOneForwardOneBackward(costs);
    ASSERT_TRUE(timeline.Run(costs, listed.passes));
    EXPECT_EQ(listed.makespan_ns, timeline.makespan_ns());
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
  pipeline.costs.positions = costs.positions();
  pipeline.costs.position_of_stage = costs.position_of_stage();
  pipeline.passes = ListOneForwardOneBackward(pipeline.costs).passes;
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

}  // namespace
}  // namespace penstock::core
