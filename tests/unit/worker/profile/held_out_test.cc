#include "worker/profile/held_out.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/unit/worker/profile/work_clock.h"

namespace penstock::worker {
namespace {

ModelConfig SmallModel(Architecture architecture) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 64;
  config.heads = 4;
  config.ffn = 256;
  config.vocab = 512;
  config.max_sequence_length = 64;
  config.architecture = architecture;
  if (architecture == Architecture::kT5) {
    config.encoder_layers = 1;
    config.feed_forward = FeedForward::kRelu;
  }
  return config;
}

std::map<std::pair<HeldOutPart, HeldOutKind>, int> PassesOf(const ModelConfig& model) {
  const WorkClock clock;
  const auto times = MeasureHeldOut(model, {.seconds = 0.5}, MeasuredDevice(), [&] { return clock.Now(); });
  EXPECT_TRUE(times.ok()) << times.status();
  std::map<std::pair<HeldOutPart, HeldOutKind>, int> passes;
  if (!times.ok()) return passes;
  EXPECT_EQ(times->disturbance, "");
  for (const HeldOutPass& pass : times->passes) {
    EXPECT_GT(pass.duration_ns, 0);
    ++passes[{pass.part, pass.kind}];
  }
  return passes;
}

TEST(MeasureHeldOut, MeasuresEveryKindOfPassOfALayerAndTheHead) {
  auto passes = PassesOf(SmallModel(Architecture::kGpt));
  const int shapes = passes[std::pair(HeldOutPart::kLayer, HeldOutKind::kForward)];
  EXPECT_GE(shapes, 4);
  // Without recompute, with selective and with full.
  EXPECT_EQ((passes[std::pair(HeldOutPart::kLayer, HeldOutKind::kBackward)]), 3 * shapes);
  EXPECT_EQ((passes[std::pair(HeldOutPart::kLayer, HeldOutKind::kBackwardInput)]), shapes);
  EXPECT_EQ((passes[std::pair(HeldOutPart::kLayer, HeldOutKind::kBackwardWeight)]), shapes);
  EXPECT_GE((passes[std::pair(HeldOutPart::kHead, HeldOutKind::kBoth)]), 4);
  EXPECT_EQ((passes[std::pair(HeldOutPart::kHead, HeldOutKind::kBackward)]), 0);
  EXPECT_EQ((passes[std::pair(HeldOutPart::kEncoderLayer, HeldOutKind::kForward)]), 0);
}

TEST(MeasureHeldOut, MeasuresSharesOfContextRanks) {
  const WorkClock clock;
  const auto times = MeasureHeldOut(SmallModel(Architecture::kGpt), {.seconds = 0.5, .context_ranks = {2}},
                                    MeasuredDevice(), [&] { return clock.Now(); });
  ASSERT_TRUE(times.ok()) << times.status();
  int shares = 0;
  for (const HeldOutPass& pass : times->passes) {
    if (pass.contexts == 1) continue;
    ++shares;
    EXPECT_EQ(pass.contexts, 2U);
    EXPECT_EQ(pass.context, 1U);
    EXPECT_EQ(pass.part, HeldOutPart::kLayer);
    EXPECT_GT(pass.duration_ns, 0);
  }
  EXPECT_GE(shares, 4 * 6) << "four shapes, six kinds of passes";
}

TEST(MeasureHeldOut, RefusesContextRanksThatTheModelCannotHave) {
  for (const auto& [architecture, contexts] :
       {std::pair(Architecture::kT5, 2), std::pair(Architecture::kGpt, 3)}) {
    const auto times = MeasureHeldOut(SmallModel(architecture), {.context_ranks = {contexts}});
    EXPECT_TRUE(absl::IsInvalidArgument(times.status())) << times.status();
  }
}

TEST(MeasureHeldOut, MeasuresLayersWithExpertsAndWithout) {
  ModelConfig model = SmallModel(Architecture::kGpt);
  model.feed_forward_biases = Biases::kNone;
  model.experts = 4;
  model.experts_per_token = 2;
  model.dense_layers = {0};
  auto passes = PassesOf(model);
  EXPECT_GE((passes[std::pair(HeldOutPart::kLayer, HeldOutKind::kForward)]), 4);
  EXPECT_GE((passes[std::pair(HeldOutPart::kDenseLayer, HeldOutKind::kForward)]), 4);
}

TEST(MeasureHeldOut, MeasuresBothStacksOfAT5) {
  auto passes = PassesOf(SmallModel(Architecture::kT5));
  EXPECT_GE((passes[std::pair(HeldOutPart::kEncoderLayer, HeldOutKind::kForward)]), 4);
  EXPECT_GE((passes[std::pair(HeldOutPart::kLayer, HeldOutKind::kForward)]), 4);
}

}  // namespace
}  // namespace penstock::worker
