// Valid plans of every kind pass the checker.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "planner/core/verify/check_plan.h"
#include "tests/unit/verify/plan_fixture.h"
#include "tests/unit/verify/plan_sealing.h"

namespace penstock::core {
namespace {

std::string MessagesOf(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations)
    text += std::to_string(violation.rule) + ": " + violation.message + "\n";
  return text;
}

// With no more memory than each program needs in its own order.
void ExpectValid(const FixtureOptions& options) {
  v1::PlannedBatch planned = MakeValidPlan(options);
  for (v1::Program& program : *planned.mutable_plan()->mutable_programs())
    program.set_memory_limit_bytes(PeakOf(program));
  Seal(planned.mutable_plan());
  const std::vector<Violation> violations = CheckPlan(planned.batch(), planned.plan());
  EXPECT_TRUE(violations.empty()) << MessagesOf(violations);
  EXPECT_TRUE(ViolationsToStatus(violations).ok());
}

class ValidPlans
    : public testing::TestWithParam<std::tuple<int, int, int, v1::Layout, v1::Architecture, bool>> {};

TEST_P(ValidPlans, Pass) {
  const auto [pipeline, replicas, micro_batches, layout, architecture, split] = GetParam();
  ExpectValid({.pipeline = pipeline,
               .replicas = replicas,
               .micro_batches = micro_batches,
               .layout = layout,
               .architecture = architecture,
               .split_backward = split});
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ValidPlans,
    testing::Combine(testing::Values(1, 2, 4), testing::Values(1, 2), testing::Values(1, 5),
                     testing::Values(v1::LAYOUT_PADDED, v1::LAYOUT_PACKED, v1::LAYOUT_CONCATENATED),
                     testing::Values(v1::ARCHITECTURE_GPT, v1::ARCHITECTURE_T5), testing::Bool()));

TEST(ValidPlansWithSeveralStagesOnARank, Pass) {
  ExpectValid({.pipeline = 2, .stages_per_rank = 2});
  ExpectValid({.pipeline = 1, .stages_per_rank = 4});
}

TEST(ValidPlansOfRenumberedRanks, PassInEveryOrder) {
  std::vector<int> numbers = {0, 1, 2, 3};
  int orders = 0;
  do {
    ++orders;
    for (const bool split : {false, true})
      ExpectValid({.pipeline = 2, .replicas = 2, .split_backward = split, .rank_numbers = numbers});
    ExpectValid({.pipeline = 1, .replicas = 2, .context = 2, .rank_numbers = numbers});
    ExpectValid({.pipeline = 2, .replicas = 1, .tensor = 2, .rank_numbers = numbers});
  } while (std::next_permutation(numbers.begin(), numbers.end()));
  EXPECT_EQ(orders, 24);
}

// Context ranks, tensor ranks, layout, split backward pass, layers recomputed.
class ValidPlansOfStageGroups : public testing::TestWithParam<std::tuple<int, int, v1::Layout, bool, int>> {};

TEST_P(ValidPlansOfStageGroups, Pass) {
  const auto [context, tensor, layout, split, full] = GetParam();
  FixtureOptions options;
  options.samples_per_micro_batch = 5;
  options.layout = layout;
  options.split_backward = split;
  options.context = context;
  options.tensor = tensor;
  options.full_layers = full;
  ExpectValid(options);
  options.stages_per_rank = 2;
  options.full_layers = std::min(full, 2);
  ExpectValid(options);
  if (context > 1) return;
  options.architecture = v1::ARCHITECTURE_T5;
  ExpectValid(options);
}

INSTANTIATE_TEST_SUITE_P(Groups, ValidPlansOfStageGroups,
                         testing::Combine(testing::Values(1, 2, 4), testing::Values(1, 2),
                                          testing::Values(v1::LAYOUT_PADDED, v1::LAYOUT_PACKED,
                                                          v1::LAYOUT_CONCATENATED),
                                          testing::Bool(), testing::Values(0, 1, 4)));

TEST(ValidPlansWithConcatenatedRows, Pass) {
  for (const v1::Architecture architecture : {v1::ARCHITECTURE_GPT, v1::ARCHITECTURE_T5})
    ExpectValid(
        {.samples_per_micro_batch = 5, .layout = v1::LAYOUT_CONCATENATED, .architecture = architecture});
}

TEST(ValidPlansOfSmallBatches, MayLeaveAReplicaEmptyWhenSamplesAreTooFew) {
  v1::PlannedBatch planned = MakeValidPlan({.pipeline = 1, .replicas = 2, .micro_batches = 0});
  EXPECT_TRUE(CheckPlan(planned.batch(), planned.plan()).empty());
}

TEST(ViolationsToStatus, NamesTheFirstRuleAndTheCount) {
  const absl::Status status = ViolationsToStatus({{2, 0, 5, "no RECV"}, {6, 0, 7, "too much"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rule 2 (transfers): no RECV (2 in all)"));
}

}  // namespace
}  // namespace penstock::core
