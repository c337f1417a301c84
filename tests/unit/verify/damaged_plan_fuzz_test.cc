// However a plan is damaged, the checker answers; it never crashes. Run under the sanitizers, this is what
// shows it.
#include <gtest/gtest.h>

#include <vector>

#include "planner/core/verify/check_plan.h"
#include "tests/support/message_mutator.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock::core {
namespace {

std::vector<FixtureOptions> Kinds() {
  return {{.pipeline = 2, .replicas = 2},
          {.pipeline = 4, .layout = v1::LAYOUT_PACKED, .architecture = v1::ARCHITECTURE_T5},
          {.pipeline = 2, .stages_per_rank = 2, .split_backward = true},
          {.pipeline = 2, .layout = v1::LAYOUT_CONCATENATED, .context = 2, .tensor = 2},
          {.pipeline = 1, .samples_per_micro_batch = 4, .layout = v1::LAYOUT_PACKED, .context = 4}};
}

TEST(DamagedPlans, AreJudgedWithoutACrash) {
  int rejected = 0;
  const int rounds = 600;
  for (const FixtureOptions& options : Kinds()) {
    const v1::PlannedBatch valid = MakeValidPlan(options);
    for (int seed = 0; seed < rounds; ++seed) {
      v1::PlannedBatch damaged = valid;
      MessageMutator damage(seed);
      for (int changes = 0; changes <= seed % 8; ++changes) damage.Apply(*damaged.mutable_plan());
      rejected += CheckPlan(damaged.batch(), damaged.plan()).empty() ? 0 : 1;
    }
  }
  // Whatever a change hits is part of the content hash; but it may write what was there before.
  EXPECT_GT(rejected, 4 * rounds);
}

}  // namespace
}  // namespace penstock::core
