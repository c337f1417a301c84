#include "worker/profile/measured_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

ModelConfig Config(int64_t max_sequence_length, Architecture architecture = Architecture::kGpt) {
  ModelConfig config;
  config.max_sequence_length = max_sequence_length;
  config.architecture = architecture;
  return config;
}

TEST(MeasuredShapes, GrowAndStayWithinTheLimits) {
  const std::vector<MicroBatch> shapes = MeasuredShapes(Config(600), 4000);
  ASSERT_GT(shapes.size(), 4U);
  EXPECT_TRUE(std::is_sorted(shapes.begin(), shapes.end(), [](const auto& a, const auto& b) {
    return a.computed_tokens < b.computed_tokens;
  }));
  EXPECT_LE(shapes.back().computed_tokens, 4000);
  uint32_t longest = 0;
  for (const MicroBatch& shape : shapes) {
    for (const uint32_t length : shape.target_tokens) longest = std::max(longest, length);
  }
  EXPECT_EQ(longest, 599U);
  const auto packed = [](const MicroBatch& shape) { return shape.layout == Layout::kPacked; };
  EXPECT_TRUE(std::any_of(shapes.begin(), shapes.end(), packed));
  EXPECT_FALSE(std::all_of(shapes.begin(), shapes.end(), packed));
}

TEST(MeasuredShapes, HaveThePackedRowsOfARectangleBesideIt) {
  int alike = 0;
  const std::vector<MicroBatch> shapes = MeasuredShapes(Config(256), 4096);
  for (const MicroBatch& packed : shapes) {
    if (packed.layout != Layout::kPacked) continue;
    for (const MicroBatch& rectangle : shapes) {
      alike += rectangle.layout == Layout::kPadded &&
                       rectangle.target_tokens.size() == packed.target_tokens.size() &&
                       rectangle.target_tokens.front() == packed.target_tokens.front()
                   ? 1
                   : 0;
    }
  }
  EXPECT_GE(alike, 2);
}

// Kernels take neighbours of one length in one call.
TEST(MeasuredShapes, HavePackedRowsThatAreCallsOfTheirOwn) {
  for (const Architecture architecture : {Architecture::kGpt, Architecture::kT5}) {
    for (const MicroBatch& shape : MeasuredShapes(Config(512, architecture), 16384)) {
      if (shape.layout != Layout::kPacked) continue;
      EXPECT_EQ(std::ranges::adjacent_find(shape.target_tokens), shape.target_tokens.end());
      if (architecture != Architecture::kT5) continue;
      EXPECT_EQ(std::ranges::adjacent_find(shape.input_tokens), shape.input_tokens.end());
    }
  }
}

TEST(MeasuredShapes, HaveLengthsWithTheMeanRestOfWhatKernelsTakeAtOnce) {
  for (const int64_t longest : {64, 512, 600, 4096}) {
    for (const MicroBatch& shape : MeasuredShapes(Config(longest), 16384)) {
      if (shape.layout == Layout::kPacked) continue;
      EXPECT_EQ(shape.target_length % 16, 7) << longest;
      EXPECT_LE(shape.target_length, longest);
    }
  }
}

TEST(MeasuredShapes, ExistForAModelOfShortSamples) {
  for (const MicroBatch& shape : MeasuredShapes(Config(1), 100)) {
    for (const uint32_t length : shape.target_tokens) EXPECT_EQ(length, 1U);
  }
  EXPECT_GE(MeasuredShapes(Config(1), 100).size(), 4U);
}

TEST(MeasuredShapes, OfT5HaveSourcesThatAreLongerAndShorter) {
  int longer = 0;
  int shorter = 0;
  for (const MicroBatch& shape : MeasuredShapes(Config(256, Architecture::kT5), 4000)) {
    longer += shape.input_tokens.front() > shape.target_tokens.front() ? 1 : 0;
    shorter += shape.input_tokens.front() < shape.target_tokens.front() ? 1 : 0;
  }
  EXPECT_GE(longer, 4);
  EXPECT_GE(shorter, 4);
}

TEST(MeasuredShapes, CountTheirTokens) {
  const MicroBatch packed = PackedShape({{2, 3}, {1, 5}});
  EXPECT_THAT(packed.target_cu_seqlens, ElementsAre(0, 3, 8));
  EXPECT_THAT(packed.source_cu_seqlens, ElementsAre(0, 2, 3));
  EXPECT_EQ(packed.computed_tokens, 11);
  EXPECT_EQ(FiguresOf(packed).target_square, 34);
  EXPECT_EQ(FiguresOf(packed).source_square, 5);
  EXPECT_EQ(FiguresOf(packed).cross, 11);
  EXPECT_EQ(FiguresOf(packed).packed_rows, 2);
  EXPECT_EQ(FiguresOf(PaddedShape(2, {0, 5})).packed_rows, 0);
  EXPECT_EQ(FiguresOf(PaddedShape(2, {0, 5})).target_square, 50);
  EXPECT_EQ(PaddedShape(2, {0, 5}).computed_tokens, 10);
}

TEST(MeasuredShapes, CountRowsOfARectangleAsOneCallOfAttention) {
  const TokenFigures packed = FiguresOf(PackedShape({{2, 3}, {1, 5}}));
  EXPECT_EQ(packed.target_call_square, 34);
  EXPECT_EQ(packed.source_call_square, 5);
  const TokenFigures rectangle = FiguresOf(PaddedShape(3, {2, 5}));
  EXPECT_EQ(rectangle.target_call_square, 25);
  EXPECT_EQ(rectangle.source_call_square, 4);
}

}  // namespace
}  // namespace penstock::worker
