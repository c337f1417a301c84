#include "worker/profile/measured_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

TEST(MeasuredShapes, GrowAndStayWithinTheLimits) {
  const std::vector<MicroBatch> shapes = MeasuredShapes(600, 4000);
  ASSERT_GT(shapes.size(), 4U);
  EXPECT_TRUE(std::is_sorted(shapes.begin(), shapes.end(), [](const auto& a, const auto& b) {
    return a.computed_tokens < b.computed_tokens;
  }));
  EXPECT_LE(shapes.back().computed_tokens, 4000);
  uint32_t longest = 0;
  for (const MicroBatch& shape : shapes) {
    for (const uint32_t length : shape.target_tokens) longest = std::max(longest, length);
  }
  EXPECT_EQ(longest, 600U);
  const auto packed = [](const MicroBatch& shape) { return shape.layout == Layout::kPacked; };
  EXPECT_TRUE(std::any_of(shapes.begin(), shapes.end(), packed));
  EXPECT_FALSE(std::all_of(shapes.begin(), shapes.end(), packed));
}

TEST(MeasuredShapes, ExistForAModelOfShortSamples) {
  for (const MicroBatch& shape : MeasuredShapes(1, 100)) {
    for (const uint32_t length : shape.target_tokens) EXPECT_EQ(length, 1U);
  }
  EXPECT_GE(MeasuredShapes(1, 100).size(), 4U);
}

TEST(MeasuredShapes, CountTheirTokens) {
  const MicroBatch packed = PackedShape({3, 5});
  EXPECT_THAT(packed.target_cu_seqlens, ElementsAre(0, 3, 8));
  EXPECT_EQ(packed.computed_tokens, 8);
  EXPECT_EQ(SquaresOf(packed), 34);
  EXPECT_EQ(SquaresOf(PaddedShape(2, 5)), 50);
  EXPECT_EQ(PaddedShape(2, 5).computed_tokens, 10);
}

}  // namespace
}  // namespace penstock::worker
