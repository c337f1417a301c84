#include "common/process/background_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

namespace penstock {
namespace {

int Niceness() { return getpriority(PRIO_PROCESS, 0); }

TEST(BackgroundThreadTest, GivesWayAloneAndNoFurtherThanThereIs) {
  const int before = Niceness();
  int once = 0, often = 0;
  std::thread([&] {
    BecomeBackgroundThread();
    once = Niceness();
    for (int i = 0; i < 5; ++i) BecomeBackgroundThread();
    often = Niceness();
  }).join();
  EXPECT_GT(once, before);
  EXPECT_EQ(often, 19);
  EXPECT_EQ(Niceness(), before) << "others of the process do not";
}

}  // namespace
}  // namespace penstock
