#include "planner/cli/up/slow_link_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Link {
  uint32_t from;
  uint32_t to;
  double factor;
};

v1::JobStatus Status(const std::vector<Link>& links) {
  v1::JobStatus status;
  for (const Link& link : links) {
    v1::SlowLink* const slow = status.add_slow_links();
    slow->set_from(link.from);
    slow->set_to(link.to);
    slow->set_factor(link.factor);
  }
  return status;
}

TEST(SlowLinkNews, AreSaidOnceAndWhenTheyChange) {
  SlowLinkNews news;
  EXPECT_EQ(news.Take(Status({})), "");
  EXPECT_EQ(news.Take(Status({{1, 2, 2}})), "") << "as where ranks share cores";
  EXPECT_THAT(news.Take(Status({{1, 2, 20}})),
              StartsWith("the link from rank 1 to rank 2 takes 20.0 times as long as others: "));
  EXPECT_EQ(news.Take(Status({{1, 2, 20}})), "");
  EXPECT_EQ(news.Take(Status({{1, 2, 22}})), "") << "the same for people";
  EXPECT_THAT(news.Take(Status({{1, 2, 40}})), HasSubstr("40.0 times"));
  EXPECT_THAT(news.Take(Status({{2, 1, 40}})), HasSubstr("from rank 2 to rank 1"));
  EXPECT_THAT(news.Take(Status({})), HasSubstr("no link is slower"));
  EXPECT_EQ(news.Take(Status({})), "");
}

TEST(SlowLinkNews, OfManyTheFirstAreNamed) {
  SlowLinkNews news;
  EXPECT_THAT(news.Take(Status({{0, 1, 4}, {1, 2, 4}, {2, 3, 4}, {3, 4, 4}, {4, 5, 4}, {5, 6, 4}})),
              AllOf(HasSubstr("from rank 3 to rank 4"), Not(HasSubstr("from rank 4")),
                    HasSubstr("and 2 more links do: ")));
}

}  // namespace
}  // namespace penstock::cli
