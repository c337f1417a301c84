#include "worker/profile/held_out_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "worker/profile/measured_shapes.h"

namespace penstock::worker {
namespace {

constexpr int64_t kMost = 8192;

ModelConfig HeldOutConfig(int64_t longest, Architecture architecture = Architecture::kGpt) {
  ModelConfig config;
  config.max_sequence_length = longest;
  config.architecture = architecture;
  return config;
}

// Layout and lengths.
using Lengths = std::pair<Layout, std::vector<uint32_t>>;

std::set<Lengths> LengthsOf(const std::vector<MicroBatch>& shapes) {
  std::set<Lengths> lengths;
  for (const MicroBatch& shape : shapes) lengths.emplace(shape.layout, shape.target_tokens);
  return lengths;
}

TEST(HeldOutShapes, AreNoneOfThoseOfTheFit) {
  for (const int64_t longest : {256, 2048}) {
    const std::set<Lengths> fitted = LengthsOf(MeasuredShapes(HeldOutConfig(longest), kMost));
    for (const Lengths& shape : LengthsOf(HeldOutShapes(HeldOutConfig(longest), kMost)))
      EXPECT_FALSE(fitted.contains(shape));
  }
}

TEST(HeldOutShapes, GrowAndStayWithinTheLimits) {
  const std::vector<MicroBatch> shapes = HeldOutShapes(HeldOutConfig(1024), 4000);
  ASSERT_GE(shapes.size(), 8U);
  EXPECT_TRUE(std::ranges::is_sorted(shapes, {}, &MicroBatch::computed_tokens));
  EXPECT_LE(shapes.back().computed_tokens, 4000);
  for (const MicroBatch& shape : shapes) {
    for (const uint32_t length : shape.target_tokens) {
      EXPECT_GE(length, 1U);
      EXPECT_LE(length, 1024U);
    }
  }
  const auto packed = [](const MicroBatch& shape) { return shape.layout == Layout::kPacked; };
  EXPECT_TRUE(std::ranges::any_of(shapes, packed));
  EXPECT_FALSE(std::ranges::all_of(shapes, packed));
}

TEST(HeldOutShapes, AreTheSameEachTime) {
  EXPECT_EQ(LengthsOf(HeldOutShapes(HeldOutConfig(512), kMost)),
            LengthsOf(HeldOutShapes(HeldOutConfig(512), kMost)));
}

TEST(HeldOutShapes, OfT5HaveTargetsShorterThanTheirSources) {
  for (const MicroBatch& shape : HeldOutShapes(HeldOutConfig(256, Architecture::kT5), kMost)) {
    EXPECT_GE(shape.input_tokens.front(), shape.target_tokens.front());
    EXPECT_GE(shape.target_tokens.front(), 1U);
  }
}

TEST(HeldOutShapes, ExistForAModelOfShortSamples) {
  EXPECT_GE(HeldOutShapes(HeldOutConfig(1), 200).size(), 3U);
}

}  // namespace
}  // namespace penstock::worker
