#include "planner/service/state/length_drift.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

v1::PlanningOptions TypicalOf(const std::vector<uint32_t>& lengths) {
  v1::PlanningOptions planning;
  for (const uint32_t length : lengths) planning.add_typical_samples()->set_target_tokens(length);
  return planning;
}

v1::Batch BatchOf(const std::vector<uint32_t>& lengths) {
  v1::Batch batch;
  for (const uint32_t length : lengths) {
    v1::Sample* sample = batch.add_samples();
    sample->set_input_tokens(length / 2);
    sample->set_target_tokens(length - length / 2);
  }
  return batch;
}

TEST(LengthDriftTest, IsNoneOfSuchLengthsHoweverManySamplesThereAre) {
  LengthDrift drift(TypicalOf({100, 100, 1000}));
  EXPECT_EQ(drift.share(), std::nullopt);
  drift.Add(BatchOf({100, 100, 100, 100, 1000, 1000}));
  EXPECT_NEAR(*drift.share(), 0, 1e-12);
}

TEST(LengthDriftTest, IsTheShareOfTheTokensInSamplesOfOtherLengths) {
  LengthDrift drift(TypicalOf({300, 300, 300}));
  drift.Add(BatchOf({300, 300, 300, 100}));
  EXPECT_NEAR(*drift.share(), 0.1, 1e-12);
  LengthDrift all(TypicalOf({300}));
  all.Add(BatchOf({5000}));
  EXPECT_NEAR(*all.share(), 1, 1e-12);
}

TEST(LengthDriftTest, ForgetsBatchesOfLongAgo) {
  LengthDrift drift(TypicalOf({300}));
  for (int i = 0; i < 32; ++i) drift.Add(BatchOf({5000}));
  double before = *drift.share();
  EXPECT_NEAR(before, 1, 1e-12);
  for (int i = 0; i < 200; ++i) {
    drift.Add(BatchOf({300, 300, 300, 300}));
    EXPECT_LT(*drift.share(), before);
    before = *drift.share();
  }
  EXPECT_LT(before, 0.05);
}

TEST(LengthDriftTest, IsNotKnownOfAJobWithoutTypicalSamples) {
  LengthDrift drift{v1::PlanningOptions()};
  drift.Add(BatchOf({300}));
  EXPECT_EQ(drift.share(), std::nullopt);
}

TEST(LengthDriftTest, TakesAnyLength) {
  LengthDrift drift(TypicalOf({0, 4294967295}));
  drift.Add(BatchOf({0, 4294967295}));
  EXPECT_NEAR(*drift.share(), 0, 1e-12);
}

}  // namespace
}  // namespace penstock
