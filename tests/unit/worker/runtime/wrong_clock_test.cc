#include "worker/runtime/wrong_clock.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

constexpr int64_t kNewYear = 1'800'000'000'000'000'000;
constexpr int64_t kSecond = 1'000'000'000;

IterationResult Measured(int64_t after_ns) {
  IterationResult result;
  result.started_unix_ns = kNewYear + after_ns;
  result.duration_ns = 2 * kSecond;
  result.instructions = {{.id = 0, .start_ns = 0, .duration_ns = kSecond},
                         {.id = 1, .start_ns = kSecond, .duration_ns = kSecond / 2}};
  return result;
}

TEST(WrongClockTest, IsAheadFromTheFirstIterationOnAndGains) {
  WrongClock clock({{.rank = 1, .seconds = -0.5, .drift_ppm = 100}}, 1);
  IterationResult first = Measured(0);
  clock.Read(7, &first);
  EXPECT_EQ(first.started_unix_ns, kNewYear - kSecond / 2);
  EXPECT_EQ(first.duration_ns, 2 * kSecond + 200'000);
  EXPECT_EQ(first.instructions[1].start_ns, kSecond + 100'000);
  EXPECT_EQ(first.instructions[1].duration_ns, kSecond / 2 + 50'000);
  IterationResult later = Measured(10 * kSecond);
  clock.Read(8, &later);
  EXPECT_EQ(later.started_unix_ns, kNewYear + 10 * kSecond - kSecond / 2 + 1'000'000);
  EXPECT_EQ(later.instructions[0].start_ns, 0);
  EXPECT_EQ(later.instructions[0].duration_ns, kSecond + 100'000);
}

TEST(WrongClockTest, ARankWaitsInsideAPassForNoLongerThanItTakes) {
  WrongClock clock({{.rank = 1, .seconds = 0, .drift_ppm = -100}}, 1);
  IterationResult result = Measured(0);
  result.instructions[0].exchange_ns = kSecond;
  result.instructions[1].exchange_ns = 7;
  clock.Read(0, &result);
  EXPECT_EQ(result.instructions[0].exchange_ns, kSecond - 100'000);
  EXPECT_EQ(result.instructions[0].exchange_ns, result.instructions[0].duration_ns);
  EXPECT_EQ(result.instructions[1].exchange_ns, 7);
}

TEST(WrongClockTest, OfOtherRanksIsRight) {
  WrongClock clock({{.rank = 1, .seconds = 1, .drift_ppm = 100}}, 0);
  IterationResult result = Measured(5);
  clock.Read(0, &result);
  EXPECT_EQ(result.started_unix_ns, kNewYear + 5);
  EXPECT_EQ(result.duration_ns, 2 * kSecond);
  EXPECT_EQ(result.instructions[1].start_ns, kSecond);
}

}  // namespace
}  // namespace penstock::worker
