#include "worker/runtime/checkpointing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/files/files.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"
#include "worker/runtime/checkpoint_store.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Votes kWritten = {};
constexpr Votes kUnwritten = {.unwritten = true};
constexpr Votes kStop = {.stop = true};

// A disk that takes parts only when it is told to.
class SlowDisk : public FolderChanges {
 public:
  absl::Status Write(const std::string& path, absl::string_view contents) override {
    if (gate != nullptr) gate->WaitForNotification();
    if (failure.ok() || failures == 0) return RealFolderChanges().Write(path, contents);
    if (failures != kForEver) --failures;
    return failure;
  }
  absl::Status Make(const std::string& folder) override { return RealFolderChanges().Make(folder); }
  absl::Status Sync(const std::string& folder) override { return RealFolderChanges().Sync(folder); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return RealFolderChanges().Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return RealFolderChanges().Remove(path); }

  absl::Notification* gate = nullptr;
  absl::Status failure;
  // Writes that fail so.
  static constexpr int kForEver = -1;
  int failures = kForEver;
};

class CheckpointingTest : public ::testing::Test {
 protected:
  void Begin(uint32_t rank, uint64_t interval, uint64_t iterations) {
    job_ = {.job_id = "job", .model = {}, .pipeline = 2, .replicas = 1};
    job_.training.checkpoint_interval = interval;
    job_.training.iterations = iterations;
    rank_ = rank;
    checkpoints_ = std::make_unique<Checkpointing>(CheckpointingParts{
        .directory = dir_,
        .rank = rank,
        .job = &job_,
        .changes = &disk_,
        .part = [this](bool training_goes_on,
                       CheckpointingParts::StillWanted still_wanted) -> absl::StatusOr<PartWriter> {
          events_.push_back(absl::StrCat(training_goes_on ? "copy " : "take ", iteration_));
          if (!part_status_.ok()) return part_status_;
          if (endless_) return Endless(std::move(still_wanted));
          return PartOf(absl::StrCat("state ", iteration_), disk_);
        },
        .reported = [this] { return reported_; },
        .flush_reports =
            [this] {
              events_.emplace_back("flush");
              return absl::OkStatus();
            },
        .meet = [this](bool late) -> absl::StatusOr<bool> {
          events_.emplace_back(late ? "meet late" : "meet");
          complete_at_meeting_ = CompleteCheckpoints(dir_);
          if (!meet_status_.ok() && --meetings_that_succeed_ < 0) return meet_status_;
          return late || other_is_late_;
        },
        .still_wanted =
            [this] { return epoch_failed_ ? absl::UnavailableError("rank 1 is gone") : absl::OkStatus(); },
        .part_written =
            [this](size_t bytes, absl::Duration took) {
              EXPECT_GT(took, absl::ZeroDuration());
              written_bytes_ += bytes;
            },
        .goes_on_after_failure = goes_on_,
        .given_up = [this](const absl::Status&) { ++given_up_; },
        .disk_timeout = disk_timeout_,
        .next_waits_for = next_waits_for_,
        .last_is_tried_for = last_is_tried_for_,
        .tried_again_after = absl::Milliseconds(1)});
  }

  static PartWriter Endless(CheckpointingParts::StillWanted still_wanted) {
    return [still_wanted = std::move(still_wanted)](const std::string&) -> absl::StatusOr<CheckpointPart> {
      while (still_wanted().ok()) absl::SleepFor(absl::Milliseconds(1));
      return still_wanted();
    };
  }

  // The part of the other rank.
  void OtherWrites(uint64_t next_iteration) {
    ASSERT_TRUE(
        WritePart(dir_, 1 - rank_, PartOf("other"), ManifestOf(job_, next_iteration), RealFolderChanges())
            .ok());
  }

  absl::Status After(uint64_t iteration, const Votes& votes) {
    iteration_ = iteration;
    return checkpoints_->AfterIteration(iteration, votes);
  }

  void ExpectSound(uint64_t next_iteration, const std::string& part) {
    const auto checkpoint = OpenCheckpoint(dir_, next_iteration, CheckpointDepth::kContents);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(*ReadFile(PartPath(checkpoint->path, rank_)), part);
  }

  const TemporaryFolder temporary_;
  const std::string dir_ = temporary_.Path("checkpoints");
  SlowDisk disk_;
  JobConfig job_;
  uint32_t rank_ = 0;
  uint64_t iteration_ = 0;
  uint64_t reported_ = 99;
  bool goes_on_ = false;
  absl::Duration last_is_tried_for_ = absl::Minutes(1);
  absl::Duration next_waits_for_ = absl::Minutes(1);
  absl::Duration disk_timeout_ = absl::Minutes(10);
  absl::Status part_status_;
  // A part takes until it is not wanted any more.
  bool endless_ = false;
  bool other_is_late_ = false;
  std::atomic<bool> epoch_failed_ = false;
  std::atomic<int> given_up_ = 0;
  absl::Status meet_status_;
  // Before one ends with the error.
  int meetings_that_succeed_ = 0;
  std::vector<uint64_t> complete_at_meeting_;
  std::vector<std::string> events_;
  std::atomic<size_t> written_bytes_ = 0;
  std::unique_ptr<Checkpointing> checkpoints_;
};

TEST_F(CheckpointingTest, TrainingGoesOnWhileAPartIsWritten) {
  absl::Notification gate;
  disk_.gate = &gate;
  Begin(0, 2, 100);
  ASSERT_TRUE(After(0, kWritten).ok());
  EXPECT_FALSE(checkpoints_->unwritten());
  ASSERT_TRUE(After(1, kWritten).ok());
  EXPECT_TRUE(checkpoints_->unwritten());
  ASSERT_TRUE(After(2, kUnwritten).ok());
  EXPECT_THAT(events_, ElementsAre("copy 1")) << "nobody waited";
  EXPECT_THAT(CompleteCheckpoints(dir_), IsEmpty());
  OtherWrites(2);
  gate.Notify();
  // The next one waits for it.
  ASSERT_TRUE(After(3, kUnwritten).ok());
  EXPECT_GE(written_bytes_, std::string("state 1").size());
  EXPECT_THAT(events_, ElementsAre("copy 1", "flush", "meet", "copy 3"));
  ASSERT_TRUE(checkpoints_->BeforeStop().code() == absl::StatusCode::kFailedPrecondition)
      << "the other rank has no part of it";
  ExpectSound(2, "state 1");
}

TEST_F(CheckpointingTest, IsCompleteOnceAllRanksSayThatTheyHaveWritten) {
  Begin(0, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  ASSERT_TRUE(After(2, kUnwritten).ok());
  EXPECT_TRUE(CompleteCheckpoints(dir_).empty());
  ASSERT_TRUE(After(4, kWritten).ok());
  OtherWrites(6);
  ASSERT_TRUE(After(5, kWritten).ok());
  ASSERT_TRUE(checkpoints_->BeforeStop().ok());
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(6, 2));
  EXPECT_THAT(events_, ElementsAre("copy 1", "copy 5", "flush", "meet", "meet"));
}

TEST_F(CheckpointingTest, APartWhoseReportsThePlannerLacksIsNotWritten) {
  Begin(1, 2, 100);
  reported_ = 1;
  ASSERT_TRUE(After(1, kWritten).ok());
  // Waits for the disk, completes nothing: this is not rank 0.
  ASSERT_TRUE(After(3, kUnwritten).ok());
  reported_ = 3;
  EXPECT_TRUE(checkpoints_->unwritten());
  ASSERT_TRUE(checkpoints_->BeforeStop().ok());
  EXPECT_FALSE(checkpoints_->unwritten());
}

TEST_F(CheckpointingTest, OtherRanksThanTheFirstCompleteNothing) {
  Begin(1, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  ASSERT_TRUE(After(2, kWritten).ok());
  ASSERT_TRUE(checkpoints_->BeforeStop().ok());
  EXPECT_TRUE(CompleteCheckpoints(dir_).empty());
}

TEST_F(CheckpointingTest, TheLastIterationIsOnTheDiskBeforeItIsReported) {
  for (const uint64_t interval : {0, 2, 5}) {
    std::filesystem::remove_all(dir_);
    Begin(0, interval, 3);
    ASSERT_TRUE(After(2, kWritten).ok());
    EXPECT_TRUE(std::filesystem::exists(RecordPath(PartialCheckpointPath(dir_, 3), 0)));
    EXPECT_TRUE(CompleteCheckpoints(dir_).empty());
    OtherWrites(3);
    EXPECT_THAT(events_, ElementsAre("take 2")) << "training is over: no copy, whose memory may not be there";
    events_.clear();
    ASSERT_TRUE(checkpoints_->AtEnd().ok());
    EXPECT_THAT(events_, IsEmpty()) << "the end of the job says that all have written: a rank may be gone";
    ExpectSound(3, "state 2");
  }
}

TEST_F(CheckpointingTest, AJobThatWasDrainedHasItsLastIterationToo) {
  Begin(0, 2, 0);
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  ASSERT_TRUE(After(2, kWritten).ok());
  OtherWrites(3);
  iteration_ = 2;
  ASSERT_TRUE(checkpoints_->AtEnd().ok());
  EXPECT_THAT(events_, ElementsAre("copy 1", "take 2", "flush", "meet", "meet"));
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(3, 2));
}

TEST_F(CheckpointingTest, ARankThatIsToStopHasAllOfThemWrite) {
  Begin(0, 0, 100);
  ASSERT_TRUE(After(6, kWritten).ok());
  EXPECT_THAT(events_, IsEmpty());
  ASSERT_TRUE(After(7, kStop).ok());
  EXPECT_THAT(events_, ElementsAre("take 7"));
  OtherWrites(8);
  ASSERT_TRUE(checkpoints_->BeforeStop().ok());
  ExpectSound(8, "state 7");
}

TEST_F(CheckpointingTest, NobodyLeavesBeforeTheFirstRankHasCompletedTheCheckpoint) {
  for (const uint32_t rank : {0, 1}) {
    std::filesystem::remove_all(dir_);
    Begin(rank, 0, 100);
    ASSERT_TRUE(After(7, kStop).ok());
    OtherWrites(8);
    events_.clear();
    ASSERT_TRUE(checkpoints_->BeforeStop().ok());
    EXPECT_THAT(events_, ElementsAre("flush", "meet", "meet")) << "rank " << rank;
    EXPECT_EQ(complete_at_meeting_.size(), rank == 0 ? 1 : 0) << "in the second meeting of rank " << rank;
  }
}

TEST_F(CheckpointingTest, ARankThatLeavesOnceTheCheckpointIsCompleteIsNoError) {
  Begin(0, 0, 100);
  ASSERT_TRUE(After(7, kStop).ok());
  OtherWrites(8);
  meet_status_ = absl::UnavailableError("rank 1 is gone");
  meetings_that_succeed_ = 1;
  ASSERT_TRUE(checkpoints_->BeforeStop().ok());
  ExpectSound(8, "state 7");
}

TEST_F(CheckpointingTest, WhatCannotBeWrittenIsSaidAfterTheNextIteration) {
  Begin(0, 2, 100);
  disk_.failure = absl::ResourceExhaustedError("'rank-0': No space left on device");
  absl::Notification gate;
  disk_.gate = &gate;
  ASSERT_TRUE(After(1, kWritten).ok());
  gate.Notify();
  // The next checkpoint waits for the disk at the latest.
  const absl::Status status = After(3, kUnwritten);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the checkpoint after iteration 1: 'rank-0': No space left"));
  EXPECT_EQ(After(4, kWritten).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(events_, ElementsAre("copy 1"));
}

TEST_F(CheckpointingTest, AFullDiskDoesNotEndTrainingWhereItIsToGoOnAndTheNextCheckpointIsTried) {
  goes_on_ = true;
  Begin(0, 2, 100);
  disk_.failure = absl::ResourceExhaustedError("'rank-0': No space left on device");
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  // Nobody completes it.
  EXPECT_TRUE(checkpoints_->unwritten());
  ASSERT_TRUE(After(2, kUnwritten).ok());
  ASSERT_TRUE(After(3, kUnwritten).ok());
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_FALSE(std::filesystem::exists(PartialCheckpointPath(dir_, 2))) << "takes the room of the next one";
  EXPECT_EQ(given_up_, 3) << "the part, the checkpoint, and the next part";
  disk_.failure = absl::OkStatus();
  ASSERT_TRUE(After(5, kUnwritten).ok());
  OtherWrites(6);
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_FALSE(checkpoints_->unwritten());
  ASSERT_TRUE(After(6, kWritten).ok());
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(6));
  ExpectSound(6, "state 5");
}

TEST_F(CheckpointingTest, TheCheckpointThatTrainingEndsWithIsTriedUntilTheDiskHasRoom) {
  goes_on_ = true;
  Begin(0, 0, 2);
  disk_.failure = absl::ResourceExhaustedError("'rank-0': No space left on device");
  disk_.failures = 5;
  OtherWrites(2);
  ASSERT_TRUE(After(1, kWritten).ok());
  EXPECT_EQ(disk_.failures, 0);
  disk_.failures = 2;
  ASSERT_TRUE(checkpoints_->AtEnd().ok());
  EXPECT_EQ(given_up_, 0);
  ExpectSound(2, "state 1");
}

TEST_F(CheckpointingTest, WhatNoWaitingHelpsIsTriedOnce) {
  goes_on_ = true;
  Begin(0, 0, 2);
  disk_.failure = absl::PermissionDeniedError("'rank-0': Permission denied");
  EXPECT_EQ(After(1, kWritten).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(CheckpointingTest, TheCheckpointThatTrainingEndsWithIsNeverGivenUp) {
  goes_on_ = true;
  last_is_tried_for_ = absl::Milliseconds(20);
  Begin(0, 2, 100);
  disk_.failure = absl::ResourceExhaustedError("'rank-0': No space left on device");
  ASSERT_TRUE(After(1, kWritten).ok());
  EXPECT_EQ(After(2, kStop).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(CheckpointingTest, ASlowDiskLeavesTheNextCheckpointOutAndNotTheTraining) {
  goes_on_ = true;
  next_waits_for_ = absl::Milliseconds(20);
  absl::Notification gate;
  disk_.gate = &gate;
  Begin(0, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  ASSERT_TRUE(After(3, kUnwritten).ok());
  EXPECT_THAT(events_, ElementsAre("copy 1", "flush", "meet late"));
  EXPECT_EQ(given_up_, 1);
  gate.Notify();
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  ASSERT_TRUE(After(4, kWritten).ok());
  ASSERT_TRUE(After(5, kWritten).ok());
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_THAT(events_, ElementsAre("copy 1", "flush", "meet late", "copy 5"));
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(2));
}

TEST_F(CheckpointingTest, NoRankBeginsACheckpointThatAnotherOneLeavesOut) {
  goes_on_ = true;
  Begin(0, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  other_is_late_ = true;
  ASSERT_TRUE(After(3, kUnwritten).ok());
  EXPECT_THAT(events_, ElementsAre("copy 1", "flush", "meet"));
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_THAT(CompleteCheckpoints(dir_), IsEmpty()) << "the other part is not there";
  other_is_late_ = false;
  ASSERT_TRUE(After(5, kUnwritten).ok());
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(2));
  EXPECT_THAT(events_, ElementsAre("copy 1", "flush", "meet", "flush", "meet", "copy 5"));
}

TEST_F(CheckpointingTest, ASlowDiskEndsTrainingWhereItIsToStopWithAFailure) {
  next_waits_for_ = absl::ZeroDuration();
  disk_timeout_ = absl::Milliseconds(20);
  absl::Notification gate;
  disk_.gate = &gate;
  Begin(0, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  EXPECT_EQ(After(3, kUnwritten).code(), absl::StatusCode::kDeadlineExceeded);
  gate.Notify();
  checkpoints_.reset();
}

TEST_F(CheckpointingTest, ACopyThatThereIsNoMemoryForIsAPartThatIsNotWritten) {
  part_status_ = absl::ResourceExhaustedError("no memory");
  Begin(0, 2, 100);
  EXPECT_EQ(After(1, kWritten).code(), absl::StatusCode::kResourceExhausted);
  goes_on_ = true;
  Begin(0, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  EXPECT_EQ(given_up_, 1);
  EXPECT_TRUE(checkpoints_->unwritten());
  part_status_ = absl::OkStatus();
  ASSERT_TRUE(After(3, kUnwritten).ok());
  OtherWrites(4);
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  ASSERT_TRUE(After(4, kWritten).ok());
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(4));
  part_status_ = absl::OutOfRangeError("not finite");
  EXPECT_EQ(After(5, kWritten).code(), absl::StatusCode::kOutOfRange) << "is no failure of writing";
}

TEST_F(CheckpointingTest, WhereTheEpochHasFailedNobodyWaitsForTheDisk) {
  for (const bool goes_on : {false, true}) {
    absl::Notification gate;
    disk_.gate = &gate;
    goes_on_ = goes_on;
    Begin(0, 2, 100);
    ASSERT_TRUE(After(1, kWritten).ok());
    epoch_failed_ = true;
    EXPECT_EQ(After(3, kUnwritten).code(), absl::StatusCode::kUnavailable);
    epoch_failed_ = false;
    gate.Notify();
    checkpoints_.reset();
  }
}

TEST_F(CheckpointingTest, WhereTheEpochHasFailedWhatTrainingGoesOnBehindIsNotWritten) {
  goes_on_ = true;
  endless_ = true;
  Begin(0, 2, 100);
  ASSERT_TRUE(After(1, kWritten).ok());
  EXPECT_TRUE(checkpoints_->IsWritingAfter(absl::Milliseconds(10)));
  checkpoints_->EpochHasFailed();
  EXPECT_FALSE(checkpoints_->IsWritingAfter(absl::Seconds(10)));
  EXPECT_EQ(given_up_, 0) << "it is no failure of the disk";
}

// Ranks that are done leave while others still write.
TEST_F(CheckpointingTest, WhatTrainingEndsWithIsWrittenThoughTheEpochHasFailed) {
  Begin(0, 0, 2);
  epoch_failed_ = true;
  ASSERT_TRUE(After(1, kWritten).ok());
  OtherWrites(2);
  ASSERT_TRUE(checkpoints_->AtEnd().ok());
  EXPECT_THAT(CompleteCheckpoints(dir_), ElementsAre(2));
}

TEST_F(CheckpointingTest, APeerThatIsGoneEndsTheWaiting) {
  Begin(0, 2, 100);
  meet_status_ = absl::UnavailableError("rank 1 is gone");
  ASSERT_TRUE(After(1, kWritten).ok());
  const absl::Status status = After(3, kUnwritten);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(CompleteCheckpoints(dir_).empty());
}

TEST_F(CheckpointingTest, WithoutAFolderNothingIsWritten) {
  job_.training.iterations = 2;
  Checkpointing checkpoints({.job = &job_});
  EXPECT_TRUE(checkpoints.AfterIteration(0, kStop).ok());
  EXPECT_TRUE(checkpoints.AfterIteration(1, kWritten).ok());
  EXPECT_FALSE(checkpoints.unwritten());
  EXPECT_TRUE(checkpoints.BeforeStop().ok());
  EXPECT_TRUE(checkpoints.AtEnd().ok());
}

}  // namespace
}  // namespace penstock::worker
