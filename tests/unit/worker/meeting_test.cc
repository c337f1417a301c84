#include "worker/comm/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr std::chrono::milliseconds kShortPatience{50};

using AttemptOfRank = std::function<absl::Status(int position, const Attempt& attempt)>;

class MeetingTest : public ::testing::Test {
 protected:
  // All ranks of a group, side by side.
  std::vector<absl::Status> Meet(int size, const AttemptOfRank& attempt) {
    std::vector<absl::Status> outcomes(static_cast<size_t>(size));
    std::vector<std::thread> ranks;
    for (int position = 0; position < size; ++position) {
      ranks.emplace_back([&, position] {
        outcomes[static_cast<size_t>(position)] = MeetOne(position, size, kPatience, attempt);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return outcomes;
  }

  absl::Status MeetOne(int position, int size, std::chrono::milliseconds patience,
                       const AttemptOfRank& attempt) const {
    return MeetTogether({.store = store_,
                         .group = GroupOf(size),
                         .rank = static_cast<uint32_t>(position),
                         .connect_timeout = patience,
                         .still_wanted = [this] { return wanted_; }},
                        [&](const Attempt& now) { return attempt(position, now); });
  }

  static RankGroup GroupOf(int size) {
    RankGroup group(static_cast<size_t>(size));
    std::iota(group.begin(), group.end(), 0);
    return group;
  }

  absl::Status wanted_;

  StoreClient store_ = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(MeetingTest, NobodyBeginsBeforeAllAreThere) {
  std::atomic<int> arrived = 0;
  std::thread late([&] {
    ++arrived;
    EXPECT_THAT(MeetOne(1, 2, kPatience, [](int, const Attempt&) { return absl::OkStatus(); }), IsOk());
  });
  EXPECT_THAT(MeetOne(0, 2, kPatience,
                      [&](int, const Attempt&) {
                        EXPECT_EQ(arrived, 1);
                        return absl::OkStatus();
                      }),
              IsOk());
  late.join();
}

TEST_F(MeetingTest, WhatWentWrongForOneIsDoneAgainByAll) {
  std::vector<std::vector<int>> attempts(3);
  const auto outcomes = Meet(3, [&](int position, const Attempt& attempt) {
    attempts[static_cast<size_t>(position)].push_back(attempt.number);
    const bool disturbed = position == 2 - attempt.number;
    return disturbed ? absl::UnavailableError("a stranger was quicker") : absl::OkStatus();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(attempts, Each(std::vector<int>({0, 1, 2, 3})));
}

TEST_F(MeetingTest, EndsWithTheReasonOfTheRankThatFailedEachTime) {
  const auto outcomes = Meet(2, [](int position, const Attempt& attempt) {
    return position == 1 ? absl::UnavailableError(absl::StrCat("stranger ", attempt.number))
                         : absl::OkStatus();
  });
  const std::string last = absl::StrCat("stranger ", kMostAttempts - 1);
  EXPECT_THAT(outcomes[0], Fails(absl::StatusCode::kUnavailable, absl::StrCat("rank 1: ", last)));
  EXPECT_THAT(outcomes[1], Fails(absl::StatusCode::kUnavailable, last));
}

TEST_F(MeetingTest, WhatNoStrangerHasDoneIsNotTriedAgain) {
  for (const int broken : {0, 1}) {
    SCOPED_TRACE(broken);
    store_ = c10::make_intrusive<c10d::HashStore>();
    std::atomic<int> attempts = 0;
    const auto outcomes = Meet(3, [&](int position, const Attempt&) -> absl::Status {
      ++attempts;
      if (position == broken) return absl::FailedPreconditionError("no such host");
      return position == 2 ? absl::UnavailableError("nobody answers") : absl::OkStatus();
    });
    EXPECT_EQ(attempts, 3);
    EXPECT_THAT(outcomes[static_cast<size_t>(broken)],
                Fails(absl::StatusCode::kFailedPrecondition, "no such host"));
    for (const int other : {1 - broken, 2}) {
      EXPECT_THAT(
          outcomes[static_cast<size_t>(other)],
          Fails(absl::StatusCode::kFailedPrecondition, absl::StrCat("rank ", broken, ": no such host")));
    }
  }
}

TEST_F(MeetingTest, ARankThatEndsMeanwhileIsNotWaitedForAgain) {
  int attempts = 0;
  // As a process that is killed: it says that it is there, and nothing of its outcome.
  store_->set("attempt 0 here 1", std::string());
  EXPECT_THAT(MeetOne(0, 2, kShortPatience,
                      [&](int, const Attempt&) {
                        ++attempts;
                        return absl::UnavailableError("the connection was closed");
                      }),
              Fails(absl::StatusCode::kDeadlineExceeded,
                    "the connection was closed; then waiting for the outcome of ranks 1"));
  EXPECT_EQ(attempts, 1);
}

TEST_F(MeetingTest, EndsWhenItIsNotWantedAnyMore) {
  wanted_ = absl::UnavailableError("rank 7 is lost");
  EXPECT_THAT(MeetOne(0, 2, kPatience, [](int, const Attempt&) { return absl::OkStatus(); }),
              Fails(absl::StatusCode::kCancelled, "rank 7 is lost"));
  EXPECT_THAT(MeetOne(1, 2, kPatience, [](int, const Attempt&) { return absl::OkStatus(); }),
              Fails(absl::StatusCode::kCancelled, "rank 7 is lost"));
}

TEST_F(MeetingTest, AttemptsAreGivenMoreTimeUpToThatOfTheOptions) {
  std::vector<std::chrono::milliseconds> limits;
  MeetOne(0, 1, kPatience, [&](int, const Attempt& attempt) {
    limits.push_back(attempt.limit);
    return absl::UnavailableError("again");
  }).IgnoreError();
  ASSERT_EQ(limits.size(), kMostAttempts);
  EXPECT_THAT(limits, Each(AllOf(Ge(std::chrono::seconds(2)), Le(kPatience))));
  EXPECT_TRUE(std::ranges::is_sorted(limits));
  EXPECT_EQ(limits.back(), kPatience);
}

TEST_F(MeetingTest, IsGivenUpWhenNotAllCome) {
  bool began = false;
  for (const int position : {0, 1}) {
    EXPECT_THAT(
        MeetOne(position, 3, kShortPatience,
                [&](int, const Attempt&) {
                  began = true;
                  return absl::OkStatus();
                }),
        Fails(absl::StatusCode::kDeadlineExceeded, position == 0 ? "waiting for ranks 1, 2: not within"
                                                                 : "waiting for the ranks 0, 1, 2 to begin"));
  }
  EXPECT_FALSE(began);
}

}  // namespace
}  // namespace penstock::worker
