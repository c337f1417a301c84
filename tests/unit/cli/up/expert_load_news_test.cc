#include "planner/cli/up/expert_load_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace penstock::cli {
namespace {

using ::testing::HasSubstr;

v1::JobStatus StatusWithLoads(const std::map<uint32_t, double>& fullest_by_ranks) {
  v1::JobStatus status;
  for (const auto& [ranks, fullest] : fullest_by_ranks) {
    v1::ExpertLoad* const load = status.add_expert_loads();
    load->set_ranks(ranks);
    load->set_fullest(fullest);
  }
  return status;
}

TEST(ExpertLoadNews, AreSaidOnceAndWhenTheyChange) {
  ExpertLoadNews news;
  EXPECT_EQ(news.Take(StatusWithLoads({})), "");
  EXPECT_EQ(news.Take(StatusWithLoads({{4, 1.1}})), "") << "as uneven as any router";
  EXPECT_THAT(news.Take(StatusWithLoads({{4, 2}})),
              HasSubstr("of 4 ranks that divide experts the fullest has 2.00 times its share of rows"));
  EXPECT_EQ(news.Take(StatusWithLoads({{4, 2.1}})), "") << "the same for people";
  EXPECT_THAT(news.Take(StatusWithLoads({{4, 3}})), HasSubstr("3.00 times"));
  EXPECT_THAT(news.Take(StatusWithLoads({{2, 1.5}, {4, 3}})), HasSubstr("of 2 ranks"));
  EXPECT_THAT(news.Take(StatusWithLoads({{2, 1}, {4, 1.2}})), HasSubstr("evenly again"));
  EXPECT_EQ(news.Take(StatusWithLoads({{2, 1}, {4, 1.2}})), "");
}

}  // namespace
}  // namespace penstock::cli
