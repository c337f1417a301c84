#include "planner/service/journal/journal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "planner/service/store/memory_event_store.h"
#include "tests/unit/service/event.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

// A store that can be held up and made to fail.
class HeldStore final : public EventStore {
 public:
  absl::Status Commit(absl::Span<const JobChange> changes) override {
    entered.Notify();
    if (hold) go_on.Await();
    ++commits;
    if (const absl::Status status = Failure(); !status.ok()) return status;
    return store.Commit(changes);
  }
  absl::StatusOr<std::vector<StoredJob>> Load() override { return store.Load(); }
  absl::StatusOr<uint64_t> LargestJob() override { return store.LargestJob(); }
  absl::StatusOr<std::string> GetBatch(uint64_t job, uint64_t iteration) override {
    return store.GetBatch(job, iteration);
  }
  absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() override { return store.BeginCopy(); }
  absl::Status Check() override { return absl::OkStatus(); }
  void Stop() override { go_on.Notify(); }

  void Fail(const absl::Status& status) {
    MutexLock lock(&mutex);
    failure = status;
  }
  absl::Status Failure() {
    MutexLock lock(&mutex);
    return failure;
  }

  MemoryEventStore store;
  std::atomic<bool> hold = false;
  std::atomic<int> commits = 0;
  Event entered;
  Event go_on;
  Mutex mutex;
  absl::Status failure;
};

JobChange Change(uint64_t sequence) {
  return {
      .job = 1, .job_id = "job", .first_sequence = sequence, .events = {absl::StrCat("event ", sequence)}};
}

absl::Status Await(Journal& journal) {
  Event answered;
  absl::Status status;
  journal.WhenDurable([&](const absl::Status& durable) {
    status = durable;
    answered.Notify();
  });
  EXPECT_TRUE(answered.Await());
  return status;
}

TEST(JournalTest, AnswersWhenAllBeforeIsInTheStore) {
  HeldStore store;
  Journal journal({}, &store);
  EXPECT_TRUE(Await(journal).ok());  // nothing to wait for
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) journal.Append(Change(sequence));
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_EQ(store.Load()->front().events.size(), 3);
}

TEST(JournalTest, WhatComesWhileAWriteRunsIsWrittenTogether) {
  HeldStore store;
  store.hold = true;
  Journal journal({}, &store);
  journal.Append(Change(1));
  ASSERT_TRUE(store.entered.Await());
  std::atomic<int> committed = 0;
  for (uint64_t sequence = 2; sequence <= 100; ++sequence)
    journal.Append(Change(sequence), [&] { ++committed; });
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_EQ(store.commits, 2);
  EXPECT_EQ(committed, 99);
}

TEST(JournalTest, NobodyIsAnsweredBeforeWhatFollowsFromAChangeIsDone) {
  HeldStore store;
  Journal journal({}, &store);
  Event follows, go_on;
  std::atomic<bool> done = false, answered_first = false;
  journal.Append(Change(1), [&] {
    follows.Notify();
    go_on.Await();
    done = true;
  });
  ASSERT_TRUE(follows.Await());
  Event answered;
  journal.WhenDurable([&](const absl::Status&) {
    answered_first = !done;
    answered.Notify();
  });
  go_on.Notify();
  ASSERT_TRUE(answered.Await());
  EXPECT_FALSE(answered_first);
}

TEST(JournalTest, SaysHowFarTheStoreIsBehind) {
  HeldStore store;
  store.hold = true;
  Journal journal({}, &store);
  EXPECT_EQ(journal.backlog().changes, 0);
  journal.Append(Change(1));
  ASSERT_TRUE(store.entered.Await());
  journal.Append(Change(2));
  EXPECT_EQ(journal.backlog().changes, 2);
  EXPECT_GT(journal.backlog().bytes, 0);
  EXPECT_GT(journal.backlog().age, absl::ZeroDuration());
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_EQ(journal.backlog().bytes, 0);
}

TEST(JournalTest, NobodyWhoAppendsWaitsForTheStore) {
  HeldStore store;
  store.hold = true;
  Journal journal({}, &store);
  for (uint64_t sequence = 1; sequence <= 1000; ++sequence) journal.Append(Change(sequence));
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
}

TEST(JournalTest, TellsWhoWaitsThatTheStoreFailsAndWritesLater) {
  HeldStore store;
  store.Fail(absl::ResourceExhaustedError("jobs.db: the disk is full"));
  Journal journal({.shortest_pause = absl::Milliseconds(1)}, &store);
  journal.Append(Change(1));
  EXPECT_THAT(Await(journal), Fails(absl::StatusCode::kUnavailable, "jobs.db: the disk is full"));
  EXPECT_THAT(journal.health(), Fails(absl::StatusCode::kUnavailable, "the disk is full"));
  Event written;
  journal.Append(Change(2), [&] { written.Notify(); });
  store.Fail(absl::OkStatus());
  ASSERT_TRUE(written.Await());
  EXPECT_EQ(store.Load()->front().events.size(), 2);
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_TRUE(journal.health().ok());
}

TEST(JournalTest, NothingIsWrittenAfterSomebodyElseWrote) {
  HeldStore store;
  store.Fail(absl::AbortedError("another planner leads"));
  Journal journal({}, &store);
  journal.Append(Change(1));
  EXPECT_THAT(Await(journal), Fails(absl::StatusCode::kUnavailable, "another planner leads"));
  store.Fail(absl::OkStatus());
  journal.Append(Change(2));
  EXPECT_THAT(Await(journal), Fails(absl::StatusCode::kUnavailable, "another planner leads"));
  EXPECT_TRUE(store.Load()->empty());
}

TEST(JournalTest, SaysWhenItIsTooFarBehind) {
  HeldStore store;
  store.hold = true;
  Journal journal({.max_waiting_bytes = 100}, &store);
  journal.Append(Change(1));
  EXPECT_THAT(journal.health(), Fails(absl::StatusCode::kUnavailable, "bytes behind"));
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_TRUE(journal.health().ok());
}

TEST(JournalTest, StopWritesWhatWaits) {
  HeldStore store;
  Journal journal({}, &store);
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) journal.Append(Change(sequence));
  journal.Stop(absl::Seconds(20));
  EXPECT_EQ(store.Load()->front().events.size(), 100);
}

TEST(JournalTest, StopDoesNotWaitForAStoreThatHangs) {
  HeldStore store;
  store.hold = true;
  Journal journal({}, &store);
  journal.Append(Change(1));
  ASSERT_TRUE(store.entered.Await());
  std::optional<absl::Status> answer;
  journal.WhenDurable([&](const absl::Status& durable) { answer = durable; });
  journal.Stop(absl::Milliseconds(10));
  ASSERT_TRUE(answer.has_value());
}

}  // namespace
}  // namespace penstock
