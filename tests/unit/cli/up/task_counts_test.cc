#include "planner/cli/up/task_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Of iteration i: sample i alone, of 10 + i tokens without input.
class OneSampleEach : public BatchSource {
 public:
  v1::Batch Make(uint64_t iteration) override {
    ++made;
    v1::Batch batch;
    batch.set_iteration(iteration);
    v1::Sample& sample = *batch.add_samples();
    sample.set_sample_id(iteration);
    sample.set_target_tokens(10 + iteration);
    return batch;
  }

  int made = 0;
};

TEST(TaskCountsTest, SamplesAreOfTheTaskWhoseIdsTheyHave) {
  v1::Batch batch;
  const auto add = [&batch](uint64_t id, uint32_t input, uint32_t target) {
    v1::Sample& sample = *batch.add_samples();
    sample.set_sample_id(id);
    sample.set_input_tokens(input);
    sample.set_target_tokens(target);
  };
  add(0, 0, 5);
  add(99, 3, 4);
  add(100, 0, 1);
  const std::vector<TaskEnd> ends = {{"a", 100}, {"b", 101}, {"c", 500}};
  const TaskCounts b = {.task = "b", .samples = 1, .tokens = 1, .loss_tokens = 0};
  const TaskCounts none = {.task = "c"};
  EXPECT_THAT(CountTasks(batch, ends, LearntByLength(v1::ARCHITECTURE_GPT)),
              ElementsAre(TaskCounts{.task = "a", .samples = 2, .tokens = 12, .loss_tokens = 8}, b, none));
  EXPECT_EQ(CountTasks(batch, ends, LearntByLength(v1::ARCHITECTURE_T5)).front().loss_tokens, 9u)
      << "the decoder of a T5 predicts its first token, too";
}

TEST(TaskCountsTest, WhatWasMadeIsRememberedUntilItIsAskedFor) {
  OneSampleEach source;
  CountedBatches batches(source, {{"a", 2}, {"b", 100}}, LearntByLength(v1::ARCHITECTURE_GPT));
  for (uint64_t iteration = 0; iteration < 4; ++iteration) batches.Make(iteration);
  const TaskCounts none_of_b = {.task = "b"};
  EXPECT_THAT(batches.CountsOf(1),
              ElementsAre(TaskCounts{.task = "a", .samples = 1, .tokens = 11, .loss_tokens = 10}, none_of_b));
  EXPECT_EQ(batches.CountsOf(3)[1].tokens, 13u);
  EXPECT_EQ(source.made, 4) << "nothing was made twice";
  EXPECT_EQ(batches.CountsOf(0)[0].tokens, 10u) << "done again";
  EXPECT_EQ(batches.CountsOf(50)[1].tokens, 60u) << "of another feeder";
  EXPECT_EQ(source.made, 6);
}

TEST(TaskCountsTest, WithoutTasksNothingIsCounted) {
  OneSampleEach source;
  CountedBatches batches(source, {}, LearntByLength(v1::ARCHITECTURE_GPT));
  batches.Make(0);
  EXPECT_THAT(batches.CountsOf(0), IsEmpty());
}

TEST(TaskCountsTest, AreAddedUpAndShownByName) {
  std::vector<TaskCounts> sum;
  for (int i = 0; i < 2; ++i)
    AddCounts({{.task = "a", .samples = 1, .tokens = 9, .loss_tokens = 8}, {.task = "b"}}, sum);
  EXPECT_EQ(
      ToJson(sum).dump(),
      R"({"a":{"samples":2,"tokens":18,"loss_tokens":16},"b":{"samples":0,"tokens":0,"loss_tokens":0}})");
}

}  // namespace
}  // namespace penstock::cli
