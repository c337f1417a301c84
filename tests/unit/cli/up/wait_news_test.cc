#include "planner/cli/up/wait_news.h"

#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);

TEST(WaitNewsTest, IsSaidAtOnceAndThenEachMinute) {
  WaitNews news;
  int said = 0;
  for (int second = 0; second < 150; ++second)
    said += news.Take("samples of owner 'a'", kBegin + absl::Seconds(second)).empty() ? 0 : 1;
  EXPECT_EQ(said, 3);
}

TEST(WaitNewsTest, NothingIsSaidOfWhatDoesNotLast) {
  WaitNews news(absl::Seconds(10));
  for (int second = 0; second < 9; ++second)
    EXPECT_EQ(news.Take("disk full", kBegin + absl::Seconds(second)), "");
  EXPECT_EQ(news.Take("disk full", kBegin + absl::Seconds(10)), "disk full");
}

TEST(WaitNewsTest, WhatComesAndGoesIsOneWait) {
  WaitNews news;
  EXPECT_NE(news.Take("quota", kBegin), "");
  EXPECT_EQ(news.Take("", kBegin + absl::Seconds(1)), "");
  EXPECT_EQ(news.Take("quota", kBegin + absl::Seconds(5)), "");
  EXPECT_NE(news.Take("quota", kBegin + absl::Seconds(100)), "") << "it was over";
}

}  // namespace
}  // namespace penstock::cli
