#include "worker/runtime/rescue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_writing.h"
#include "common/checkpoint/rescue.h"
#include "common/files/files.h"
#include "tests/support/checkpoint_part.h"
#include "tests/support/temporary_folder.h"
#include "worker/runtime/checkpoint_store.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kEpoch = 3;
constexpr uint64_t kHolds = 47;

// Rank 0 of a job of four replicas, which waits on a clock of its own.
class RescueTest : public ::testing::Test {
 protected:
  RescueTest() {
    for (uint32_t rank = 0; rank < 4; ++rank) job_.topology.replicas.push_back({{{{rank}}}});
  }

  RescueParts Parts() {
    return {
        .directory = dir_,
        .rank = 0,
        .epoch = kEpoch,
        .job = &job_,
        .holds = kHolds,
        .goes_back_to = 40,
        .iteration_time = absl::Seconds(1),
        .part = [this](RescueParts::StillWanted still_wanted) -> absl::StatusOr<PartWriter> {
          ++parts_taken_;
          return PartWriter([this, still_wanted](const std::string& path) -> absl::StatusOr<CheckpointPart> {
            now_ += writing_takes_;
            if (const absl::Status wanted = still_wanted(); !wanted.ok()) return wanted;
            return PartOf("shares 0 and 1")(path);
          });
        },
        .send_reports =
            [this](absl::Duration) {
              if (completed_after_sending_ > 0) completed_ = completed_after_sending_;
            },
        .completed = [this]() -> absl::StatusOr<uint64_t> {
          if (!planner_.ok()) return planner_;
          return completed_;
        },
        .wait =
            [this](absl::Duration time) {
              now_ += time;
              if (while_waiting_) while_waiting_();
              return told_to_end_;
            },
        .now = [this] { return now_; }};
  }

  RescueReport Run() { return Rescue(Parts()); }

  void WritesRescue(uint32_t rank, uint64_t epoch = kEpoch) {
    ASSERT_TRUE(WriteRescuePart(dir_, rank, PartOf(absl::StrCat("part of ", rank)), ManifestOf(job_, kHolds),
                                epoch, RealFolderChanges())
                    .ok());
  }

  absl::Duration waited() const { return now_ - kBegin; }
  bool Announced() const { return IsRescueAnnounced(dir_, "job"); }

  static constexpr absl::Time kBegin = absl::UnixEpoch();
  const TemporaryFolder temporary_;
  const std::string dir_ = temporary_.Path("checkpoints");
  JobConfig job_ = {.job_id = "job", .model = {}, .replicas = 4};
  absl::Time now_ = kBegin;
  absl::Duration writing_takes_;
  uint64_t completed_ = kHolds;
  uint64_t completed_after_sending_ = 0;
  absl::Status planner_;
  absl::Status told_to_end_;
  std::function<void()> while_waiting_;
  int parts_taken_ = 0;
};

TEST_F(RescueTest, IsCompleteAsSoonAsTheRanksThatAreLeftHaveWritten) {
  int looks = 0;
  while_waiting_ = [&] {
    EXPECT_TRUE(Announced());
    if (++looks == 3) WritesRescue(2);
  };
  const RescueReport report = Run();
  EXPECT_EQ(report.end, RescueEnd::kComplete) << report.why;
  EXPECT_EQ(report.bytes, std::string("shares 0 and 1").size());
  EXPECT_EQ(looks, 3);
  EXPECT_FALSE(Announced());
  const auto checkpoint = OpenCheckpoint(dir_, kHolds, CheckpointDepth::kContents);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(*ReadFile(PartPath(checkpoint->path, 0)), "shares 0 and 1");
  EXPECT_EQ(*ReadFile(PartPath(checkpoint->path, 2)), "part of 2");
}

TEST_F(RescueTest, IsCompleteWhereAnotherRankHasCompletedIt) {
  while_waiting_ = [&] {
    if (!CompleteCheckpoints(dir_).empty()) return;
    WritesRescue(2);
    RescueRecords records;
    FindRescueRecords(dir_, ManifestOf(job_, kHolds), kEpoch, records);
    ASSERT_TRUE(*CompleteRescue(dir_, ManifestOf(job_, kHolds), records, 2, RealFolderChanges()));
  };
  EXPECT_EQ(Run().end, RescueEnd::kComplete);
}

TEST_F(RescueTest, NothingIsWrittenWhereALostRankHadSomethingAlone) {
  job_.shard_optimizer_state = true;
  EXPECT_EQ(Run().end, RescueEnd::kNotRedundant);
  EXPECT_FALSE(std::filesystem::exists(dir_));
  EXPECT_EQ(waited(), absl::ZeroDuration());
}

TEST_F(RescueTest, NothingIsWrittenWhereTheNewestCheckpointIsAsNew) {
  RescueParts parts = Parts();
  parts.goes_back_to = kHolds;
  EXPECT_EQ(Rescue(parts).end, RescueEnd::kNothingToSave);
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(RescueTest, AStateInTheMiddleOfAStepIsNotWritten) {
  RescueParts parts = Parts();
  parts.holds = std::nullopt;
  EXPECT_EQ(Rescue(parts).end, RescueEnd::kNotSound);
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(RescueTest, SendsReportsThatWereHeldUpFirst) {
  completed_ = kHolds - 1;
  completed_after_sending_ = kHolds;
  WritesRescue(2);
  EXPECT_EQ(Run().end, RescueEnd::kComplete);
}

TEST_F(RescueTest, WaitsForTheReportsOfOthersThatAreLeft) {
  completed_ = kHolds - 1;
  while_waiting_ = [&] { completed_ = kHolds; };
  WritesRescue(2);
  EXPECT_EQ(Run().end, RescueEnd::kComplete);
}

// The history would have a hole.
TEST_F(RescueTest, WithoutTheReportOfALostRankNothingIsWritten) {
  completed_ = kHolds - 1;
  WritesRescue(2);
  EXPECT_EQ(Run().end, RescueEnd::kNotReported);
  EXPECT_EQ(parts_taken_, 0);
  EXPECT_LE(waited(), absl::Seconds(3));
  EXPECT_FALSE(Announced());
  EXPECT_THAT(CompleteCheckpoints(dir_), IsEmpty());
}

TEST_F(RescueTest, OnceAnotherEpochHasBegunNothingIsWritten) {
  planner_ = absl::AbortedError("the job is in epoch 4");
  const RescueReport report = Run();
  EXPECT_EQ(report.end, RescueEnd::kFailed);
  EXPECT_THAT(report.why.message(), HasSubstr("epoch 4"));
  EXPECT_EQ(waited(), absl::ZeroDuration());
  EXPECT_FALSE(Announced());
}

TEST_F(RescueTest, APlannerThatDoesNotAnswerIsAskedAgainForAMoment) {
  planner_ = absl::UnavailableError("no planner");
  EXPECT_EQ(Run().end, RescueEnd::kFailed);
  EXPECT_LE(waited(), absl::Seconds(3));
  planner_ = absl::UnavailableError("no planner");
  while_waiting_ = [&] { planner_ = absl::OkStatus(); };
  WritesRescue(2);
  EXPECT_EQ(Run().end, RescueEnd::kComplete);
}

TEST_F(RescueTest, WaitsForPartsAsLongAsTheWorkTookThatTheySave) {
  // Rank 3 precedes rank 0: nobody has the share of rank 2.
  WritesRescue(3);
  EXPECT_EQ(Run().end, RescueEnd::kIncomplete);
  EXPECT_GE(waited(), absl::Seconds(7));
  EXPECT_LE(waited(), absl::Seconds(8));
  EXPECT_FALSE(Announced());
}

TEST_F(RescueTest, WaitsATimeThatPassesAnywayWhereLittleIsSaved) {
  RescueParts parts = Parts();
  parts.iteration_time = absl::Milliseconds(1);
  EXPECT_EQ(Rescue(parts).end, RescueEnd::kIncomplete);
  EXPECT_GE(waited(), kShortestRescue);
  EXPECT_LE(waited(), kShortestRescue + absl::Seconds(1));
}

TEST_F(RescueTest, NeverWaitsLongerThanItMay) {
  RescueParts parts = Parts();
  parts.iteration_time = absl::Hours(1);
  EXPECT_EQ(Rescue(parts).end, RescueEnd::kIncomplete);
  EXPECT_LE(waited(), kLongestRescue + absl::Seconds(1));
}

TEST_F(RescueTest, ADiskThatIsTooSlowForItEndsIt) {
  writing_takes_ = absl::Seconds(8);
  WritesRescue(2);
  const RescueReport report = Run();
  EXPECT_EQ(report.end, RescueEnd::kFailed);
  EXPECT_TRUE(absl::IsDeadlineExceeded(report.why)) << report.why;
  EXPECT_FALSE(Announced());
}

TEST_F(RescueTest, WhatCannotBeWrittenIsLogged) {
  RescueParts parts = Parts();
  parts.part = [](const RescueParts::StillWanted&) -> absl::StatusOr<PartWriter> {
    return absl::OutOfRangeError("parameter 'a' is not finite");
  };
  const RescueReport report = Rescue(parts);
  EXPECT_EQ(report.end, RescueEnd::kFailed);
  EXPECT_THAT(report.why.message(), HasSubstr("not finite"));
}

TEST_F(RescueTest, WhoIsToldToEndWaitsNoLonger) {
  told_to_end_ = absl::CancelledError("SIGTERM");
  const RescueReport report = Run();
  EXPECT_EQ(report.end, RescueEnd::kFailed);
  EXPECT_LE(waited(), absl::Seconds(1));
}

TEST_F(RescueTest, PartsOfAnEarlierEpochDoNotCount) {
  WritesRescue(2, kEpoch - 1);
  EXPECT_EQ(Run().end, RescueEnd::kIncomplete);
}

TEST_F(RescueTest, AnnouncesForHowLongItWillTry) {
  bool looked = false;
  while_waiting_ = [&] {
    if (std::exchange(looked, true)) return;
    const std::filesystem::path announcement = PartialCheckpointPath(dir_, kHolds) + "/rank-0.rescuing";
    const auto began = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(announcement, began - std::chrono::milliseconds(6500));
    EXPECT_TRUE(Announced());
    std::filesystem::last_write_time(announcement, began - std::chrono::milliseconds(7500));
    EXPECT_FALSE(Announced());
  };
  EXPECT_EQ(Run().end, RescueEnd::kIncomplete);
  EXPECT_TRUE(looked);
}

TEST_F(RescueTest, WhoComesWaitsUntilItIsOver) {
  const auto wait = [this](absl::Duration time) {
    now_ += time;
    if (while_waiting_) while_waiting_();
    return told_to_end_;
  };
  const auto now = [this] { return now_; };
  ASSERT_TRUE(AwaitRescue(dir_, "job", wait, now).ok());
  EXPECT_EQ(waited(), absl::ZeroDuration());
  ASSERT_TRUE(AnnounceRescue(dir_, 2, ManifestOf(job_, kHolds), absl::Hours(1), RealFolderChanges()).ok());
  int looks = 0;
  while_waiting_ = [&] {
    if (++looks == 5) WithdrawRescue(dir_, 2, ManifestOf(job_, kHolds), RealFolderChanges());
  };
  ASSERT_TRUE(AwaitRescue(dir_, "job", wait, now).ok());
  EXPECT_EQ(looks, 5);
  // Whose processes are gone.
  ASSERT_TRUE(AnnounceRescue(dir_, 2, ManifestOf(job_, kHolds), absl::Hours(1), RealFolderChanges()).ok());
  now_ = kBegin;
  ASSERT_TRUE(AwaitRescue(dir_, "job", wait, now).ok());
  EXPECT_LE(waited(), kLongestRescue + absl::Seconds(1));
  told_to_end_ = absl::CancelledError("SIGTERM");
  EXPECT_TRUE(absl::IsCancelled(AwaitRescue(dir_, "job", wait, now)));
}

}  // namespace
}  // namespace penstock::worker
