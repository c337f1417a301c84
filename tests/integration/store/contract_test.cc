// What every store promises (planner/service/store/event_store.h), asked of every store.
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "tests/integration/store/changes.h"
#include "tests/integration/store/store_kind.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (const auto reason = GetParam().skip(); reason.has_value()) GTEST_SKIP() << *reason;
    place_ = GetParam().make();
    Open();
  }

  void Open() {
    store_.reset();
    auto store = place_->Open();
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  absl::Status Commit(std::vector<JobChange> changes) { return store_->Commit(changes); }

  std::vector<StoredJob> Load() {
    auto jobs = store_->Load();
    EXPECT_THAT(jobs, IsOk());
    return jobs.ok() ? *std::move(jobs) : std::vector<StoredJob>();
  }

  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<EventStore> store_;
};

// All 256 values, so that no store stops at a zero, a quote or what is not UTF-8.
std::string AllBytes() {
  std::string bytes;
  for (int value = 0; value < 256; ++value) bytes.push_back(static_cast<char>(value));
  return bytes;
}

TEST_P(StoreContract, ANewStoreIsEmpty) {
  EXPECT_THAT(Load(), IsEmpty());
  EXPECT_EQ(*store_->LargestJob(), 0);
  EXPECT_THAT(store_->Check(), IsOk());
}

TEST_P(StoreContract, GivesBackEventsInTheirOrder) {
  ASSERT_THAT(Commit({Append(7, 1, 2)}), IsOk());
  ASSERT_THAT(Commit({Append(7, 3, 12)}), IsOk());
  EXPECT_THAT(Load(), ElementsAre(HasEvents(7, 1, 14)));
}

TEST_P(StoreContract, GivesBackJobsByKey) {
  ASSERT_THAT(Commit({Append(30, 1, 1), Append(4, 1, 2), Append(200, 1, 3)}), IsOk());
  EXPECT_THAT(Load(), ElementsAre(HasEvents(4, 1, 2), HasEvents(30, 1, 1), HasEvents(200, 1, 3)));
}

TEST_P(StoreContract, OneCommitMayChangeAJobSeveralTimes) {
  ASSERT_THAT(Commit({Append(1, 1, 2), Append(2, 1, 1), Append(1, 3, 2), AddSnapshot(1, 3, "at 3")}), IsOk());
  const auto jobs = Load();
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].snapshot->bytes, "at 3");
  EXPECT_THAT(jobs[0].events, ElementsAre("1/4"));
}

TEST_P(StoreContract, ACommitOfNothingIsDone) { EXPECT_THAT(Commit({}), IsOk()); }

TEST_P(StoreContract, KeepsBytesAsTheyAre) {
  const std::string bytes = AllBytes();
  JobChange change = Append(1, 1, 0);
  change.events = {bytes, "", bytes + bytes};
  change.batches = {{0, bytes}, {1, ""}};
  ASSERT_THAT(Commit({change, AddSnapshot(1, 1, bytes)}), IsOk());
  const auto jobs = Load();
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0].snapshot->bytes, bytes);
  EXPECT_THAT(jobs[0].events, ElementsAre("", bytes + bytes));
  EXPECT_EQ(*store_->GetBatch(1, 0), bytes);
  EXPECT_EQ(*store_->GetBatch(1, 1), "");
}

TEST_P(StoreContract, KeepsTheNameThatPeopleGave) {
  JobChange change = Append(1, 1, 1);
  change.job_id = "Möhre's \"job\"; --";
  ASSERT_THAT(Commit({change}), IsOk());
  EXPECT_EQ(Load()[0].job_id, change.job_id);
}

TEST_P(StoreContract, KeepsLargeBatches) {
  const std::string batch(8 << 20, 'x');
  ASSERT_THAT(Commit({Append(1, 1, 1), AddBatch(1, 5, batch)}), IsOk());
  EXPECT_EQ(*store_->GetBatch(1, 5), batch);
}

TEST_P(StoreContract, TakesTheLargestNumbers) {
  const uint64_t largest = std::numeric_limits<int64_t>::max();
  ASSERT_THAT(Commit({Append(largest, 1, 1), AddBatch(largest, largest, "last")}), IsOk());
  EXPECT_THAT(Load(), ElementsAre(HasEvents(largest, 1, 1)));
  EXPECT_EQ(*store_->GetBatch(largest, largest), "last");
  EXPECT_EQ(*store_->LargestJob(), largest);
}

TEST_P(StoreContract, RefusesNumbersThatNoDatabaseCounts) {
  const uint64_t large = uint64_t{1} << 63;
  EXPECT_THAT(Commit({Append(0, 1, 1)}), Fails(StatusCode::kInvalidArgument, "job is 0"));
  EXPECT_THAT(Commit({Append(large, 1, 1)}),
              Fails(StatusCode::kInvalidArgument, "job is 9223372036854775808"));
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  EXPECT_THAT(Commit({Append(1, 0, 1)}), Fails(StatusCode::kInvalidArgument, "first_sequence is 0"));
  EXPECT_THAT(Commit({AddBatch(1, large, "")}), Fails(StatusCode::kInvalidArgument, "iteration of a batch"));
  EXPECT_THAT(Commit({{.job = 1, .forget_batches_before = large}}),
              Fails(StatusCode::kInvalidArgument, "forget_batches_before"));
  EXPECT_THAT(Commit({AddSnapshot(1, 0, "")}), Fails(StatusCode::kInvalidArgument, "snapshot.sequence is 0"));
}

TEST_P(StoreContract, RefusesEventsThatLeaveAGap) {
  ASSERT_THAT(Commit({Append(7, 1, 2)}), IsOk());
  EXPECT_THAT(Commit({Append(7, 4, 1)}),
              Fails(StatusCode::kAborted, "job 7: event 4 does not follow event 2"));
  EXPECT_THAT(Commit({Append(8, 2, 1)}), Fails(StatusCode::kInvalidArgument, "job_id"));
  JobChange change = Append(8, 2, 1);
  change.job_id = "job-8";
  EXPECT_THAT(Commit({change}), Fails(StatusCode::kAborted, "job 8: event 2 does not follow event 0"));
  EXPECT_THAT(Load(), ElementsAre(HasEvents(7, 1, 2)));
}

TEST_P(StoreContract, RefusesEventsThatExist) {
  ASSERT_THAT(Commit({Append(7, 1, 3)}), IsOk());
  EXPECT_THAT(Commit({Append(7, 3, 1)}), Fails(StatusCode::kAborted, "event 3 does not follow event 3"));
  EXPECT_THAT(Commit({Append(7, 1, 1)}), Fails(StatusCode::kAborted, "event 1 does not follow event 3"));
}

TEST_P(StoreContract, DoesNothingOfACommitThatIsRefused) {
  ASSERT_THAT(Commit({Append(1, 1, 1), AddBatch(1, 0, "old")}), IsOk());
  JobChange change = Append(1, 2, 1);
  change.batches = {{0, "new"}, {1, "new"}};
  change.forget_batches_before = 1;
  change.snapshot = Snapshot{.sequence = 2, .bytes = "new"};
  EXPECT_THAT(Commit({change, Append(2, 1, 1), Remove(1), Append(9, 1, 0)}),
              Fails(StatusCode::kAborted, "job 9: is not stored"));
  EXPECT_THAT(Load(), ElementsAre(HasEvents(1, 1, 1)));
  EXPECT_EQ(*store_->GetBatch(1, 0), "old");
  EXPECT_THAT(store_->GetBatch(1, 1), Fails(StatusCode::kNotFound, "iteration 1"));
  EXPECT_EQ(*store_->LargestJob(), 1);
}

TEST_P(StoreContract, GoesOnAfterACommitThatWasRefused) {
  EXPECT_FALSE(Commit({Append(1, 2, 1)}).ok());
  EXPECT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  EXPECT_THAT(Load(), ElementsAre(HasEvents(1, 1, 1)));
}

TEST_P(StoreContract, TheFirstChangeOfAJobHasEventsAndAName) {
  JobChange nameless = Append(1, 1, 1);
  nameless.job_id.clear();
  EXPECT_THAT(Commit({nameless}), Fails(StatusCode::kInvalidArgument, "job_id"));
  EXPECT_THAT(Commit({AddBatch(1, 0, "batch")}), Fails(StatusCode::kAborted, "job 1: is not stored"));
  EXPECT_THAT(Commit({AddSnapshot(1, 1, "snapshot")}), Fails(StatusCode::kAborted, "job 1: is not stored"));
}

TEST_P(StoreContract, ASnapshotTakesThePlaceOfEvents) {
  ASSERT_THAT(Commit({Append(1, 1, 10)}), IsOk());
  ASSERT_THAT(Commit({AddSnapshot(1, 4, "at 4")}), IsOk());
  auto jobs = Load();
  EXPECT_EQ(jobs[0].snapshot->sequence, 4);
  EXPECT_EQ(jobs[0].snapshot->bytes, "at 4");
  EXPECT_EQ(jobs[0].first_sequence, 5);
  EXPECT_EQ(jobs[0].events, MakeEvents(1, 5, 6));

  ASSERT_THAT(Commit({AddSnapshot(1, 10, "at 10")}), IsOk());
  jobs = Load();
  EXPECT_EQ(jobs[0].snapshot->sequence, 10);
  EXPECT_EQ(jobs[0].snapshot->bytes, "at 10");
  EXPECT_EQ(jobs[0].first_sequence, 11);
  EXPECT_THAT(jobs[0].events, IsEmpty());

  ASSERT_THAT(Commit({Append(1, 11, 1)}), IsOk());
  EXPECT_EQ(Load()[0].events, MakeEvents(1, 11, 1));
}

TEST_P(StoreContract, ASnapshotMayCoverEventsOfItsOwnChange) {
  JobChange change = Append(1, 1, 3);
  change.snapshot = Snapshot{.sequence = 3, .bytes = "at 3"};
  ASSERT_THAT(Commit({change}), IsOk());
  EXPECT_EQ(Load()[0].first_sequence, 4);
}

TEST_P(StoreContract, RefusesASnapshotOfWhatIsNotStored) {
  ASSERT_THAT(Commit({Append(1, 1, 4), AddSnapshot(1, 3, "at 3")}), IsOk());
  EXPECT_THAT(Commit({AddSnapshot(1, 5, "at 5")}), Fails(StatusCode::kAborted, "a snapshot after event 5"));
  EXPECT_THAT(Commit({AddSnapshot(1, 2, "at 2")}), Fails(StatusCode::kAborted, "a snapshot after event 2"));
  EXPECT_EQ(Load()[0].snapshot->bytes, "at 3");
}

TEST_P(StoreContract, ASecondBatchOfAnIterationReplacesTheFirst) {
  ASSERT_THAT(Commit({Append(1, 1, 1), AddBatch(1, 3, "first")}), IsOk());
  ASSERT_THAT(Commit({AddBatch(1, 3, "second")}), IsOk());
  EXPECT_EQ(*store_->GetBatch(1, 3), "second");
}

TEST_P(StoreContract, ForgetsBatchesBeforeAnIteration) {
  ASSERT_THAT(Commit({Append(1, 1, 1), Append(2, 1, 1)}), IsOk());
  for (uint64_t job : {1, 2}) {
    for (uint64_t i = 0; i < 4; ++i) ASSERT_THAT(Commit({AddBatch(job, i, "batch")}), IsOk());
  }
  JobChange change = AddBatch(1, 4, "batch");
  change.forget_batches_before = 2;
  ASSERT_THAT(Commit({change}), IsOk());
  EXPECT_THAT(store_->GetBatch(1, 1), Fails(StatusCode::kNotFound, "iteration 1 of job 1"));
  EXPECT_THAT(store_->GetBatch(1, 2), IsOk());
  EXPECT_THAT(store_->GetBatch(1, 4), IsOk());
  EXPECT_THAT(store_->GetBatch(2, 0), IsOk());
}

TEST_P(StoreContract, ABatchThatIsNotStoredIsNotFound) {
  EXPECT_THAT(store_->GetBatch(1, 3), Fails(StatusCode::kNotFound, "iteration 3 of job 1"));
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  EXPECT_THAT(store_->GetBatch(1, 3), Fails(StatusCode::kNotFound, "iteration 3 of job 1"));
}

TEST_P(StoreContract, ARemovedJobIsForgottenWithAllThatBelongsToIt) {
  ASSERT_THAT(Commit({Append(1, 1, 2), AddSnapshot(1, 1, "at 1"), AddBatch(1, 0, "batch"), Append(2, 1, 1)}),
              IsOk());
  ASSERT_THAT(Commit({Remove(1)}), IsOk());
  EXPECT_THAT(Load(), ElementsAre(HasEvents(2, 1, 1)));
  EXPECT_THAT(store_->GetBatch(1, 0), Fails(StatusCode::kNotFound, "job 1"));
  EXPECT_THAT(Commit({AddBatch(1, 1, "batch")}), Fails(StatusCode::kAborted, "job 1: is not stored"));
}

TEST_P(StoreContract, RemovingWhatIsNotStoredIsDone) { EXPECT_THAT(Commit({Remove(5)}), IsOk()); }

TEST_P(StoreContract, RemembersTheLargestJobWhenItIsRemoved) {
  ASSERT_THAT(Commit({Append(9, 1, 1), Append(3, 1, 1)}), IsOk());
  ASSERT_THAT(Commit({Remove(9)}), IsOk());
  EXPECT_EQ(*store_->LargestJob(), 9);
  ASSERT_THAT(Commit({Append(4, 1, 1)}), IsOk());
  EXPECT_EQ(*store_->LargestJob(), 9);
}

TEST_P(StoreContract, ReadsWhileAnotherThreadCommits) {
  constexpr int kCommits = 100;
  ASSERT_THAT(Commit({Append(1, 1, 1), AddBatch(1, 0, "batch")}), IsOk());
  std::thread writer([&] {
    for (int i = 0; i < kCommits; ++i)
      EXPECT_THAT(Commit({Append(1, 2 + i, 1), AddBatch(1, i, "batch")}), IsOk());
  });
  for (int i = 0; i < kCommits; ++i) {
    EXPECT_THAT(store_->GetBatch(1, 0), IsOk());
    if (i % 10 == 0) {
      EXPECT_THAT(store_->Check(), IsOk());
      const auto jobs = Load();
      ASSERT_THAT(jobs, SizeIs(1));
      EXPECT_EQ(jobs[0].events, MakeEvents(1, 1, static_cast<int>(jobs[0].events.size())));
    }
  }
  writer.join();
  EXPECT_THAT(Load(), ElementsAre(HasEvents(1, 1, kCommits + 1)));
}

TEST_P(StoreContract, StopsWhenItIsTold) {
  ASSERT_THAT(Commit({Append(1, 1, 1)}), IsOk());
  store_->Stop();
  EXPECT_THAT(Commit({Append(1, 2, 1)}), Fails(StatusCode::kCancelled, "stopped"));
  EXPECT_THAT(store_->Load(), Fails(StatusCode::kCancelled, "stopped"));
  EXPECT_THAT(store_->LargestJob(), Fails(StatusCode::kCancelled, "stopped"));
  EXPECT_THAT(store_->GetBatch(1, 1), Fails(StatusCode::kCancelled, "stopped"));
  EXPECT_THAT(store_->Check(), Fails(StatusCode::kCancelled, "stopped"));
}

TEST_P(StoreContract, EverythingIsThereWhenItIsOpenedAgain) {
  if (!GetParam().durable) GTEST_SKIP() << GetParam().name << " keeps nothing beyond its process";
  ASSERT_THAT(Commit({Append(1, 1, 5), AddSnapshot(1, 3, AllBytes()), AddBatch(1, 7, AllBytes())}), IsOk());
  ASSERT_THAT(Commit({Append(2, 1, 2), Append(5, 1, 1)}), IsOk());
  ASSERT_THAT(Commit({Remove(5)}), IsOk());
  Open();
  const auto jobs = Load();
  ASSERT_THAT(jobs, SizeIs(2));
  EXPECT_EQ(jobs[0].job_id, "job-1");
  EXPECT_EQ(jobs[0].snapshot->sequence, 3);
  EXPECT_EQ(jobs[0].snapshot->bytes, AllBytes());
  EXPECT_EQ(jobs[0].first_sequence, 4);
  EXPECT_EQ(jobs[0].events, MakeEvents(1, 4, 2));
  EXPECT_THAT(jobs[1], HasEvents(2, 1, 2));
  EXPECT_EQ(*store_->GetBatch(1, 7), AllBytes());
  EXPECT_EQ(*store_->LargestJob(), 5);
  EXPECT_THAT(Commit({Append(1, 6, 1)}), IsOk());
}

INSTANTIATE_TEST_SUITE_P(, StoreContract, testing::ValuesIn(AllStores()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
