#include "common/dataset/named_datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WhyNoMixture(const std::string& text) {
  const absl::Status status = ParseMixture(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(NamedDatasets, AreCalledAsTheirPathsEndOrAsIsSaid) {
  const auto tasks = ParseMixture("data/flan=0.7,code:data/code/train=3e-1,t5=0");
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  std::vector<std::string> names;
  std::vector<double> weights;
  for (const MixtureTask& task : *tasks) {
    names.push_back(task.dataset.name);
    weights.push_back(task.weight);
  }
  EXPECT_THAT(names, ElementsAre("flan", "code", "t5"));
  EXPECT_THAT(PathsOf(*tasks), ElementsAre("data/flan", "data/code/train", "t5"));
  EXPECT_THAT(weights, ElementsAre(0.7, 0.3, 0));
}

TEST(NamedDatasets, AColonOrAnEqualsSignOfAPathStays) {
  const auto datasets = ParseDatasets("/data/2026-11:26/a");
  ASSERT_TRUE(datasets.ok()) << datasets.status();
  EXPECT_EQ(datasets->front().path, "/data/2026-11:26/a");
  EXPECT_EQ(datasets->front().name, "a");
  EXPECT_EQ(ParseMixture("x:/data/seed=3/a=0.5")->front().dataset.path, "/data/seed=3/a");
}

TEST(NamedDatasets, WhatIsWrongSaysWhatToDo) {
  EXPECT_THAT(WhyNoMixture("data/flan,data/code=1"), HasSubstr("data/flan=WEIGHT"));
  EXPECT_THAT(WhyNoMixture("a=much,b=1"),
              HasSubstr("'a=much': the weight 'much' is no number from 0 to 1e+12"));
  for (const char* weight : {"", "-1", "nan", "inf", "1e13"})
    EXPECT_THAT(WhyNoMixture(std::string("a=1,b=") + weight), HasSubstr("no number from 0 to 1e+12"))
        << weight;
  EXPECT_THAT(WhyNoMixture("a=0,b=0"), HasSubstr("give one above 0"));
  EXPECT_THAT(WhyNoMixture("a=1,,b=1"), HasSubstr("has no weight"));
  EXPECT_THAT(WhyNoMixture("=1"), HasSubstr("names no data set"));
  EXPECT_THAT(WhyNoMixture("x/train=1,y/train=1"),
              HasSubstr("'y/train' is the second one called 'train'; give it another name: NAME:y/train"));
  EXPECT_THAT(WhyNoMixture("a/my set=1"), HasSubstr("give it one: NAME:a/my set"));
}

TEST(NamedDatasets, OneAloneNeedsNoName) {
  EXPECT_TRUE(ParseDatasets("data/my set").ok());
  EXPECT_FALSE(ParseDatasets("data/my set,data/other").ok());
  EXPECT_FALSE(ParseDatasets("").ok());
}

TEST(NamedDatasets, AreReadAsTheyWereWritten) {
  for (const char* text : {"data/flan=0.1,code:data/code/train=0.30000000000000004", "/a:b/c=1,d=2e-300"}) {
    const auto tasks = ParseMixture(text);
    ASSERT_TRUE(tasks.ok()) << tasks.status();
    EXPECT_EQ(ToText(*tasks), text);
    const auto absolute = ParseMixture(ToText(WithAbsolutePaths(*tasks)));
    ASSERT_TRUE(absolute.ok()) << absolute.status();
    for (size_t i = 0; i < tasks->size(); ++i) {
      EXPECT_EQ((*absolute)[i].weight, (*tasks)[i].weight);
      EXPECT_EQ((*absolute)[i].dataset.name, (*tasks)[i].dataset.name);
      EXPECT_EQ((*absolute)[i].dataset.path.front(), '/');
    }
  }
  EXPECT_EQ(ToText(*ParseDatasets("a/x,y:a/z")), "a/x,y:a/z");
}

}  // namespace
}  // namespace penstock
