#include "planner/core/steps/parts_in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

// Layers that are alike, and what each part does in them.
struct Layers {
  int64_t count = 0;
  std::vector<LayerSteps> of_parts;
};

// The way of one part, exchange after exchange, and what is computed behind the last one.
struct Way {
  std::vector<ExchangeStep> exchanges;
  int64_t behind = 0;
};

Way WayOf(const std::vector<Layers>& layers, size_t part) {
  Way way;
  for (const Layers& alike : layers) {
    const LayerSteps& steps = alike.of_parts[part];
    for (int64_t layer = 0; layer < alike.count; ++layer) {
      for (int i = 0; i < steps.count; ++i) {
        ExchangeStep step = steps.exchanges[static_cast<size_t>(i)];
        step.before += std::exchange(way.behind, 0);
        way.exchanges.push_back(step);
      }
      way.behind = steps.rest;
    }
  }
  return way;
}

// As execution.md has it, section 7.
int64_t WaitingOf(const std::vector<Layers>& layers, size_t parts) {
  std::vector<Way> ways;
  for (size_t part = 0; part < parts; ++part) ways.push_back(WayOf(layers, part));
  int64_t now = 0, line = 0, computed = 0;
  std::vector<int64_t> arrived(parts, 0);
  for (size_t i = 0; i < ways.front().exchanges.size(); ++i) {
    for (size_t part = 0; part < parts; ++part) {
      const ExchangeStep& step = ways[part].exchanges[i];
      now = std::max(now, arrived[part]) + step.before;
      line = std::max(line, now) + step.ns;
      arrived[part] = line;
      now += step.after;
      computed += step.before + step.after;
    }
  }
  for (size_t part = 0; part < parts; ++part) {
    now = std::max(now, arrived[part]) + ways[part].behind;
    computed += ways[part].behind;
  }
  return now - computed;
}

int64_t Waiting(const std::vector<Layers>& layers, size_t parts) {
  PartsInTurn turns(parts);
  for (const Layers& alike : layers) turns.Run(alike.count, alike.of_parts);
  return turns.End();
}

LayerSteps Forward(int64_t dense, int64_t experts, int64_t exchange) {
  LayerSteps steps;
  steps.Add({.before = dense, .ns = exchange});
  steps.Add({.before = experts, .ns = exchange});
  return steps;
}

TEST(PartsInTurnTest, OnePartWaitsForEveryExchange) {
  EXPECT_EQ(Waiting({{3, {Forward(100, 200, 30)}}}, 1), 3 * 2 * 30);
}

TEST(PartsInTurnTest, TwoPartsWaitOnlyForTheLastExchangeWhereComputationIsLonger) {
  const LayerSteps steps = Forward(100, 200, 30);
  EXPECT_EQ(Waiting({{48, {steps, steps}}}, 2), 30);
}

TEST(PartsInTurnTest, ExchangesThatTakeLongerThanAllElseSetThePace) {
  const LayerSteps steps = Forward(1, 1, 1'000);
  // The line never rests once it has begun, with the first part's rows.
  EXPECT_EQ(Waiting({{10, {steps, steps}}}, 2), 1 + 2 * 2 * 10 * 1'000 - 2 * 2 * 10);
}

TEST(PartsInTurnTest, WhatIsComputedOnceAnExchangeHasBegunHidesIt) {
  LayerSteps steps;
  steps.Add({.before = 10, .ns = 100, .after = 80});
  steps.rest = 5;
  EXPECT_EQ(Waiting({{4, {steps}}}, 1), 4 * 20);
}

TEST(PartsInTurnTest, RandomPartsWaitAsTheContractSays) {
  Random random(7);
  for (int round = 0; round < 3'000; ++round) {
    const auto parts = static_cast<size_t>(random.Range(1, 4));
    const int64_t longest = random.Chance(50) ? 100 : 100'000;
    std::vector<Layers> layers(static_cast<size_t>(random.Range(1, 3)));
    for (Layers& alike : layers) {
      alike.count = random.Range(0, 40);
      const auto count = static_cast<int>(random.Range(1, 4));
      for (size_t part = 0; part < parts; ++part) {
        LayerSteps& steps = alike.of_parts.emplace_back();
        for (int i = 0; i < count; ++i)
          steps.Add({.before = random.Range(0, longest),
                     .ns = random.Range(0, longest),
                     .after = random.Chance(30) ? random.Range(0, longest) : 0});
        steps.rest = random.Chance(50) ? random.Range(0, longest) : 0;
      }
    }
    EXPECT_EQ(Waiting(layers, parts), WaitingOf(layers, parts)) << "round " << round;
  }
}

}  // namespace
}  // namespace penstock::core
