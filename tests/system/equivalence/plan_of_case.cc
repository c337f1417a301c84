#include "tests/system/equivalence/plan_of_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

namespace penstock::testing {
namespace {

bool Contains(const v1::Plan& plan, v1::Op op) {
  for (const v1::Program& program : plan.programs()) {
    for (const v1::Instruction& instruction : program.instructions()) {
      if (instruction.op() == op) return true;
    }
  }
  return false;
}

}  // namespace

void ExpectPlanOf(const v1::JobSpec& job, const v1::Plan& plan) {
  const v1::PlanningOptions& options = job.planning();
  // One rank never waits for another, and waiting is what a split pass is for. The dynamic policy may find a
  // plan in which nobody waits, too.
  const bool may_have_whole_passes = job.mesh().pipeline() == 1 || options.policy() == v1::POLICY_DYNAMIC;
  if (options.schedule() == v1::SCHEDULE_SPLIT_BACKWARD && !may_have_whole_passes) {
    EXPECT_TRUE(Contains(plan, v1::OP_BACKWARD_WEIGHT)) << "no backward pass is split";
  }
  if (!options.rank_of_stage().empty()) {
    EXPECT_EQ(plan.layers_per_stage_size(), options.rank_of_stage_size());
  }
  for (const v1::Replica& replica : plan.replicas()) {
    EXPECT_TRUE(plan.programs_size() == 1 || !replica.micro_batches().empty());
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      for (int stage = 0; stage < micro_batch.recompute_size(); ++stage) {
        const v1::StageRecompute& recompute = micro_batch.recompute(stage);
        const uint32_t layers = plan.layers_per_stage(stage);
        if (options.recompute() == v1::RECOMPUTE_FULL) {
          EXPECT_EQ(recompute.full_layers(), layers);
        }
        if (options.recompute() == v1::RECOMPUTE_SELECTIVE) {
          EXPECT_EQ(recompute.selective_layers(), layers);
        }
      }
    }
  }
}

bool ComputesBesideExchanges(const v1::Plan& plan) {
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      if (!micro_batch.part_rows().empty()) return true;
  }
  for (const v1::Program& program : plan.programs()) {
    for (const v1::Instruction& instruction : program.instructions())
      if (instruction.exchange().products_beside_return() > 0) return true;
  }
  return false;
}

size_t MostDifferentSpans(const v1::Plan& plan) {
  size_t most = 0;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      const std::set<uint32_t> own(micro_batch.span_ranks().begin(), micro_batch.span_ranks().end());
      most = std::max(most, own.size());
    }
  }
  return most;
}

}  // namespace penstock::testing
