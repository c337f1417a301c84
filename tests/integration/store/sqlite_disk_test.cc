// SQLite stores on disks that are full or read-only.
#include <gtest/gtest.h>

#include "planner/service/store/sqlite/sqlite_event_store.h"
#include "tests/integration/store/changes.h"
#include "tests/support/small_disk.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::ElementsAre;

// More than the log takes before SQLite makes room in it (4 MB).
constexpr size_t kDiskBytes = 8 << 20;

class SqliteDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    auto disk = SmallDisk::Mount(folder_.path(), kDiskBytes);
    if (!disk.ok()) GTEST_SKIP() << disk.status();
    disk_ = *std::move(disk);
    Open();
  }

  void Open() {
    store_.reset();
    auto store = SqliteEventStore::Open(path_);
    ASSERT_THAT(store, IsOk());
    store_ = *std::move(store);
  }

  absl::Status Commit(std::vector<JobChange> changes) { return store_->Commit(changes); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.Path("planner.db");
  std::unique_ptr<SmallDisk> disk_;
  std::unique_ptr<SqliteEventStore> store_;
};

TEST_F(SqliteDiskTest, AFullDiskRefusesACommitAndGoesOnByItselfWhenThereIsRoom) {
  ASSERT_THAT(Commit({Append(1, 1, 3)}), IsOk());
  disk_->Fill();
  JobChange change = Append(1, 4, 1);
  change.batches = {{0, std::string(100'000, 'b')}};
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_THAT(Commit({change}), Fails(StatusCode::kResourceExhausted, "make room on its disk"));
    EXPECT_THAT(store_->Load(), IsOk());
  }
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 3)));
  disk_->MakeRoom();
  EXPECT_THAT(store_->Check(), IsOk());
  EXPECT_THAT(Commit({change}), IsOk());
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 4)));
  Open();
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 4)));
  EXPECT_EQ(store_->GetBatch(1, 0)->size(), 100'000);
}

TEST_F(SqliteDiskTest, ReadinessGoesOffWhenTheDiskIsFull) {
  disk_->Fill();
  // Each check needs a page of the log; there may be some left.
  absl::Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = Commit({Append(1, 1 + i, 1)});
  EXPECT_THAT(status, Fails(StatusCode::kResourceExhausted, path_));
  EXPECT_THAT(store_->Check(), Fails(StatusCode::kResourceExhausted, path_));
  disk_->MakeRoom();
  EXPECT_THAT(store_->Check(), IsOk());
}

TEST_F(SqliteDiskTest, WhatWasCommittedBeforeTheDiskWasFullIsThereAfterARestart) {
  int commits = 0;
  while (Commit({Append(1, 1 + commits, 1), AddBatch(1, commits, std::string(20'000, 'b'))}).ok()) ++commits;
  EXPECT_GT(commits, 5);
  store_.reset();
  disk_->MakeRoom();
  Open();
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, commits)));
  for (int i = 0; i < commits; ++i) EXPECT_THAT(store_->GetBatch(1, i), IsOk());
}

TEST_F(SqliteDiskTest, RemovingJobsMakesRoom) {
  absl::Status status;
  for (uint64_t job = 1; job < 500 && status.ok(); ++job) {
    status = Commit({Append(job, 1, 1), AddBatch(job, 0, std::string(50'000, 'b'))});
    if (job > 3 && status.ok()) status = Commit({Remove(job - 3)});
  }
  EXPECT_THAT(status, IsOk());
}

TEST_F(SqliteDiskTest, AReadOnlyDiskIsRefused) {
  ASSERT_THAT(Commit({Append(1, 1, 3)}), IsOk());
  store_.reset();
  ASSERT_THAT(disk_->SetReadOnly(true), IsOk());
  EXPECT_THAT(SqliteEventStore::Open(path_), Fails(StatusCode::kFailedPrecondition, "must be writable"));
  EXPECT_THAT(SqliteEventStore::Open(folder_.Path("new.db")),
              Fails(StatusCode::kFailedPrecondition, "be writable"));
  ASSERT_THAT(disk_->SetReadOnly(false), IsOk());
  Open();
  EXPECT_THAT(*store_->Load(), ElementsAre(HasEvents(1, 1, 3)));
}

}  // namespace
}  // namespace penstock
