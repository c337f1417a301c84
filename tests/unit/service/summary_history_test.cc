#include "planner/service/state/summary_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Iterations, each with the epoch that did it as its loss.
void Do(SummaryHistory& history, uint64_t first, uint64_t end, double epoch) {
  for (uint64_t iteration = first; iteration < end; ++iteration) {
    v1::IterationSummary summary;
    summary.set_iteration(iteration);
    summary.set_loss(epoch);
    history.Add(summary);
  }
}

std::vector<uint64_t> IterationsOf(const SummaryHistory& history) {
  std::vector<uint64_t> iterations;
  for (const v1::IterationSummary& summary : history.summaries()) iterations.push_back(summary.iteration());
  return iterations;
}

TEST(SummaryHistoryTest, WhatIsDoneAgainTakesThePlaceOfWhatWasDone) {
  SummaryHistory history;
  Do(history, 0, 5, 1);
  history.BeginAt(3);
  EXPECT_THAT(IterationsOf(history), ElementsAre(0, 1, 2));
  Do(history, 3, 4, 2);
  EXPECT_THAT(IterationsOf(history), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(history.summaries().back().loss(), 2);
  history.BeginAt(5);
  EXPECT_THAT(IterationsOf(history), ElementsAre(0, 1, 2, 3)) << "what was behind it is of another past";
}

TEST(SummaryHistoryTest, AnEpochThatBeganTooEarlyAndDidNothingTakesNothingAway) {
  SummaryHistory history;
  Do(history, 0, 5, 1);
  history.BeginAt(0);
  EXPECT_THAT(IterationsOf(history), IsEmpty());
  history.BeginAt(2);
  EXPECT_THAT(IterationsOf(history), ElementsAre(0, 1));
  history.BeginAt(5);
  EXPECT_THAT(IterationsOf(history), ElementsAre(0, 1, 2, 3, 4));
}

TEST(SummaryHistoryTest, IsSavedWithWhatIsPutAside) {
  SummaryHistory history;
  Do(history, 0, 5, 1);
  history.BeginAt(2);
  store::v1::JobSnapshot saved;
  history.Save(&saved);
  SummaryHistory restored(saved, /*completed=*/2);
  EXPECT_THAT(IterationsOf(restored), ElementsAre(0, 1));
  store::v1::JobSnapshot again;
  restored.Save(&again);
  EXPECT_EQ(saved.SerializeAsString(), again.SerializeAsString());
  restored.BeginAt(5);
  EXPECT_THAT(IterationsOf(restored), ElementsAre(0, 1, 2, 3, 4));
}

TEST(SummaryHistoryTest, KeepsTheNewest) {
  SummaryHistory history;
  Do(history, 0, SummaryHistory::kKept + 3, 1);
  EXPECT_EQ(history.summaries().size(), SummaryHistory::kKept);
  EXPECT_EQ(history.summaries().front().iteration(), 3u);
}

TEST(SummaryHistoryTest, LayersAreThoseOfTheNewestIterationsAlone) {
  SummaryHistory history;
  constexpr uint64_t kOlder = 10;
  for (uint64_t iteration = 0; iteration < SummaryHistory::kKeptWithLayers + kOlder; ++iteration) {
    v1::IterationSummary summary;
    summary.set_iteration(iteration);
    summary.add_expert_layers()->set_layer(1);
    history.Add(summary);
  }
  for (const v1::IterationSummary& summary : history.summaries())
    EXPECT_EQ(summary.expert_layers_size(), summary.iteration() < kOlder ? 0 : 1) << summary.iteration();
}

}  // namespace
}  // namespace penstock
