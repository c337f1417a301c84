#include "worker/comm/bounded_call.h"

#include <gtest/gtest.h>

#include <memory>

#include "absl/synchronization/notification.h"

namespace penstock::worker {
namespace {

TEST(BoundedCall, EndsWithItsBody) {
  const auto value = std::make_shared<int>(0);
  EXPECT_TRUE(EndsWithin(absl::InfiniteDuration(), [value] { *value = 7; }));
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(value.use_count(), 1) << "what the body held is gone";
}

TEST(BoundedCall, LeavesABodyThatDoesNotEnd) {
  const auto release = std::make_shared<absl::Notification>();
  const auto left = std::make_shared<absl::Notification>();
  EXPECT_FALSE(EndsWithin(absl::Milliseconds(1), [release, left] {
    release->WaitForNotification();
    left->Notify();
  }));
  release->Notify();
  left->WaitForNotification();
}

}  // namespace
}  // namespace penstock::worker
