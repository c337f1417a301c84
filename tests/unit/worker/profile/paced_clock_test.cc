#include "worker/profile/paced_clock.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

// A machine whose work takes longer while it is slow.
struct Machine {
  void Work(double ns) { now += ns * slowness; }

  double now = 0;
  double slowness = 1;
};

constexpr double kPulse = 1e6;
constexpr double kPass = 1e8;

class PacedClockTest : public ::testing::Test {
 protected:
  double TimeOfAPass() {
    const double start = clock_.Now();
    machine_.Work(kPass);
    return clock_.Now() - start;
  }

  Machine machine_;
  PacedClock clock_ = PacedClock([this] { return machine_.now; }, [this] { machine_.Work(kPulse); });
};

TEST_F(PacedClockTest, APassTakesAsLongWhileTheMachineIsSlow) {
  EXPECT_NEAR(TimeOfAPass(), kPass, 1);
  machine_.slowness = 1.5;
  // The clock hears of it at its next pulse.
  TimeOfAPass();
  EXPECT_NEAR(TimeOfAPass(), kPass, 1);
  machine_.slowness = 0.7;
  TimeOfAPass();
  EXPECT_NEAR(TimeOfAPass(), kPass, 1);
}

TEST_F(PacedClockTest, ItsOwnWorkIsNotCounted) {
  const double start = clock_.Now();
  for (int i = 0; i < 100; ++i) TimeOfAPass();
  EXPECT_NEAR(clock_.Now() - start, 100 * kPass, 1);
  EXPECT_GT(machine_.now, 100 * (kPass + kPulse));
}

TEST_F(PacedClockTest, TheLevelIsTheMeanSpeedRelativeToTheFirst) {
  EXPECT_DOUBLE_EQ(clock_.Level(), 1);
  machine_.slowness = 2;
  for (int i = 0; i < 100; ++i) TimeOfAPass();
  EXPECT_NEAR(clock_.Level(), 2, 0.02);
}

TEST(PacedClock, WithoutWorkIsTheClockItself) {
  double now = 5;
  PacedClock clock([&] { return now; }, nullptr);
  EXPECT_EQ(clock.Now(), 5);
  now = 1e9;
  EXPECT_EQ(clock.Now(), 1e9);
  EXPECT_EQ(clock.Level(), 1);
}

}  // namespace
}  // namespace penstock::worker
