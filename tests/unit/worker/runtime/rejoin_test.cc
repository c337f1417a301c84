#include "worker/runtime/rejoin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::Status kPeerLost = absl::UnavailableError("the epoch has failed: rank 2 was lost");

// Epochs that end as the test says, the last one again and again.
class RejoinTest : public ::testing::Test {
 protected:
  absl::Status Run(uint32_t most) {
    return TrainThroughFailures({.most = most}, {.run_epoch =
                                                     [this](bool again) {
                                                       again_.push_back(again);
                                                       const EpochEnd end = ends_.front();
                                                       if (ends_.size() > 1) ends_.pop_front();
                                                       return end;
                                                     },
                                                 .wait =
                                                     [this](absl::Duration pause) {
                                                       pauses_.push_back(pause);
                                                       return told_to_end_;
                                                     }});
  }

  std::deque<EpochEnd> ends_;
  std::vector<bool> again_;
  std::vector<absl::Duration> pauses_;
  absl::Status told_to_end_;
};

TEST_F(RejoinTest, GoesOnInTheNextEpochWhenAnotherRankIsLost) {
  ends_ = {{kPeerLost, 7}, {absl::OkStatus(), 9}};
  EXPECT_TRUE(Run(10).ok());
  EXPECT_THAT(again_, ElementsAre(false, true));
}

TEST_F(RejoinTest, EndsAtTheFirstLossWhenToldTo) {
  ends_ = {{kPeerLost, 7}};
  EXPECT_EQ(Run(0), kPeerLost);
  EXPECT_EQ(again_.size(), 1u);
}

TEST_F(RejoinTest, EndsWhenTheErrorIsItsOwn) {
  for (const absl::Status& own :
       {absl::DataLossError("the dataset ends early"), absl::UnimplementedError("instructions[3].op"),
        absl::InvalidArgumentError("manifest.json"),
        absl::DeadlineExceededError("the planner has not answered"),
        absl::FailedPreconditionError("iteration 3 cannot be planned"), absl::NotFoundError("no job")}) {
    ends_ = {{own, 7}};
    EXPECT_EQ(Run(10), own);
  }
}

TEST_F(RejoinTest, EndsAfterSoManyEpochsThatGotNoFurther) {
  ends_ = {{kPeerLost, 7}};
  const absl::Status status = Run(3);
  EXPECT_EQ(again_.size(), 4u);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max-rejoins"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 was lost"));
}

TEST_F(RejoinTest, AnEpochThatGotFurtherBeginsTheCountAnew) {
  for (uint64_t i = 0; i < 50; ++i) ends_.push_back({kPeerLost, i / 3});
  ends_.push_back({absl::OkStatus(), 99});
  EXPECT_TRUE(Run(3).ok());
  EXPECT_EQ(again_.size(), 51u);
}

TEST_F(RejoinTest, GettingAsFarAsBeforeIsNoProgress) {
  // From the checkpoint at 5 to the iteration that some rank dies in.
  ends_ = {{kPeerLost, 7}, {kPeerLost, 6}, {kPeerLost, 7}, {kPeerLost, 0}, {absl::OkStatus(), 9}};
  EXPECT_FALSE(Run(2).ok());
  EXPECT_EQ(again_.size(), 3u);
}

TEST_F(RejoinTest, PausesGrowAndBeginAnewAfterProgress) {
  ends_ = {{kPeerLost, 0}, {kPeerLost, 0}, {kPeerLost, 0}, {kPeerLost, 3}, {absl::OkStatus(), 9}};
  EXPECT_TRUE(Run(10).ok());
  ASSERT_EQ(pauses_.size(), 4u);
  EXPECT_LE(pauses_[0], absl::Milliseconds(50));
  EXPECT_GE(pauses_[2], absl::Milliseconds(100));
  EXPECT_LE(pauses_[3], absl::Milliseconds(50));
}

TEST_F(RejoinTest, EndsWhenItIsToldToWhileItWaits) {
  ends_ = {{kPeerLost, 7}};
  told_to_end_ = absl::CancelledError("stopped by SIGTERM");
  EXPECT_EQ(Run(10), told_to_end_);
  EXPECT_EQ(again_.size(), 1u);
}

TEST_F(RejoinTest, WhatIsWrongWithTheInputIsNotWorthAnotherProcess) {
  EXPECT_TRUE(IsWorthRestarting(kPeerLost));
  EXPECT_TRUE(IsWorthRestarting(absl::InternalError("?")));
  EXPECT_FALSE(IsWorthRestarting(absl::DataLossError("the dataset ends early")));
  EXPECT_FALSE(IsWorthRestarting(absl::UnimplementedError("instructions[3].op")));
}

}  // namespace
}  // namespace penstock::worker
