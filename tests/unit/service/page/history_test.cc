#include "planner/service/page/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;

// Iterations first, ..., last: iteration i has loss i and takes i milliseconds for 1000 tokens.
std::vector<v1::IterationSummary> Iterations(uint64_t first, uint64_t last) {
  std::vector<v1::IterationSummary> iterations;
  for (uint64_t i = first; i <= last; ++i) {
    v1::IterationSummary& one = iterations.emplace_back();
    one.set_iteration(i);
    one.set_loss(static_cast<double>(i));
    one.set_measured_ns(static_cast<int64_t>(i) * 1'000'000);
    one.set_predicted_ns(2'000'000);
    one.set_real_tokens(1000);
    one.set_computed_tokens(1250);
    one.set_planned_ahead(3);
    one.set_bubble(0.25);
  }
  return iterations;
}

std::vector<double> Column(const Json& history, const char* name) {
  return history[name].get<std::vector<double>>();
}

TEST(HistoryTest, APointIsAnIterationWhereThereIsRoom) {
  const Json history = HistoryAsJson(Iterations(4, 6), 3);
  EXPECT_EQ(history["iterations_per_point"], 1);
  EXPECT_THAT(Column(history, "iteration"), ElementsAre(4, 5, 6));
  EXPECT_THAT(Column(history, "loss"), ElementsAre(4, 5, 6));
  EXPECT_THAT(Column(history, "measured_ms"), ElementsAre(4, 5, 6));
  EXPECT_THAT(Column(history, "predicted_ms"), ElementsAre(2, 2, 2));
  EXPECT_THAT(Column(history, "tokens_per_second"),
              ElementsAre(250'000, 200'000, testing::DoubleNear(166'666.7, 0.1)));
  EXPECT_THAT(Column(history, "padding_efficiency"), ElementsAre(0.8, 0.8, 0.8));
  EXPECT_THAT(Column(history, "planned_ahead"), ElementsAre(3, 3, 3));
  EXPECT_THAT(Column(history, "bubble"), ElementsAre(0.25, 0.25, 0.25));
}

TEST(HistoryTest, MoreIterationsThanPointsAreTheirMeans) {
  const Json history = HistoryAsJson(Iterations(1, 5), 3);
  EXPECT_EQ(history["iterations_per_point"], 2);
  EXPECT_THAT(Column(history, "iteration"), ElementsAre(2, 4, 5));
  EXPECT_THAT(Column(history, "loss"), ElementsAre(1.5, 3.5, 5));
  // 2000 tokens in 3 ms, not the mean of two rates.
  EXPECT_NEAR(Column(history, "tokens_per_second")[0], 666'666.7, 0.1);
}

TEST(HistoryTest, NeverHasMorePointsThanAskedFor) {
  for (const uint64_t count : {1, 239, 240, 241, 479, 480, 481, 4096})
    EXPECT_LE(HistoryAsJson(Iterations(1, count), 240)["loss"].size(), 240) << count;
}

TEST(HistoryTest, OfNothingHasEmptyColumns) {
  const Json history = HistoryAsJson({}, 10);
  EXPECT_EQ(history["iteration"], Json::array());
  EXPECT_EQ(history["loss"], Json::array());
}

TEST(HistoryTest, ALossThatIsNoNumberIsNull) {
  std::vector<v1::IterationSummary> iterations = Iterations(1, 1);
  iterations[0].set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Json::parse(HistoryAsJson(iterations, 10).dump())["loss"][0], nullptr);
}

}  // namespace
}  // namespace penstock
