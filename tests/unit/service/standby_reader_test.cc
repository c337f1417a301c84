// When a standby reads the store, and what it tells while it does not.
#include "planner/service/standby/standby_reader.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "planner/service/engine/fake_clock.h"
#include "planner/service/store/memory_event_store.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/service/event.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

using absl::StatusCode;

// What many readers of a store have seen.
struct Reads {
  MemoryEventStore memory;
  Mutex mutex;
  int opened ABSL_GUARDED_BY(mutex) = 0;
  int closed ABSL_GUARDED_BY(mutex) = 0;
  int loads ABSL_GUARDED_BY(mutex) = 0;
  absl::Status failure ABSL_GUARDED_BY(mutex);
  // Called by each Load, without the lock.
  std::function<void()> gate ABSL_GUARDED_BY(mutex);
  Event stopped;
};

// A store that is only read.
class CountingStore final : public EventStore {
 public:
  explicit CountingStore(Reads* reads) : reads_(reads) {
    MutexLock lock(&reads_->mutex);
    ++reads_->opened;
  }
  ~CountingStore() override {
    MutexLock lock(&reads_->mutex);
    ++reads_->closed;
  }
  absl::StatusOr<std::vector<StoredJob>> Load() override {
    std::function<void()> gate;
    absl::Status failure;
    {
      MutexLock lock(&reads_->mutex);
      ++reads_->loads;
      gate = reads_->gate;
      failure = reads_->failure;
    }
    if (gate) gate();
    if (!failure.ok()) return failure;
    return reads_->memory.Load();
  }
  void Stop() override { reads_->stopped.Notify(); }

  absl::Status Commit(absl::Span<const JobChange>) override { return absl::UnimplementedError("reads"); }
  absl::StatusOr<uint64_t> LargestJob() override { return absl::UnimplementedError("reads"); }
  absl::StatusOr<std::string> GetBatch(uint64_t, uint64_t) override {
    return absl::UnimplementedError("reads");
  }
  absl::Status Check() override { return absl::UnimplementedError("reads"); }
  absl::StatusOr<std::unique_ptr<StoreCopy>> BeginCopy() override {
    return absl::UnimplementedError("reads");
  }

 private:
  Reads* const reads_;
};

class StandbyReaderTest : public testing::Test {
 protected:
  void Commit(uint64_t key, const std::string& job_id) {
    store::v1::Event event;
    *event.mutable_job_registered()->mutable_spec() = MakeJob(job_id);
    const JobChange change = {
        .job = key, .job_id = job_id, .first_sequence = 1, .events = {event.SerializeAsString()}};
    ASSERT_TRUE(reads_.memory.Commit({&change, 1}).ok());
  }
  void Fail(const absl::Status& failure) {
    MutexLock lock(&reads_.mutex);
    reads_.failure = failure;
  }
  int loads() {
    MutexLock lock(&reads_.mutex);
    return reads_.loads;
  }
  absl::StatusOr<StandbyReader::Jobs> Read() {
    Event answered;
    absl::StatusOr<StandbyReader::Jobs> answer = absl::UnknownError("not answered");
    reader_.Read([&](absl::StatusOr<StandbyReader::Jobs> jobs) {
      answer = std::move(jobs);
      answered.Notify();
    });
    EXPECT_TRUE(answered.Await());
    return answer;
  }

  Reads reads_;
  FakeClock clock_;
  StandbyReader reader_{[this] { return std::make_unique<CountingStore>(&reads_); }, &clock_, {}};
};

TEST_F(StandbyReaderTest, TellsTheJobsOfTheStoreAndNothingBeforeSomebodyAsks) {
  Commit(1, "mix");
  EXPECT_EQ(loads(), 0);
  const auto jobs = Read();
  ASSERT_THAT(jobs, IsOk());
  ASSERT_NE(jobs->jobs->Find("mix"), nullptr);
  EXPECT_EQ(jobs->jobs->Find("mix")->spec().job_id(), "mix");
  EXPECT_EQ(jobs->jobs->Find("other"), nullptr);
  EXPECT_EQ(jobs->age, absl::ZeroDuration());
}

TEST_F(StandbyReaderTest, WhatWasReadIsGivenForASecondWithItsAgeAndThenReadAgain) {
  ASSERT_THAT(Read(), IsOk());
  Commit(1, "mix");
  clock_.Advance(absl::Milliseconds(900));
  const auto old = Read();
  ASSERT_THAT(old, IsOk());
  EXPECT_EQ(old->age, absl::Milliseconds(900));
  EXPECT_EQ(old->jobs->Find("mix"), nullptr);
  EXPECT_EQ(loads(), 1);
  clock_.Advance(absl::Milliseconds(100));
  EXPECT_NE(Read()->jobs->Find("mix"), nullptr);
  EXPECT_EQ(loads(), 2);
}

TEST_F(StandbyReaderTest, ALongReadIsFollowedByALongPause) {
  {
    MutexLock lock(&reads_.mutex);
    reads_.gate = [this] { clock_.Advance(absl::Seconds(2)); };
  }
  EXPECT_EQ(Read()->age, absl::Seconds(2));
  clock_.Advance(absl::Seconds(19));
  EXPECT_EQ(Read()->age, absl::Seconds(21));
  EXPECT_EQ(loads(), 1);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Read()->age, absl::Seconds(2));
  EXPECT_EQ(loads(), 2);
}

TEST_F(StandbyReaderTest, WhileTheStoreFailsTheLastReadIsToldHoweverOldItIs) {
  Commit(1, "mix");
  ASSERT_THAT(Read(), IsOk());
  Fail(absl::UnavailableError("gone"));
  clock_.Advance(absl::Minutes(5));
  const auto jobs = Read();
  ASSERT_THAT(jobs, IsOk());
  EXPECT_EQ(jobs->age, absl::Minutes(5));
  EXPECT_NE(jobs->jobs->Find("mix"), nullptr);
}

TEST_F(StandbyReaderTest, AStoreThatWasNeverReadIsAskedAgainAfterTheSamePause) {
  Fail(absl::UnavailableError("gone"));
  EXPECT_THAT(Read(), Fails(StatusCode::kUnavailable, "gone"));
  EXPECT_THAT(Read(), Fails(StatusCode::kUnavailable, "gone"));
  EXPECT_EQ(loads(), 1);
  Fail(absl::OkStatus());
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(Read(), IsOk());
}

TEST_F(StandbyReaderTest, AllWhoAskDuringAReadAreAnsweredByIt) {
  Event begun, go_on, answered;
  {
    MutexLock lock(&reads_.mutex);
    reads_.gate = [&] {
      begun.Notify();
      go_on.Await();
    };
  }
  for (int i = 0; i < 3; ++i)
    reader_.Read([&](const absl::StatusOr<StandbyReader::Jobs>& jobs) {
      EXPECT_THAT(jobs, IsOk());
      answered.Notify();
    });
  ASSERT_TRUE(begun.Await());
  go_on.Notify();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(answered.Await());
  EXPECT_EQ(loads(), 1);
}

TEST_F(StandbyReaderTest, AnEndStopsTheReadAndEndsWhoWaits) {
  Event begun;
  {
    MutexLock lock(&reads_.mutex);
    reads_.failure = absl::CancelledError("stopped");
    reads_.gate = [&] {
      begun.Notify();
      // As a server that does not answer until the store is stopped.
      reads_.stopped.Await();
    };
  }
  Event answered;
  reader_.Read([&](const absl::StatusOr<StandbyReader::Jobs>& jobs) {
    EXPECT_THAT(jobs, Fails(StatusCode::kCancelled, ""));
    answered.Notify();
  });
  ASSERT_TRUE(begun.Await());
  reader_.Stop();
  EXPECT_TRUE(answered.Await());
  EXPECT_THAT(Read(), Fails(StatusCode::kCancelled, "stops"));
}

TEST_F(StandbyReaderTest, ForgottenJobsAreReadAgainFromAStoreThatIsOpenedAgain) {
  ASSERT_THAT(Read(), IsOk());
  Commit(1, "mix");
  reader_.Forget();
  EXPECT_NE(Read()->jobs->Find("mix"), nullptr) << "although no second is over";
  MutexLock lock(&reads_.mutex);
  EXPECT_EQ(reads_.opened, 2);
  EXPECT_EQ(reads_.closed, 1);
}

}  // namespace
}  // namespace penstock
