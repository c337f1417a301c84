#include "planner/cli/up/slow_rank_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penstock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Of ranks 0, 1, ...; 0: as fast as the others.
v1::JobStatus Status(const std::vector<double>& slow_factors, v1::JobState state = v1::JOB_STATE_RUNNING) {
  v1::JobStatus status;
  status.set_state(state);
  for (const double factor : slow_factors) {
    v1::WorkerStatus* const worker = status.add_workers();
    worker->set_rank(static_cast<uint32_t>(status.workers_size()) - 1);
    worker->set_slow_factor(factor);
  }
  return status;
}

TEST(SlowRankNews, AreSaidOnceAndWhenTheyChange) {
  SlowRankNews news;
  EXPECT_EQ(news.Take(Status({0, 1.1})), "");
  EXPECT_THAT(news.Take(Status({0, 1.3})),
              StartsWith("rank 1 takes 1.30 times as long as others for the same work: "));
  EXPECT_EQ(news.Take(Status({0, 1.3})), "");
  EXPECT_EQ(news.Take(Status({0, 1.33})), "") << "the same for people";
  EXPECT_THAT(news.Take(Status({0, 2})), HasSubstr("2.00 times"));
  EXPECT_THAT(news.Take(Status({1.5, 2})), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
  EXPECT_THAT(news.Take(Status({0, 0})), HasSubstr("no rank is slower"));
  EXPECT_EQ(news.Take(Status({0, 0})), "");
}

TEST(SlowRankNews, WorkersThatBeginAgainAreNoNews) {
  SlowRankNews news;
  news.Take(Status({0, 1.3}));
  EXPECT_EQ(news.Take(Status({}, v1::JOB_STATE_REGISTERED)), "");
  EXPECT_EQ(news.Take(Status({0, 1.3})), "");
}

}  // namespace
}  // namespace penstock::cli
