#include "planner/service/journal/change_queue.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

QueuedChange Change(uint64_t job, size_t bytes, uint64_t sequence = 2) {
  return {.change = {.job = job,
                     .job_id = absl::StrCat("job", job),
                     .first_sequence = sequence,
                     .events = {"event"}},
          .bytes = bytes};
}

QueuedChange Removal(uint64_t job, const std::string& name) {
  return {.change = {.job = job, .job_id = name, .remove = true}, .bytes = 1};
}

// The jobs of what is taken one by one.
std::vector<uint64_t> TakeAll(ChangeQueue& queue) {
  std::vector<uint64_t> jobs;
  while (!queue.empty()) {
    for (const QueuedChange& change : queue.Take(1)) jobs.push_back(change.change.job);
  }
  return jobs;
}

TEST(ChangeQueueTest, WhoWritesLittleComesBeforeAllThatOthersHaveQueued) {
  ChangeQueue queue;
  for (int i = 0; i < 8; ++i) {
    for (uint64_t job = 1; job <= 8; ++job) queue.Push(absl::StrCat("owner", job), Change(job, 1000));
  }
  for (int i = 0; i < 20; ++i) {
    queue.Push("small", Change(9, 10));
    EXPECT_EQ(queue.Take(1).front().change.job, 9);
    queue.Take(1);
  }
}

TEST(ChangeQueueTest, OwnersGetTheSameBytesHoweverLargeTheirChangesAreAndHoweverManyJobsTheyHave) {
  ChangeQueue queue;
  for (int i = 0; i < 1000; ++i) queue.Push("one large job", Change(1, 1000));
  for (uint64_t i = 0; i < 10'000; ++i) queue.Push("ten small jobs", Change(2 + i % 10, 100));
  int large = 0;
  for (int i = 0; i < 2200; ++i) large += queue.Take(1).front().change.job == 1 ? 1 : 0;
  // Ten small ones for each.
  EXPECT_NEAR(large, 200, 5);
}

TEST(ChangeQueueTest, JobsOfAnOwnerShareItsBytes) {
  ChangeQueue queue;
  for (int i = 0; i < 100; ++i) queue.Push("owner", Change(1, 1000));
  for (int i = 0; i < 100; ++i) queue.Push("owner", Change(2, 10));
  size_t large = 0;
  for (int i = 0; i < 101; ++i) large += queue.Take(1).front().change.job == 1 ? 1 : 0;
  EXPECT_EQ(large, 1);
}

TEST(ChangeQueueTest, NothingStarvesWhileOthersComeWithoutEnd) {
  ChangeQueue queue;
  queue.Push("large", Change(1, 400));
  std::optional<int> turn;
  for (int i = 0; i < 200 && !turn.has_value(); ++i) {
    queue.Push(absl::StrCat("new", i), Change(2 + i, 10));
    if (queue.Take(1).front().change.job == 1) turn = i;
  }
  ASSERT_TRUE(turn.has_value());
  EXPECT_GE(*turn, 40);
  EXPECT_LE(*turn, 80);
}

TEST(ChangeQueueTest, WhoHasHadMuchIsNotForgottenWhenNothingOfItWaitsForAMoment) {
  ChangeQueue queue;
  queue.Push("other", Change(2, 1000));
  queue.Push("other", Change(2, 1000));
  queue.Push("often", Change(1, 900));
  size_t often = 0;
  for (int i = 0; i < 4; ++i) {
    if (queue.Take(1).front().change.job == 1) {
      ++often;
      queue.Push("often", Change(1, 900));
    }
  }
  EXPECT_EQ(often, 2);
}

TEST(ChangeQueueTest, TakesAsMuchAsFitsAndAtLeastOne) {
  ChangeQueue queue;
  EXPECT_TRUE(queue.Take(100).empty());
  queue.Push("owner", Change(1, 1000));
  for (int i = 0; i < 5; ++i) queue.Push("owner", Change(1, 40));
  EXPECT_EQ(queue.Take(100).size(), 1);
  EXPECT_EQ(queue.Take(100).size(), 2);
  EXPECT_EQ(queue.Take(100).size(), 2);
  EXPECT_EQ(queue.size(), 1);
}

TEST(ChangeQueueTest, ARegistrationWaitsForTheRemovalOfTheJobThatHadItsName) {
  ChangeQueue queue;
  queue.Push("busy", Change(1, 1000));
  queue.Push("busy", Removal(1, "job2"));
  queue.Push("other", Change(2, 1, /*sequence=*/1));
  queue.Push("other", Change(2, 1));
  queue.Push("third", Change(3, 1, /*sequence=*/1));
  // Of the new one of that name: waits for nothing but it.
  queue.Push("other", Removal(2, "job2"));
  EXPECT_EQ(TakeAll(queue), (std::vector<uint64_t>{3, 1, 1, 2, 2, 2}));
}

TEST(ChangeQueueTest, KnowsWhatHasWaitedLongest) {
  ChangeQueue queue;
  EXPECT_EQ(queue.oldest(), absl::InfiniteFuture());
  for (int i = 0; i < 3; ++i) {
    QueuedChange change = Change(3 - i, 10);
    change.appended = absl::FromUnixSeconds(10 + i);
    queue.Push("owner", std::move(change));
  }
  EXPECT_EQ(queue.oldest(), absl::FromUnixSeconds(10));
}

}  // namespace
}  // namespace penstock
