#include "worker/device/simulated/pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace penstock::worker {
namespace {

// Waits by setting the time.
class FakeClock : public WallClock {
 public:
  int64_t NowNs() const override { return now_ns; }
  absl::Status WaitUntil(int64_t deadline_ns) override {
    now_ns = std::max(now_ns, deadline_ns);
    return cancelled;
  }
  void Cancel(const absl::Status& why) override { cancelled = why; }

  int64_t now_ns = 1'000'000;
  absl::Status cancelled;
};

TEST(PaceTest, WaitsForScaledMoments) {
  FakeClock clock;
  Pace pace(&clock, 0.5);
  pace.Begin(0);
  EXPECT_TRUE(pace.WaitUntil(400).ok());
  EXPECT_EQ(clock.now_ns, 1'000'200);
}

TEST(PaceTest, LatenessIsMadeUpFor) {
  FakeClock clock;
  Pace pace(&clock, 1);
  pace.Begin(0);
  clock.now_ns += 70;  // the host is late
  EXPECT_TRUE(pace.WaitUntil(50).ok());
  EXPECT_EQ(clock.now_ns, 1'000'070);
  EXPECT_TRUE(pace.WaitUntil(100).ok());
  EXPECT_EQ(clock.now_ns, 1'000'100);
}

TEST(PaceTest, AnIterationThatStartsLateHasAllItsTimeBeforeIt) {
  FakeClock clock;
  Pace pace(&clock, 1);
  pace.Begin(0);
  EXPECT_TRUE(pace.WaitUntil(100).ok());
  clock.now_ns += 5'000;  // the program was late
  pace.Begin(100);
  EXPECT_TRUE(pace.WaitUntil(130).ok());
  EXPECT_EQ(clock.now_ns, 1'005'130);
}

TEST(PaceTest, ScaleZeroNeverWaits) {
  FakeClock clock;
  Pace pace(&clock, 0);
  pace.Begin(0);
  EXPECT_TRUE(pace.WaitUntil(1'000'000'000'000).ok());
  EXPECT_EQ(clock.now_ns, 1'000'000);
}

TEST(PaceTest, CancelEndsAWaitOnTheWallClock) {
  const std::unique_ptr<WallClock> clock = MakeWallClock();
  Pace pace(clock.get(), 1);
  pace.Begin(0);
  std::thread other([&] { pace.Cancel(absl::CancelledError("stop")); });
  EXPECT_EQ(pace.WaitUntil(int64_t{1} << 50), absl::CancelledError("stop"));
  EXPECT_EQ(pace.WaitUntil(0), absl::CancelledError("stop"));
  other.join();
}

}  // namespace
}  // namespace penstock::worker
