#include "planner/service/page/length_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::IsEmpty;

v1::Batch BatchOf(const std::vector<std::pair<uint32_t, uint32_t>>& lengths) {
  v1::Batch batch;
  for (const auto& [input, target] : lengths) {
    v1::Sample* sample = batch.add_samples();
    sample->set_input_tokens(input);
    sample->set_target_tokens(target);
  }
  return batch;
}

TEST(LengthHistogramTest, CountsSamplesAndTokensInBucketsThatDouble) {
  EXPECT_THAT(LengthHistogram(BatchOf({{0, 4}, {3, 4}, {1, 7}, {0, 33}})),
              ElementsAre(FieldsAre(4, 7, 2, 11), FieldsAre(8, 15, 1, 8), FieldsAre(16, 31, 0, 0),
                          FieldsAre(32, 63, 1, 33)));
}

TEST(LengthHistogramTest, TakesTheLongestSamplesThatThereMayBe) {
  const uint32_t most = ~uint32_t{0};
  const uint64_t both = uint64_t{most} + most;
  EXPECT_THAT(LengthHistogram(BatchOf({{most, most}})),
              ElementsAre(FieldsAre(uint64_t{1} << 32, (uint64_t{1} << 33) - 1, 1, both)));
}

TEST(LengthHistogramTest, OfNoSamplesIsEmpty) { EXPECT_THAT(LengthHistogram({}), IsEmpty()); }

}  // namespace
}  // namespace penstock
