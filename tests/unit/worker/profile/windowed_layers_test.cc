// The mean layer of a model of which some layers have a window.
#include "worker/profile/windowed_layers.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

ModelConfig ModelWith(int64_t layers, int64_t window, int64_t interval) {
  ModelConfig config;
  config.layers = layers;
  config.attention_window = window;
  config.windowless_interval = interval;
  return config;
}

TEST(WindowedLayersTest, EveryNthLayerHasNone) {
  const WindowedLayers layers = WindowedLayersOf(ModelWith(26, 512, 6));
  EXPECT_EQ(layers.windowed, 22);
  EXPECT_TRUE(layers.differ());
  EXPECT_EQ(layers.without_window % 6, 5);
  EXPECT_EQ(layers.first().window, 512);
}

TEST(WindowedLayersTest, NamedLayersHaveNone) {
  ModelConfig config = ModelWith(5, 512, 0);
  config.windowless_layers = {0, 3};
  const WindowedLayers layers = WindowedLayersOf(config);
  EXPECT_EQ(layers.windowed, 3);
  EXPECT_TRUE(layers.without_window == 0 || layers.without_window == 3) << layers.without_window;
}

TEST(WindowedLayersTest, LayersThatAreAlikeAreNotToldApart) {
  EXPECT_FALSE(WindowedLayersOf(ModelWith(4, 0, 0)).differ());
  EXPECT_FALSE(WindowedLayersOf(ModelWith(4, 16, 0)).differ());
  EXPECT_FALSE(WindowedLayersOf(ModelWith(4, 16, 1)).differ());
  EXPECT_EQ(WindowedLayersOf(ModelWith(4, 16, 1)).first().window, 0);
  EXPECT_FALSE(WindowedLayersOf(ModelWith(4, 16, 9)).differ());
}

TEST(WindowedLayersTest, AWindowTakesOffTheSquareOfWhatIsBeyondIt) {
  const MicroBatch shape = PackedShape({{0, 10}, {0, 100}});
  EXPECT_EQ(FiguresOf(shape).target_square, 100 + 10'000);
  EXPECT_EQ(FiguresOf(shape, {.window = 40}).target_square, 100 + 10'000 - 60 * 60);
}

TEST(WindowedLayersTest, TheMeanCountsEachKindAsOftenAsTheModelHasIt) {
  const WindowedLayers layers = WindowedLayersOf(ModelWith(4, 16, 4));
  MeasuredPasses windowed, without;
  windowed.forward = {{{.target = 20, .target_square = 384}, 100},
                      {{.target = 40, .target_square = 1024}, 300}};
  without.forward = {{{.target = 20, .target_square = 400}, 200}};
  windowed.forward_ns = 400;
  without.forward_ns = 200;
  windowed.backward_none_ns = 800;
  without.backward_none_ns = 400;
  const MeasuredPasses mean = MeanOfLayers(windowed, without, layers);
  ASSERT_EQ(mean.forward.size(), 1);
  EXPECT_EQ(mean.forward[0].ns, 125);
  EXPECT_EQ(mean.forward[0].tokens.target, 20);
  EXPECT_EQ(mean.forward[0].tokens.target_square, 388);
  EXPECT_EQ(mean.forward_ns, 350);
  EXPECT_EQ(mean.backward_none_ns, 700);
}

}  // namespace
}  // namespace penstock::worker
