#include "planner/core/cost/weights_beside.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

// What a backward pass takes when its steps are laid out one by one, beside what a layer computes for its
// inputs: exchanges wait for nothing but the step before them, products for the exchange that they are
// beside. `experts_at`: experts whose products are beside the way back, and beside the next arrival; the
// rest, and all others unless `others`, are made at once.
// Products of experts beside the way back, and beside the next way to the experts; the rest, and all others
// unless `others`, are made at once.
struct Order {
  int64_t on_return = 0;
  int64_t on_arrival = 0;
  bool others = false;
};

double Makespan(const LayerProducts& products, double exchange_ns, int64_t layers, const Order& order) {
  const double product_ns = products.experts_ns / static_cast<double>(products.of_experts);
  const double others_ns = products.ns - products.experts_ns;
  const double beside_return = product_ns * static_cast<double>(order.on_return);
  const double beside_arrival =
      product_ns * static_cast<double>(order.on_arrival) + (order.others ? others_ns : 0);
  const double at_once = products.ns - beside_return - beside_arrival;
  double now = 0;
  double left = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    now += std::max(exchange_ns, left);
    now += std::max(exchange_ns, beside_return) + at_once;
    left = beside_arrival;
  }
  return now + left;
}

LayerProducts RandomProducts(Random& random) {
  LayerProducts products;
  products.of_experts = random.Range(1, 6);
  products.ns = random.Range(1, 100'000);
  products.experts_ns = products.ns * random.Range(5, 100) / 100;
  return products;
}

TEST(WeightsBesideTest, HideWhatThePassTakesLess) {
  Random random(1);
  for (int round = 0; round < 2'000; ++round) {
    const LayerProducts products = RandomProducts(random);
    const int64_t exchange_ns = random.Range(1, 60'000);
    const int64_t layers = random.Range(1, 5);
    const WeightsBeside beside = PutBeside(products, exchange_ns, 1);
    const auto exchange = static_cast<double>(exchange_ns);
    const double before = Makespan(products, exchange, layers, {});
    const double after = Makespan(products, exchange, layers,
                                  {beside.return_products, beside.arrival_products, beside.arrival_others});
    const auto hidden = static_cast<double>(beside.HiddenNs(layers, layers, exchange_ns));
    // Two times a layer are rounded.
    EXPECT_NEAR(hidden, before - after, 2.0 * static_cast<double>(layers) + 1e-6);
  }
}

// Orders that put no more beside an exchange than it lasts.
double BestMakespan(const LayerProducts& products, double exchange_ns, int64_t layers) {
  const double product_ns = products.experts_ns / static_cast<double>(products.of_experts);
  double best = Makespan(products, exchange_ns, layers, {});
  for (int64_t on_return = 0; on_return <= products.of_experts; ++on_return) {
    if (product_ns * static_cast<double>(on_return) > exchange_ns) break;
    for (int64_t on_arrival = 0; on_return + on_arrival <= products.of_experts; ++on_arrival) {
      for (const bool others : {false, true}) {
        const double beside =
            product_ns * static_cast<double>(on_arrival) + (others ? products.ns - products.experts_ns : 0);
        if (beside <= exchange_ns)
          best = std::min(best, Makespan(products, exchange_ns, layers, {on_return, on_arrival, others}));
      }
    }
  }
  return best;
}

TEST(WeightsBesideTest, LeaveFewPassesLongerThanTheBestOrderDoes) {
  Random random(2);
  double worst = 1;
  double sum = 0;
  for (int round = 0; round < 500; ++round) {
    const LayerProducts products = RandomProducts(random);
    const int64_t exchange_ns = random.Range(1, 60'000);
    const auto exchange = static_cast<double>(exchange_ns);
    const WeightsBeside beside = PutBeside(products, exchange_ns, 1);
    const double ours = Makespan(products, exchange, 4,
                                 {beside.return_products, beside.arrival_products, beside.arrival_others});
    const double best = BestMakespan(products, exchange, 4);
    worst = std::max(worst, ours / best);
    sum += ours / best;
  }
  EXPECT_LE(worst, 1.2) << "the other weights of a layer come last, and may find no room";
  EXPECT_LE(sum / 500, 1.01);
}

TEST(WeightsBesideTest, LastNoLongerThanTheExchange) {
  Random random(4);
  for (int round = 0; round < 2'000; ++round) {
    const int64_t exchange_ns = random.Range(0, 60'000);
    const WeightsBeside beside = PutBeside(RandomProducts(random), exchange_ns, 1);
    EXPECT_LE(beside.return_ns, exchange_ns);
    // Two times are rounded down.
    EXPECT_LE(beside.arrival_ns, exchange_ns + 1);
  }
}

TEST(WeightsBesideTest, TakeAtMostWhatALayerHas) {
  Random random(3);
  for (int round = 0; round < 2'000; ++round) {
    const LayerProducts products = RandomProducts(random);
    const WeightsBeside beside = PutBeside(products, random.Range(0, 200'000), 0.5);
    EXPECT_GE(beside.return_products, 0);
    EXPECT_LE(beside.return_products + beside.arrival_products, products.of_experts);
    EXPECT_GE(beside.arrival_ns, 0);
    EXPECT_LE(static_cast<double>(beside.return_ns + beside.arrival_ns), products.ns);
    EXPECT_EQ(beside.TakenNs(1), beside.return_ns) << "no layer is below";
  }
}

TEST(WeightsBesideTest, AreNoneWherePassesWaitForExchanges) {
  const WeightsBeside none = PutBeside({.ns = 100, .experts_ns = 50, .of_experts = 4}, 30, 0);
  EXPECT_EQ(none.return_products + none.arrival_products, 0);
  EXPECT_FALSE(none.arrival_others);
  EXPECT_EQ(none.HiddenNs(8, 8, 30), 0);
  EXPECT_EQ(none.TakenNs(8), 0);
}

TEST(WeightsBesideTest, HideNothingOnTheWayToALayerThatRunsAgain) {
  // Two products of experts of 50 ns and another weight of 40: one on the way back, one on the way to the
  // experts.
  const WeightsBeside beside = PutBeside({.ns = 140, .experts_ns = 100, .of_experts = 2}, 60, 1);
  EXPECT_EQ(beside.return_ns, 50);
  EXPECT_EQ(beside.arrival_ns, 50);
  EXPECT_EQ(beside.HiddenNs(4, 4, 60), 4 * 50 + 3 * 50);
  EXPECT_EQ(beside.HiddenNs(4, 2, 60), 4 * 50 + 1 * 50) << "the uppermost has none above it";
  EXPECT_EQ(beside.HiddenNs(4, 0, 60), 4 * 50);
}

}  // namespace
}  // namespace penstock::core
