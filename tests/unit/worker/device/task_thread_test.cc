#include "common/sync/task_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace penstock::worker {
namespace {

TEST(TaskThreadTest, RunsTasksInOrder) {
  std::vector<int> order;
  std::promise<void> done;
  TaskThread thread("tasks");
  for (int i = 0; i < 100; ++i) thread.Add([&order, i] { order.push_back(i); });
  thread.Add([&] { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_EQ(order[7], 7);
}

}  // namespace
}  // namespace penstock::worker
