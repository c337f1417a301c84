// What sliding windows take off the cost of attention, against a count of every pair of tokens, and in plans.
#include "planner/core/model/attention_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "penstock/v1/job.pb.h"
#include "planner/core/contract/model_windows.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// Pairs of a token and one that it attends to, in all layers of the model.
int64_t Pairs(const v1::ModelSpec& model, int64_t length) {
  int64_t pairs = 0;
  for (uint32_t layer = 1; layer <= model.layers(); ++layer) {
    const auto& named = model.windowless_layers();
    const bool windowless = (model.windowless_interval() > 0 && layer % model.windowless_interval() == 0) ||
                            std::find(named.begin(), named.end(), layer) != named.end();
    const int64_t window = windowless ? length : model.attention_window();
    for (int64_t place = 0; place < length; ++place) pairs += std::min(place + 1, window);
  }
  return pairs;
}

v1::ModelSpec Windowed(uint32_t layers, uint32_t window, uint32_t interval) {
  v1::ModelSpec model;
  model.set_layers(layers);
  model.set_attention_window(window);
  model.set_windowless_interval(interval);
  return model;
}

TEST(AttentionWindowsTest, SquaresAreTwiceThePairsOfTheMeanLayer) {
  for (const uint32_t layers : {1U, 5U, 26U}) {
    for (const uint32_t window : {1U, 7U, 100U}) {
      for (const uint32_t interval : {0U, 1U, 2U, 6U}) {
        const v1::ModelSpec model = Windowed(layers, window, interval);
        const AttentionWindows windows = WindowsOf(model);
        for (const int64_t length : {1, 7, 8, 99, 100, 101, 1000}) {
          const double square = static_cast<double>(length * length) - windows.LessSquare(length);
          const double pairs = static_cast<double>(Pairs(model, length)) / layers;
          // A token and itself are half a pair of a square, and here a whole one.
          EXPECT_NEAR(square, 2 * pairs, static_cast<double>(length) + 1)
              << layers << " layers, window " << window << ", interval " << interval << ", " << length;
          EXPECT_EQ(square, std::floor(square));
        }
      }
    }
  }
}

TEST(AttentionWindowsTest, LayersWithoutOneMayStandAnywhere) {
  v1::ModelSpec model = Windowed(7, 10, 0);
  for (const uint32_t layer : {1U, 2U, 6U}) model.add_windowless_layers(layer);
  EXPECT_EQ(WindowsOf(model).windowed_layers, 4);
  const double square = 10'000 - WindowsOf(model).LessSquare(100);
  EXPECT_NEAR(square, 2 * static_cast<double>(Pairs(model, 100)) / 7, 101);
}

TEST(AttentionWindowsTest, TheLongestLengthsDoNotOverflow) {
  const AttentionWindows windows = WindowsOf(Windowed(4096, 1, 2));
  const double length = 1 << 24;
  EXPECT_NEAR(windows.LessSquare(1 << 24), (length - 1) * (length - 1) / 2, 1);
}

TEST(AttentionWindowsTest, SumsAreTheSameHoweverSamplesLie) {
  const AttentionWindows windows = WindowsOf(Windowed(8, 16, 3));
  std::vector<SampleTokens> tokens;
  for (const uint32_t length : {5U, 40U, 17U, 300U})
    tokens.push_back({.target = length, .less_square = windows.LessSquare(length)});
  const std::vector<uint32_t> all = {0, 1, 2, 3};
  double square = 0;
  for (const SampleTokens& sample : tokens)
    square += static_cast<double>(sample.target) * sample.target - windows.LessSquare(sample.target);
  EXPECT_EQ(SumsOf(all, tokens, Layout::kPacked).target_square, square);
  EXPECT_EQ(SumsOf(all, tokens, Layout::kPadded).target_square, 4 * (300.0 * 300 - windows.LessSquare(300)));
  const RowLengths row = {.target = 310, .less_square = windows.LessSquare(310)};
  EXPECT_EQ(SumsOf(all, tokens, Layout::kConcatenated, row).target_square,
            2 * (310.0 * 310 - windows.LessSquare(310)));
}

// A plan of one long sample and of many short ones, for a model with this window.
int64_t Makespan(uint32_t window) {
  v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  job.mutable_model()->set_attention_window(window);
  job.mutable_model()->set_max_sequence_length(1 << 16);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    if (layer.name() == "layer") layer.mutable_forward()->set_target_square_ns(1);
  }
  std::vector<std::pair<uint32_t, uint32_t>> lengths(30, {64, 64});
  lengths.emplace_back(4000, 4000);
  const auto planner = Planner::Create(job);
  if (!planner.ok()) {
    ADD_FAILURE() << planner.status();
    return 0;
  }
  const auto plan = (*planner)->MakePlan(MakeBatch(lengths));
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status();
    return 0;
  }
  EXPECT_LE(plan->lower_bound_ns(), plan->predicted().makespan_ns());
  return plan->predicted().makespan_ns();
}

TEST(AttentionWindowsTest, ALongSampleTakesWhatItsWindowsLeave) {
  const int64_t whole = Makespan(0);
  EXPECT_EQ(Makespan(1 << 16), whole);
  // 8,000 tokens: 64 million squares, and 15.7 million with a window of 1,000.
  const int64_t windowed = Makespan(1000);
  EXPECT_LT(windowed, whole / 3);
  EXPECT_GT(windowed, whole / 5);
}

}  // namespace
}  // namespace penstock::core
