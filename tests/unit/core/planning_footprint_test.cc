// What planning was measured to take, and what is said of it beforehand.
#include "planner/core/footprint/planning_footprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "planner/core/footprint/packed_starts.h"
#include "planner/core/partition/groups.h"
#include "tests/bench/drawn_lengths.h"

namespace penstock::core {
namespace {

// Rows of planning_memory_bench (docs/results/2026-11-25-planner-memory.md). One stage a position.
struct Measured {
  int64_t samples, replicas, positions, context;
  double roomy, fill, packed;
  bool searches;
  // As foreseen (foresee/foreseen_size.h); 0: it was not looked at.
  int64_t micro_batch_size;
  double peak_megabytes;
};
constexpr Measured kMeasured[] = {
#include "tests/unit/core/measured_planning_memory.inc"
};

// A small plan takes what the process takes for it anyway.
constexpr double kSmall = 16;

PlanningShape ShapeOf(const Measured& row) {
  return {.samples = row.samples,
          .replicas = row.replicas,
          .stages = row.positions,
          .positions = row.positions,
          .group = row.context,
          .context = row.context,
          .roomy = row.roomy,
          .longest_fill = row.fill,
          .packed = row.packed,
          .searches = row.searches,
          .micro_batch_size = row.micro_batch_size};
}

TEST(PlanningFootprintTest, IsNeverBelowWhatWasMeasuredAndAtMostTwiceAsMuch) {
  for (const Measured& row : kMeasured) {
    const double estimate = static_cast<double>(FootprintOf(ShapeOf(row)).planning_bytes) / 1e6;
    EXPECT_GE(estimate, row.peak_megabytes)
        << row.samples << " samples, " << row.replicas << " x " << row.positions << " x " << row.context;
    EXPECT_LE(estimate, 2 * std::max(row.peak_megabytes, kSmall))
        << row.samples << " samples, " << row.replicas << " x " << row.positions << " x " << row.context;
  }
}

// Above all starts together that pack to a cap, and not far.
TEST(PlanningFootprintTest, MicroBatchesOfStartsThatPackAreForetold) {
  constexpr double kCaps[] = {1, 1.25, 1.5, 1.75, 2, 2.25};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<double> sizes = DrawLengths(seed, 300 + 10 * static_cast<int64_t>(seed));
    const double longest = *std::ranges::max_element(sizes);
    size_t made = 0;
    for (size_t cap = 0; cap < std::size(kCaps); ++cap) {
      made += FirstFitDecreasing(sizes, kCaps[cap] * longest).size();
      if (cap % 2 == 0) made += BudgetGroups(sizes, kCaps[cap] * longest).size();
    }
    const double foretold = PackedStartMicroBatches(sizes);
    EXPECT_GE(foretold, static_cast<double>(made)) << "seed " << seed;
    EXPECT_LE(foretold, 1.5 * static_cast<double>(made) + 6) << "seed " << seed;
  }
}

TEST(PlanningFootprintTest, MoreSamplesTakeMore) {
  const PlanningShape shape = ShapeOf(kMeasured[0]);
  int64_t before = 0;
  for (int64_t samples = 1; samples < 1'000'000; samples *= 3) {
    const PlanningFootprint footprint = FootprintOf(WithSamples(shape, samples));
    if (footprint.planning_bytes > kFewestPlanningBytes) {
      EXPECT_GT(footprint.planning_bytes, before);
    }
    before = footprint.planning_bytes;
  }
}

TEST(PlanningFootprintTest, TheLargestBatchFitsAndOneMoreSampleDoesNot) {
  const PlanningShape shape = WithSamples(ShapeOf(kMeasured[0]), 1'000'000);
  const PlanningRoom room = {.planning_bytes = 100'000'000};
  const int64_t most = MostSamples(shape, room);
  ASSERT_GT(most, 0);
  EXPECT_TRUE(Fits(FootprintOf(WithSamples(shape, most)), room));
  EXPECT_FALSE(Fits(FootprintOf(WithSamples(shape, most + 1)), room));
  EXPECT_EQ(MostSamples(shape, {.planning_bytes = 1000}), 0);
}

}  // namespace
}  // namespace penstock::core
