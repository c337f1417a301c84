#include "common/dataset/length_statistics.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(LengthStatistics, TakesQuantilesByNearestRank) {
  const LengthStatistics statistics = SummarizeLengths({10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  EXPECT_EQ(statistics.samples, 10u);
  EXPECT_EQ(statistics.tokens, 55u);
  EXPECT_DOUBLE_EQ(statistics.mean, 5.5);
  const uint32_t expected[] = {1, 1, 3, 5, 8, 9, 10, 10};
  ASSERT_EQ(statistics.quantiles.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i)
    EXPECT_EQ(statistics.quantiles[i].tokens, expected[i]) << i;
}

TEST(LengthStatistics, CountsEverySampleInOneDoublingClass) {
  const LengthStatistics statistics = SummarizeLengths({0, 1, 3, 2, 16, 17, 31, 0xffffffff});
  ASSERT_EQ(statistics.histogram.front().last, 0u);
  EXPECT_EQ(statistics.histogram.back().last, 0xffffffffu);
  EXPECT_EQ(statistics.histogram.size(), 33u);
  EXPECT_EQ(statistics.histogram[2].first, 2u);
  EXPECT_EQ(statistics.histogram[2].samples, 2u);
  EXPECT_EQ(statistics.histogram[2].tokens, 5u);
  EXPECT_EQ(statistics.histogram[5].samples, 3u);
}

TEST(LengthStatistics, OfNothingIsEmpty) {
  EXPECT_EQ(SummarizeLengths({}).samples, 0u);
  EXPECT_TRUE(SummarizeLengths({}).histogram.empty());
}

}  // namespace
}  // namespace penstock
