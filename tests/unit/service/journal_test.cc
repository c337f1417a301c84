#include "planner/service/journal/journal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <vector>

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
    groups.emplace_back(changes.begin(), changes.end());
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
  // What was written, by transaction; to be read when nothing is written any more.
  std::vector<std::vector<JobChange>> groups;
  Event entered;
  Event go_on;
  Mutex mutex;
  absl::Status failure;
};

JobChange Change(uint64_t sequence) {
  return {
      .job = 1, .job_id = "job", .first_sequence = sequence, .events = {absl::StrCat("event ", sequence)}};
}

// A batch of a job, with so many bytes.
JobChange Large(uint64_t job, uint64_t sequence, size_t bytes) {
  return {.job = job,
          .job_id = absl::StrCat("job", job),
          .first_sequence = sequence,
          .events = {"accepted"},
          .batches = {{sequence, std::string(bytes, 'x')}}};
}

absl::Status Await(Journal& journal, uint64_t job = 1) {
  Event answered;
  absl::Status status;
  journal.WhenDurable(job, [&](const absl::Status& durable) {
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
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) journal.Append("owner", Change(sequence));
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_EQ(store.Load()->front().events.size(), 3);
}

TEST(JournalTest, WhatComesWhileAWriteRunsIsWrittenTogether) {
  HeldStore store;
  store.hold = true;
  Journal journal({}, &store);
  journal.Append("owner", Change(1));
  ASSERT_TRUE(store.entered.Await());
  std::atomic<int> committed = 0;
  for (uint64_t sequence = 2; sequence <= 100; ++sequence)
    journal.Append("owner", Change(sequence), [&] { ++committed; });
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_EQ(store.commits, 2);
  EXPECT_EQ(committed, 99);
}

JournalOptions Patient() {
  JournalOptions options;
  options.patience = options.long_patience = absl::Hours(1);
  return options;
}

TEST(JournalTest, WhatIsNotUrgentIsWrittenTogetherWithWhatIs) {
  HeldStore store;
  Journal journal(Patient(), &store);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence)
    journal.Append("owner", Change(sequence), nullptr, Urgency::kSoon);
  journal.Append("owner", Change(4));
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_EQ(store.commits, 1);
}

TEST(JournalTest, WhoWaitsForWhatIsNotUrgentMayHurryIt) {
  HeldStore store;
  Journal journal(Patient(), &store);
  journal.Append("owner", Change(1), nullptr, Urgency::kSoon);
  Event answered;
  journal.WhenDurable(
      1, [&](const absl::Status&) { answered.Notify(); }, Urgency::kSoon);
  EXPECT_EQ(store.commits, 0);
  journal.Hurry();
  EXPECT_TRUE(answered.Await());
  EXPECT_EQ(store.commits, 1);
}

TEST(JournalTest, WhatIsNotUrgentIsWrittenAfterAWhile) {
  HeldStore store;
  JournalOptions options;
  options.patience = absl::Milliseconds(1);
  Journal journal(options, &store);
  Event committed;
  journal.Append(
      "owner", Change(1), [&] { committed.Notify(); }, Urgency::kSoon);
  EXPECT_TRUE(committed.Await());
}

TEST(JournalTest, WhatIsNotUrgentIsWrittenBeforeTheEnd) {
  HeldStore store;
  {
    Journal journal(Patient(), &store);
    journal.Append("owner", Change(1), nullptr, Urgency::kSoon);
    journal.Stop(absl::Seconds(20));
  }
  EXPECT_EQ(store.commits, 1);
}

TEST(JournalTest, NobodyIsAnsweredBeforeWhatFollowsFromAChangeIsDone) {
  HeldStore store;
  Journal journal({}, &store);
  Event follows, go_on;
  std::atomic<bool> done = false, answered_first = false;
  journal.Append("owner", Change(1), [&] {
    follows.Notify();
    go_on.Await();
    done = true;
  });
  ASSERT_TRUE(follows.Await());
  Event answered;
  journal.WhenDurable(1, [&](const absl::Status&) {
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
  journal.Append("owner", Change(1));
  ASSERT_TRUE(store.entered.Await());
  journal.Append("owner", Change(2));
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
  for (uint64_t sequence = 1; sequence <= 1000; ++sequence) journal.Append("owner", Change(sequence));
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
}

TEST(JournalTest, TellsWhoWaitsThatTheStoreFailsAndWritesLater) {
  HeldStore store;
  store.Fail(absl::ResourceExhaustedError("jobs.db: the disk is full"));
  Journal journal({.shortest_pause = absl::Milliseconds(1)}, &store);
  journal.Append("owner", Change(1));
  EXPECT_THAT(Await(journal), Fails(absl::StatusCode::kUnavailable, "jobs.db: the disk is full"));
  EXPECT_THAT(journal.health(), Fails(absl::StatusCode::kUnavailable, "the disk is full"));
  Event written;
  journal.Append("owner", Change(2), [&] { written.Notify(); });
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
  journal.Append("owner", Change(1));
  EXPECT_THAT(Await(journal), Fails(absl::StatusCode::kUnavailable, "another planner leads"));
  store.Fail(absl::OkStatus());
  journal.Append("owner", Change(2));
  EXPECT_THAT(Await(journal), Fails(absl::StatusCode::kUnavailable, "another planner leads"));
  EXPECT_TRUE(store.Load()->empty());
}

TEST(JournalTest, SaysWhenItIsTooFarBehind) {
  HeldStore store;
  store.hold = true;
  Journal journal({.max_waiting_bytes = 100}, &store);
  journal.Append("owner", Change(1));
  EXPECT_THAT(journal.health(), Fails(absl::StatusCode::kUnavailable, "bytes behind"));
  store.hold = false;
  store.go_on.Notify();
  EXPECT_TRUE(Await(journal).ok());
  EXPECT_TRUE(journal.health().ok());
}

TEST(JournalTest, StopWritesWhatWaits) {
  HeldStore store;
  Journal journal({}, &store);
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) journal.Append("owner", Change(sequence));
  journal.Stop(absl::Seconds(20));
  EXPECT_EQ(store.Load()->front().events.size(), 100);
}

TEST(JournalTest, StopDoesNotWaitForAStoreThatHangs) {
  HeldStore store;
  store.hold = true;
  Journal journal({}, &store);
  journal.Append("owner", Change(1));
  ASSERT_TRUE(store.entered.Await());
  std::optional<absl::Status> answer;
  journal.WhenDurable(1, [&](const absl::Status& durable) { answer = durable; });
  journal.Stop(absl::Milliseconds(10));
  ASSERT_TRUE(answer.has_value());
}

// The store is held up while everybody's changes come; then all are written.
class JournalOrderTest : public testing::Test {
 protected:
  JournalOrderTest() {
    store_.hold = true;
    journal_.Append("first", Large(99, 1, 1));
    EXPECT_TRUE(store_.entered.Await());
  }

  void WriteAll() {
    store_.hold = false;
    store_.go_on.Notify();
    journal_.Stop(absl::Seconds(20));
  }

  // The transaction that a change of the job with this sequence was written in.
  int GroupOf(uint64_t job, uint64_t sequence) const {
    for (size_t group = 0; group < store_.groups.size(); ++group) {
      for (const JobChange& change : store_.groups[group])
        if (change.job == job && !change.remove && change.first_sequence == sequence)
          return static_cast<int>(group);
    }
    return -1;
  }

  static constexpr size_t kGroup = 100'000;
  HeldStore store_;
  Journal journal_{{.max_group_bytes = kGroup}, &store_};
};

TEST_F(JournalOrderTest, ASmallChangeIsInTheNextTransactionWhateverOthersHaveQueued) {
  for (uint64_t sequence = 1; sequence <= 50; ++sequence) {
    for (uint64_t job : {2, 3}) journal_.Append(absl::StrCat("hurts", job), Large(job, sequence, kGroup / 2));
  }
  journal_.Append("behaves", Large(1, 1, 100));
  Event answered;
  journal_.WhenDurable(1, [&](const absl::Status& durable) {
    EXPECT_TRUE(durable.ok());
    answered.Notify();
  });
  WriteAll();
  EXPECT_TRUE(answered.Await());
  EXPECT_EQ(GroupOf(1, 1), 1);
  EXPECT_GT(store_.groups.size(), 30);
  EXPECT_EQ(GroupOf(2, 50) + 2, static_cast<int>(store_.groups.size())) << "owners take turns";
}

TEST_F(JournalOrderTest, AnOwnersOwnSmallJobDoesNotWaitForItsLargeOne) {
  for (uint64_t sequence = 1; sequence <= 50; ++sequence)
    journal_.Append("owner", Large(2, sequence, kGroup));
  journal_.Append("owner", Large(1, 1, 100));
  WriteAll();
  EXPECT_EQ(GroupOf(1, 1), 1);
}

TEST_F(JournalOrderTest, NothingStarvesWhereSmallChangesComeWithoutEnd) {
  journal_.Append("large", Large(2, 1, 4 * kGroup));
  for (uint64_t sequence = 1; sequence <= 1000; ++sequence)
    journal_.Append("small", Large(1, sequence, kGroup / 10));
  WriteAll();
  EXPECT_GT(GroupOf(2, 1), 1);
  EXPECT_LE(GroupOf(2, 1), 6) << "it comes when the other has had as much as it has";
}

TEST_F(JournalOrderTest, ChangesOfAJobKeepTheirOrderAndEachTransactionLeavesAPrefixOfThem) {
  std::mt19937 random(1);
  std::map<uint64_t, uint64_t> last;
  for (int i = 0; i < 2000; ++i) {
    const uint64_t job = 1 + random() % 12;
    const size_t bytes = random() % 4 == 0 ? random() % (2 * kGroup) : random() % 300;
    journal_.Append(absl::StrCat("owner", job % 4), Large(job, ++last[job], bytes));
  }
  WriteAll();
  // The store refuses what leaves a gap; so after each transaction, where a planner may be killed, it has a
  // prefix of each job's events.
  EXPECT_FALSE(journal_.fenced());
  std::map<uint64_t, uint64_t> seen;
  for (const std::vector<JobChange>& group : store_.groups) {
    for (const JobChange& change : group) {
      if (change.job == 99) continue;
      EXPECT_EQ(change.first_sequence, ++seen[change.job]);
    }
  }
  EXPECT_EQ(seen, last);
}

TEST_F(JournalOrderTest, ANameIsTakenAfterTheJobThatHadItIsRemoved) {
  for (uint64_t sequence = 1; sequence <= 9; ++sequence) {
    JobChange change = Large(2, sequence, kGroup);
    change.job_id = "mix";
    journal_.Append("busy", change);
  }
  journal_.Append("busy", {.job = 2, .job_id = "mix", .remove = true});
  JobChange again = Large(3, 1, 10);
  again.job_id = "mix";
  journal_.Append("other", again);
  journal_.Append("other", Large(1, 1, 10));
  WriteAll();
  EXPECT_EQ(GroupOf(1, 1), 1) << "another job does not wait";
  std::vector<uint64_t> jobs;
  for (const std::vector<JobChange>& group : store_.groups) {
    for (const JobChange& change : group)
      if (change.job_id == "mix") jobs.push_back(change.job);
  }
  ASSERT_EQ(jobs.size(), 11);
  EXPECT_EQ(jobs.back(), 3);
}

TEST_F(JournalOrderTest, ATransactionThatFailsIsWrittenAgainAsItWas) {
  store_.Fail(absl::UnavailableError("the server is away"));
  store_.hold = false;
  store_.go_on.Notify();
  EXPECT_THAT(Await(journal_, 99), Fails(absl::StatusCode::kUnavailable, "the server is away"));
  journal_.Append("behaves", Large(1, 1, 100));
  store_.Fail(absl::OkStatus());
  journal_.Stop(absl::Seconds(20));
  ASSERT_GE(store_.groups.size(), 2);
  EXPECT_EQ(store_.groups[0].size(), 1);
  EXPECT_EQ(store_.groups[0][0].job, 99);
}

TEST_F(JournalOrderTest, WhoWaitsForAJobDoesNotWaitForOthers) {
  EXPECT_TRUE(Await(journal_, 1).ok()) << "nothing of it waits";
  store_.go_on.Notify();
}

}  // namespace
}  // namespace penstock
