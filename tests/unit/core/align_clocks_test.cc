#include "planner/core/clocks/align_clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace penstock::core {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kIteration = 500 * kMillisecond;

// Clocks that are wrong: by rank how far ahead of true time at 0, and how much further each nanosecond.
struct WrongClock {
  double offset_ns = 0;
  double drift = 0;

  int64_t At(double true_ns) const { return std::llround(true_ns + offset_ns + drift * true_ns); }
};

// Messages between neighbours of a pipeline, both ways, that take from 50 us to 2 ms.
std::vector<std::vector<ClockMessage>> MessagesOf(const std::vector<WrongClock>& clocks, int iterations,
                                                  int messages_each_way = 40) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> when(0, static_cast<double>(kIteration));
  std::exponential_distribution<double> waits(1.0 / 400'000);
  std::vector<std::vector<ClockMessage>> messages(static_cast<size_t>(iterations));
  for (size_t i = 0; i < messages.size(); ++i) {
    for (uint32_t rank = 0; rank + 1 < clocks.size(); ++rank) {
      for (int k = 0; k < 2 * messages_each_way; ++k) {
        const uint32_t from = k % 2 == 0 ? rank : rank + 1;
        const uint32_t to = k % 2 == 0 ? rank + 1 : rank;
        const double started = static_cast<double>(i) * kIteration + when(random);
        const double arrived = started + 50'000 + std::min(2e6, waits(random));
        messages[i].push_back({from, to, clocks[from].At(started), clocks[to].At(arrived)});
      }
    }
  }
  return messages;
}

// How far times of `rank` are from those of rank 0 for the same moment, after all was put right.
double ErrorOf(const std::vector<WrongClock>& wrong, const ClockSet& clocks, uint32_t rank, double true_ns) {
  return std::abs(static_cast<double>(clocks[rank].ToReference(wrong[rank].At(true_ns)) -
                                      clocks[0].ToReference(wrong[0].At(true_ns))));
}

TEST(AlignClocksTest, OffsetsOfASecondAndDriftsAreFoundToWithinWhatIsSaid) {
  const std::vector<WrongClock> wrong = {{0, 0}, {1e9, 100e-6}, {-0.7e9, -100e-6}, {2e6, 30e-6}};
  const std::vector<ClockSet> clocks = AlignClocks(4, MessagesOf(wrong, 30));
  ASSERT_EQ(clocks.size(), 30u);
  for (size_t i = 0; i < clocks.size(); ++i) {
    for (uint32_t rank = 1; rank < 4; ++rank) {
      ASSERT_TRUE(clocks[i][rank].known);
      EXPECT_LT(clocks[i][rank].uncertainty_ns, 0.4 * kMillisecond) << "rank " << rank;
      EXPECT_NEAR(clocks[i][rank].drift, wrong[rank].drift, 10e-6) << "rank " << rank;
      for (const double within : {0.05, 0.5, 0.95}) {
        const double moment = (static_cast<double>(i) + within) * kIteration;
        EXPECT_LE(ErrorOf(wrong, clocks[i], rank, moment), clocks[i][rank].uncertainty_ns)
            << "rank " << rank << " in iteration " << i << " at " << within;
      }
    }
  }
}

TEST(AlignClocksTest, NoMessageArrivesBeforeItStartsAfterwards) {
  const std::vector<WrongClock> wrong = {{0, 0}, {-3e6, 0}, {5e6, 0}};
  const auto messages = MessagesOf(wrong, 3);
  const std::vector<ClockSet> clocks = AlignClocks(3, messages);
  for (size_t i = 0; i < messages.size(); ++i)
    for (const ClockMessage& message : messages[i])
      EXPECT_GE(clocks[i][message.to].ToReference(message.arrived_ns),
                clocks[i][message.from].ToReference(message.started_ns));
}

TEST(AlignClocksTest, ClocksThatNothingContradictsStayAsTheyAre) {
  // Within the least that a message takes.
  const std::vector<WrongClock> wrong = {{0, 0}, {20'000, 0}};
  for (const ClockSet& clocks : AlignClocks(2, MessagesOf(wrong, 5))) {
    EXPECT_EQ(clocks[1].offset_ns, 0);
    EXPECT_EQ(clocks[1].ToReference(12345), 12345);
    EXPECT_GE(clocks[1].uncertainty_ns, 20'000);
  }
}

TEST(AlignClocksTest, WhoSendsNothingKeepsItsClock) {
  std::vector<std::vector<ClockMessage>> messages = MessagesOf({{0, 0}, {1e9, 0}}, 2);
  // To rank 2, but nothing back.
  messages[0].push_back({.from = 1, .to = 2, .started_ns = 1'000'000'000, .arrived_ns = 5});
  const std::vector<ClockSet> clocks = AlignClocks(4, messages);
  EXPECT_TRUE(clocks[0][1].known);
  for (const uint32_t rank : {2, 3}) {
    EXPECT_FALSE(clocks[0][rank].known);
    EXPECT_EQ(clocks[0][rank].ToReference(77), 77);
  }
}

TEST(AlignClocksTest, TimesThatContradictEachOtherWidenTheUncertainty) {
  // There and back in less than no time, by 40 us.
  const std::vector<ClockMessage> messages = {{0, 1, 0, 1'000'000}, {1, 0, 1'500'000, 460'000}};
  const std::vector<ClockSet> clocks = AlignClocks(2, {messages});
  EXPECT_TRUE(clocks[0][1].known);
  EXPECT_NEAR(clocks[0][1].offset_ns, 1'020'000, 20'000);
  EXPECT_LT(clocks[0][1].uncertainty_ns, 100'000);
}

TEST(AlignClocksTest, OfNoRankThereIsNothing) { EXPECT_TRUE(AlignClocks(0, {{}}).empty()); }

}  // namespace
}  // namespace penstock::core
