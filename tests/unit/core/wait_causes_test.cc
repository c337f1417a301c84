// Why ranks waited, by what the others did meanwhile.
#include "planner/core/timeline/wait_causes.h"

#include <gtest/gtest.h>

#include "planner/core/planner.h"
#include "planner/core/timeline/operation_of_instruction.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

v1::Plan PlanOfTwoStages() {
  const auto planner = Planner::Create(GptJob(2, 2, v1::POLICY_DYNAMIC));
  EXPECT_TRUE(planner.ok()) << planner.status();
  const auto plan = (*planner)->MakePlan(MakeBatch({{0, 10}, {0, 20}, {0, 30}, {0, 40}}));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

// The first that comes in on the rank.
const v1::Instruction& ArrivalOn(const v1::Program& program) {
  for (const v1::Instruction& instruction : program.instructions())
    if (IsArrival(program, instruction)) return instruction;
  ADD_FAILURE() << "nothing comes in";
  return program.instructions(0);
}

const v1::Instruction& SendOf(const v1::Plan& plan, uint32_t to, const v1::Instruction& arrival) {
  const v1::Transfer& awaited =
      plan.programs(static_cast<int>(to)).instructions(static_cast<int>(arrival.transfer_id())).transfer();
  for (const v1::Instruction& instruction : plan.programs(static_cast<int>(awaited.peer())).instructions()) {
    const bool sends = instruction.op() == v1::OP_SEND && instruction.transfer().peer() == to;
    if (sends && instruction.transfer().sequence() == awaited.sequence()) return instruction;
  }
  ADD_FAILURE() << "nobody sends it";
  return arrival;
}

WaitCause CauseOf(int64_t wait_ns, int64_t send_ns) {
  const v1::Plan plan = PlanOfTwoStages();
  const v1::Instruction& arrival = ArrivalOn(plan.programs(1));
  TimesByRank times(plan.programs_size());
  times[1].push_back({.id = arrival.id(), .start_ns = wait_ns, .duration_ns = 50});
  times[0].push_back({.id = SendOf(plan, 1, arrival).id(), .start_ns = send_ns, .duration_ns = 20});
  const auto causes = WaitCauses(plan, times);
  EXPECT_EQ(causes[1].size(), 1u);
  return causes[1].at(arrival.id());
}

TEST(WaitCausesTest, WhatIsNotSentYetIsWaitedForUntilItIs) {
  const WaitCause cause = CauseOf(/*wait_ns=*/100, /*send_ns=*/130);
  EXPECT_EQ(cause.rank, 0u);
  EXPECT_EQ(cause.late_ns, 30);
  EXPECT_EQ(cause.transfer_ns, 20);
}

TEST(WaitCausesTest, WhatIsOnItsWayIsWaitedForAsATransfer) {
  const WaitCause cause = CauseOf(/*wait_ns=*/100, /*send_ns=*/90);
  EXPECT_EQ(cause.late_ns, 0);
  EXPECT_EQ(cause.transfer_ns, 50);
}

TEST(WaitCausesTest, ACollectiveWaitsForItsLastRank) {
  const v1::Plan plan = PlanOfTwoStages();
  TimesByRank times(plan.programs_size());
  // Ranks 0 and 2 hold the first stage of the two replicas.
  for (const int rank : {0, 2}) {
    for (const v1::Instruction& instruction : plan.programs(rank).instructions()) {
      if (instruction.op() != v1::OP_REDUCE_GRADIENTS) continue;
      times[rank].push_back(
          {.id = instruction.id(), .start_ns = 100 + 40 * rank, .duration_ns = 200 - 40 * rank});
    }
  }
  const auto causes = WaitCauses(plan, times);
  ASSERT_EQ(causes[0].size(), 1u);
  EXPECT_EQ(causes[0].begin()->second.rank, 2u);
  EXPECT_EQ(causes[0].begin()->second.late_ns, 80);
  EXPECT_EQ(causes[0].begin()->second.transfer_ns, 120);
  EXPECT_EQ(causes[2].begin()->second.late_ns, 0);
}

}  // namespace
}  // namespace penstock::core
