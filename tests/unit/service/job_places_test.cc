#include "planner/service/engine/job_places.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

constexpr JobQuotas kQuotas = {.jobs = 4, .jobs_of_owner = 3, .unstarted_of_owner = 2};

JobPlace Started(const std::string& owner, int minutes = 0) {
  return {.owner = owner, .age = absl::Minutes(minutes), .over = false, .started = true};
}
JobPlace Unstarted(const std::string& owner, int minutes = 0) {
  return {.owner = owner, .age = absl::Minutes(minutes), .over = false, .started = false};
}
JobPlace Over(const std::string& owner, int minutes = 0) {
  return {.owner = owner, .age = absl::Minutes(minutes), .over = true, .started = true};
}

TEST(JobPlacesTest, AJobHasAPlaceWhileThereIsOne) {
  EXPECT_EQ(*MakeRoomFor("a", {}, kQuotas), std::nullopt);
  EXPECT_EQ(*MakeRoomFor("a", {Started("a"), Started("b"), Started("b")}, kQuotas), std::nullopt);
}

TEST(JobPlacesTest, TheOldestThatIsOverMakesRoom) {
  EXPECT_EQ(*MakeRoomFor("a", {Started("a"), Over("b", 1), Over("b", 9), Started("c")}, kQuotas), 2);
}

TEST(JobPlacesTest, OneThatNobodyStartedForAMinuteMakesRoomWhereNoneIsOver) {
  EXPECT_EQ(
      *MakeRoomFor("a", {Started("a", 99), Unstarted("b", 2), Unstarted("b", 5), Started("c")}, kQuotas), 2);
}

TEST(JobPlacesTest, JobsThatLiveMakeNoRoom) {
  EXPECT_THAT(MakeRoomFor("a", {Started("a"), Unstarted("b"), Started("b"), Started("c")}, kQuotas),
              Fails(absl::StatusCode::kResourceExhausted, "4 jobs that are not over, its limit"));
}

TEST(JobPlacesTest, AnOwnerHasAQuotaOfJobsWhereOwnersAreKnown) {
  EXPECT_THAT(
      MakeRoomFor("a", {Started("a"), Started("a"), Started("a")}, kQuotas),
      Fails(absl::StatusCode::kResourceExhausted, "owner 'a' has 3 jobs that are not over, the quota"));
  EXPECT_EQ(*MakeRoomFor("b", {Started("a"), Started("a"), Started("a")}, kQuotas), std::nullopt);
  EXPECT_EQ(*MakeRoomFor("a", {Started("a"), Started("a"), Over("a")}, kQuotas), std::nullopt);
  EXPECT_EQ(*MakeRoomFor("", {Started(""), Started(""), Started("")}, kQuotas), std::nullopt);
}

TEST(JobPlacesTest, WithoutAQuotaOfItsOwnAnOwnerHasThreeQuartersOfThePlaces) {
  const std::vector<JobPlace> jobs(48, Started("a"));
  EXPECT_THAT(MakeRoomFor("a", jobs, {}), Fails(absl::StatusCode::kResourceExhausted, "--jobs-of-owner"));
  EXPECT_EQ(*MakeRoomFor("b", jobs, {}), std::nullopt);
}

TEST(JobPlacesTest, JobsThatNobodyStartsHaveAQuotaAndTheOldestMakesRoomAfterAMinute) {
  EXPECT_THAT(MakeRoomFor("", {Unstarted(""), Unstarted("")}, kQuotas),
              Fails(absl::StatusCode::kResourceExhausted, "--unstarted-jobs-of-owner"));
  EXPECT_EQ(*MakeRoomFor("", {Unstarted("", 2), Unstarted("", 3), Unstarted("b", 9)}, kQuotas), 1);
  EXPECT_EQ(*MakeRoomFor("b", {Unstarted(""), Unstarted("")}, kQuotas), std::nullopt);
}

}  // namespace
}  // namespace penstock
