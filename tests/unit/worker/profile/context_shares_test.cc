#include "worker/profile/context_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/core/model/share.h"
#include "planner/core/topology/nodes.h"
#include "worker/profile/held_out_shapes.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

// As planners count what the context rank has of rows of one sample each.
core::TokenSums PlannedSums(const MicroBatch& shape, int context, int contexts, double window) {
  const core::Topology group(
      {.stages = {core::Stage()}, .positions = 1, .position_of_stage = {0}, .group = {.context = contexts}},
      /*replicas=*/1);
  std::vector<core::SampleTokens> tokens;
  std::vector<core::Row> rows;
  std::vector<core::Span> spans;
  for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
    const double beyond = window > 0 ? std::max(0.0, shape.target_tokens[i] - window) : 0;
    tokens.push_back({.target = shape.target_tokens[i], .less_square = beyond * beyond});
    rows.push_back({.length = shape.target_tokens[i], .less_square = beyond * beyond, .samples = {}});
    spans.push_back({static_cast<int32_t>(shape.spans[i].first), static_cast<int32_t>(shape.spans[i].ranks)});
  }
  std::vector<core::Share> shares;
  core::SharesOf(rows, tokens, spans, core::Nodes(group, contexts), contexts, &shares);
  return shares[static_cast<size_t>(context)].sums;
}

void ExpectAsPlanned(const MicroBatch& shape, int contexts, int64_t window = 0) {
  const int context = MeasuredContext(contexts);
  const TokenFigures figures = ShareFiguresOf(shape, context, {.window = window});
  const core::TokenSums planned = PlannedSums(shape, context, contexts, static_cast<double>(window));
  EXPECT_EQ(figures.target, planned.target);
  EXPECT_DOUBLE_EQ(figures.target_square, planned.target_square);
  EXPECT_EQ(figures.packed_rows, planned.packed_rows());
  EXPECT_DOUBLE_EQ(figures.target_call_square, planned.target_call_square());
  EXPECT_EQ(figures.divided_rows, planned.divided_rows);
  EXPECT_EQ(figures.source, 0);
}

ModelConfig Model(int64_t longest) {
  ModelConfig config;
  config.max_sequence_length = longest;
  return config;
}

TEST(ContextShares, HaveTheSumsThatPlannersCount) {
  for (const int contexts : {2, 4}) {
    for (const MicroBatch& whole : ShapesToDivide(MeasuredShapes(Model(600), 16384), contexts)) {
      ExpectAsPlanned(DividedShape(whole, contexts), contexts);
      ExpectAsPlanned(DividedShape(whole, contexts), contexts, /*window=*/128);
    }
    for (const MicroBatch& shape : HeldOutShares(Model(600), contexts, 8192))
      ExpectAsPlanned(shape, contexts);
  }
}

TEST(ContextShares, HaveAsManyTokensAndSquaresAsTheShapeThatIsDivided) {
  for (const MicroBatch& whole : {PaddedShape(3, {0, 64}), PackedShape({{0, 64}, {0, 128}, {0, 96}})}) {
    const MicroBatch divided = DividedShape(whole, 4);
    const TokenFigures share = ShareFiguresOf(divided, MeasuredContext(4));
    EXPECT_EQ(share.target, FiguresOf(whole).target);
    EXPECT_DOUBLE_EQ(share.target_square, FiguresOf(whole).target_square);
    EXPECT_EQ(share.packed_rows, 12);
    EXPECT_TRUE(CheckSpans(divided, Side::kTarget, 4).ok());
  }
}

TEST(ContextShares, AreOfRowsThatPlansDivide) {
  const std::vector<MicroBatch> shapes = {PaddedShape(1, {0, 15}), PaddedShape(1, {0, 16}),
                                          PackedShape({{0, 100}, {0, 7}})};
  EXPECT_EQ(ShapesToDivide(shapes, 2).size(), 1U);
  EXPECT_EQ(ShapesToDivide(shapes, 4).size(), 0U);
}

TEST(HeldOutShares, AreSharesOfTheRankThatIsMeasuredAndGrow) {
  for (const int contexts : {2, 4}) {
    const int context = MeasuredContext(contexts);
    const std::vector<MicroBatch> shapes = HeldOutShares(Model(1024), contexts, 8192);
    ASSERT_GE(shapes.size(), 8U);
    int64_t before = 0;
    for (const MicroBatch& shape : shapes) {
      EXPECT_TRUE(CheckSpans(shape, Side::kTarget, contexts).ok());
      EXPECT_TRUE(AnyRowIsDivided(shape));
      EXPECT_TRUE(std::ranges::all_of(SamplesOn(shape, context), [](bool on) { return on; }));
      EXPECT_GE(TokensOn(shape, Side::kTarget, context), before);
      before = TokensOn(shape, Side::kTarget, context);
    }
  }
}

}  // namespace
}  // namespace penstock::worker
