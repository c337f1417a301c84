#include "worker/profile/measure_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/memory/tensor_memory.h"
#include "worker/profile/measured_shapes.h"
#include "worker/profile/memory.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

BytesPoint PointOf(double source, double target, double bytes) {
  return {.tokens = {.source = source, .target = target}, .bytes = bytes};
}

TEST(BytesAbove, IsOfTheShapeThatHasMostForEachOfItsTokens) {
  const TokenBytes bytes = BytesAbove({PointOf(0, 100, 1000), PointOf(0, 1000, 11'000)}, {});
  EXPECT_EQ(bytes.source, 0);
  EXPECT_DOUBLE_EQ(bytes.target, 11);
}

TEST(BytesAbove, TellsBothSidesApart) {
  const TokenBytes bytes =
      BytesAbove({PointOf(100, 100, 1100), PointOf(100, 400, 3500), PointOf(400, 100, 2000)}, {});
  EXPECT_NEAR(bytes.source, 3, 1e-9);
  EXPECT_NEAR(bytes.target, 8, 1e-9);
}

TEST(BytesAbove, HasNoSideBelowNothing) {
  const TokenBytes bytes = BytesAbove({PointOf(100, 100, 1000), PointOf(400, 100, 900)}, {});
  EXPECT_EQ(bytes.source, 0);
  EXPECT_DOUBLE_EQ(bytes.target, 10);
}

TEST(BytesAbove, KeepsToWhatIsCountedWhereTheSidesAreAlwaysAlike) {
  const TokenBytes bytes =
      BytesAbove({PointOf(100, 100, 1200), PointOf(300, 300, 3300)}, {.source = 2, .target = 8});
  EXPECT_DOUBLE_EQ(bytes.source, 2.4);
  EXPECT_DOUBLE_EQ(bytes.target, 9.6);
  EXPECT_EQ(BytesAbove({}, {.source = 2, .target = 8}).target, 8);
}

TEST(MemoryShapes, AreLargeOnesThatTakeLittleTime) {
  std::vector<MicroBatch> shapes;
  for (const int64_t length : {16, 255, 256, 300, 1000, 2000, 4096, 5000})
    shapes.push_back(length == 300 ? PaddedShape(1, {0, 300}) : PaddedShape(4, {0, length / 4}));
  const std::vector<MicroBatch> chosen = MemoryShapes(shapes, /*longest=*/300);
  ASSERT_EQ(chosen.size(), 4U);
  EXPECT_EQ(chosen[0].computed_tokens, 300) << "the longest sample alone";
  EXPECT_EQ(chosen[1].computed_tokens, 4096);
  EXPECT_EQ(chosen[3].computed_tokens, 1000);
  EXPECT_TRUE(MemoryShapes(absl::MakeConstSpan(shapes).first(2), /*longest=*/300).empty());
}

TEST(DifferencesOf, NamesWhatIsFarFromWhatIsCounted) {
  const LayerBytes counted = {.stored_none = {.target = 100},
                              .stored_selective = {.target = 80},
                              .stored_full = {.target = 10},
                              .peak = {.source = 50, .target = 150},
                              .split_backward_peak = {.target = 50}};
  EXPECT_EQ(DifferencesOf(counted, counted), "");
  LayerBytes measured = counted;
  measured.stored_none.target = 104;
  measured.peak.source = 20;
  measured.split_backward_peak.target = 60;
  EXPECT_EQ(DifferencesOf(measured, counted), "peak 0.85, split_backward_peak 1.20 times what is counted");
}

ModelConfig ModelOf(Architecture architecture) {
  ModelConfig config = {.layers = 4,
                        .hidden = 64,
                        .heads = 4,
                        .ffn = 256,
                        .vocab = 32,
                        .max_sequence_length = 128,
                        .architecture = architecture};
  if (architecture == Architecture::kT5) {
    config.encoder_layers = 2;
    config.feed_forward = FeedForward::kRelu;
  }
  return config;
}

std::vector<MicroBatch> ShapesOf(bool t5) {
  const auto source = [t5](int64_t length) { return t5 ? length : 0; };
  return {PaddedShape(1, {source(128), 128}), PaddedShape(4, {source(128), 128}),
          PaddedShape(8, {source(32), 128}), PaddedShape(8, {source(128), 32}),
          PackedShape({{source(100), 90}, {source(40), 128}, {source(70), 110}, {source(128), 60}})};
}

LayerBytes BytesOf(const ModelConfig& config, int64_t layer, const LayerBytes& counted,
                   const std::vector<MicroBatch>& shapes) {
  CountCpuTensors();
  const NanosecondClock clock = SteadyNanoseconds;
  auto run = StageRun::Create(config, {layer, 1, false, false}, {}, 2, at::kCPU, {clock, clock});
  EXPECT_TRUE(run.ok()) << run.status();
  KeptTimes nothing;
  const auto figures = [&](const MicroBatch& shape, int64_t) {
    TokenFigures tokens = FiguresOf(shape);
    if (config.architecture == Architecture::kT5 && layer < config.encoder_layers) tokens.target = 0;
    return tokens;
  };
  const auto bytes =
      MeasureLayerBytes(*run, shapes, figures, counted, 128, /*budget_ns=*/1e12, {&nothing, "layer"});
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or(LayerBytes());
}

double BothSides(const TokenBytes& bytes) { return bytes.source + bytes.target; }

void ExpectWhatIsCounted(const LayerBytes& measured, const LayerBytes& counted) {
  EXPECT_NEAR(BothSides(measured.stored_none) / BothSides(counted.stored_none), 1, 0.1);
  EXPECT_NEAR(BothSides(measured.stored_selective) / BothSides(counted.stored_selective), 1, 0.01);
  EXPECT_NEAR(BothSides(measured.stored_full) / BothSides(counted.stored_full), 1, 0.01);
  EXPECT_LE(BothSides(measured.peak) / BothSides(counted.peak), 1.02);
  EXPECT_GE(BothSides(measured.peak) / BothSides(counted.peak), 0.7);
  EXPECT_LE(BothSides(measured.split_backward_peak) / BothSides(counted.split_backward_peak), 1.2);
  EXPECT_GT(BothSides(measured.split_backward_peak), 0);
  EXPECT_GE(measured.peak.source, measured.stored_none.source);
  EXPECT_GE(measured.peak.target, measured.stored_none.target);
}

TEST(MeasureLayerBytes, FindsWhatIsCountedFromTheTensorsOfAGpt) {
  const ModelConfig config = ModelOf(Architecture::kGpt);
  const LayerBytes counted = DecoderLayerBytes(config);
  const LayerBytes measured = BytesOf(config, 1, counted, ShapesOf(/*t5=*/false));
  ExpectWhatIsCounted(measured, counted);
  EXPECT_EQ(measured.stored_none.source, 0);
}

TEST(MeasureLayerBytes, FindsWhatIsCountedFromTheTensorsOfAT5) {
  const ModelConfig config = ModelOf(Architecture::kT5);
  ExpectWhatIsCounted(BytesOf(config, 0, EncoderLayerBytes(config), ShapesOf(/*t5=*/true)),
                      EncoderLayerBytes(config));
  const LayerBytes counted = DecoderLayerBytes(config);
  const LayerBytes decoder = BytesOf(config, 3, counted, ShapesOf(/*t5=*/true));
  ExpectWhatIsCounted(decoder, counted);
  EXPECT_NEAR(decoder.stored_selective.source / counted.stored_selective.source, 1, 0.05);
}

// Formulas know of what few shapes fill.
TEST(MeasureLayerBytes, PeaksAreNoLessThanCountedWhereNoSampleIsTheLongest) {
  const ModelConfig config = ModelOf(Architecture::kGpt);
  LayerBytes counted = DecoderLayerBytes(config);
  counted.peak.target *= 10;
  const LayerBytes measured =
      BytesOf(config, 1, counted, {PaddedShape(8, {0, 100}), PaddedShape(4, {0, 64})});
  EXPECT_EQ(measured.peak.target, counted.peak.target);
  EXPECT_LT(measured.stored_full.target, 1.01 * counted.stored_full.target);
}

TEST(MeasureLayerBytes, AreThoseThatAreCountedWhereThereWasNoTime) {
  const ModelConfig config = ModelOf(Architecture::kGpt);
  const LayerBytes counted = DecoderLayerBytes(config);
  EXPECT_EQ(BytesOf(config, 1, counted, {}).stored_none.target, counted.stored_none.target);
}

}  // namespace
}  // namespace penstock::worker
