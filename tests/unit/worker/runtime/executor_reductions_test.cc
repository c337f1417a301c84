// When an executor begins sums of gradients, and when it steps.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/runtime/executor_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The upper stage's gradients are summed while it makes its input's gradient and the lower stage runs
// backward; those of the lower one, which embeds, when its pass is over.
TEST_F(ExecutorTest, AReductionRunsBesideWhatComesNextAndIsWaitedForByTheStep) {
  RecordInstructions();
  BuildBothStages();
  AddMicroBatch();
  for (const uint32_t stage : {0U, 1U}) {
    Add(Op::kLoad).stage = stage;
    Add(Op::kForward).stage = stage;
  }
  for (const uint32_t stage : {1U, 0U}) {
    Add(Op::kBackward).stage = stage;
    Add(Op::kReduceGradients).stage = stage;
  }
  Add(Op::kOptimizerStep);
  ASSERT_TRUE(executor_->Run(program_).ok());
  const std::string upper = absl::StrCat("all-reduce of ", Elements(*upper_stage_));
  const std::string lower = absl::StrCat("all-reduce of ", Elements(*stage_));
  ASSERT_GT(events_.size(), 8U);
  EXPECT_THAT(Events(events_.begin() + 8, events_.end()),
              ElementsAre("begin BACKWARD", upper, "end BACKWARD",                       //
                          "begin REDUCE_GRADIENTS", "end REDUCE_GRADIENTS",              //
                          "begin BACKWARD", "end BACKWARD",                              //
                          "begin REDUCE_GRADIENTS", lower, "end REDUCE_GRADIENTS",       //
                          absl::StrCat("wait: ", upper), absl::StrCat("wait: ", lower),  //
                          "begin OPTIMIZER_STEP", "end OPTIMIZER_STEP"));
}

TEST_F(ExecutorTest, AReductionIsReportedWithTheTimeInWhichItRan) {
  Build(0, 1);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep);
  const auto now = std::chrono::steady_clock::now();
  communicator_.reduction_span = {.start = now + std::chrono::seconds(5),
                                  .end = now + std::chrono::seconds(8)};
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->instructions[0].duration_ns, 3'000'000'000);
  EXPECT_GT(result->instructions[0].start_ns, 4'000'000'000);
}

TEST_F(ExecutorTest, NamesTheReductionThatFailed) {
  communicator_.reduction_status = absl::UnavailableError("receiving from rank 2: gone");
  Build(0, 1);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep);
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("REDUCE_GRADIENTS"), HasSubstr("receiving from rank 2")));
}

TEST_F(ExecutorTest, DoesNotStepWithGradientsThatAreStillReduced) {
  Build(0, 1);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep).deps.clear();
  const at::Tensor before = stage_->flat_parameters().values.clone();
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("does not wait for"), HasSubstr("REDUCE_GRADIENTS")));
  EXPECT_TRUE(stage_->flat_parameters().values.equal(before));
}

TEST_F(ExecutorTest, TellsThatAStepBeginsWhenAllSumsAreThereAndNothingHasChanged) {
  at::Tensor before;
  int told = 0;
  step_begins_ = [&] {
    ++told;
    EXPECT_TRUE(stage_->flat_parameters().values.equal(before));
    EXPECT_EQ(communicator_.groups.size(), 3u) << "gradients, the norm, votes";
  };
  Build(0, 1);
  before = stage_->flat_parameters().values.clone();
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kReduceGradients}) Add(op);
  Add(Op::kOptimizerStep).group = 1;
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(stage_->flat_parameters().values.equal(before));
}

// On a GPU an abort ends a sum as if all ranks had given their part.
TEST_F(ExecutorTest, DoesNotStepWithSumsThatAnAbortHasEnded) {
  communicator_.aborted = absl::CancelledError("the epoch has failed");
  int told = 0;
  step_begins_ = [&] { ++told; };
  Build(0, 1);
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kReduceGradients}) Add(op);
  Add(Op::kOptimizerStep).group = 1;
  const at::Tensor before = stage_->flat_parameters().values.clone();
  EXPECT_TRUE(absl::IsCancelled(executor_->Run(program_).status()));
  EXPECT_EQ(told, 0);
  EXPECT_TRUE(stage_->flat_parameters().values.equal(before));
}

TEST_F(ExecutorTest, UpdatesItsShardAndGathersTheRestWhereTheStateIsDivided) {
  sharding_ = {.count = 2, .own = 0, .divided = true};
  Build(0, 1);
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kReduceGradients}) Add(op);
  Add(Op::kOptimizerStep).group = 1;
  const at::Tensor& values = stage_->flat_parameters().values;
  const at::Tensor before = values.clone();
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  const int64_t elements = Elements(*stage_);
  EXPECT_THAT(communicator_.reduce_scattered, ElementsAre(elements));
  EXPECT_THAT(communicator_.reduced,
              ElementsAre(/*squares, stages x shards=*/2 + kVoteCount, /*by shard=*/2 + kVoteCount));
  EXPECT_THAT(communicator_.gathered, ElementsAre(elements));
  EXPECT_THAT(communicator_.groups,
              ElementsAre(ElementsAre(0, 2), ElementsAre(0, 1), ElementsAre(0, 2), ElementsAre(0, 2)))
      << "gradients over the replicas, the norm over the pipeline and then the replicas, parameters";
  const int64_t half = elements / 2;
  EXPECT_FALSE(values.narrow(0, 0, half).equal(before.narrow(0, 0, half)));
  EXPECT_TRUE(values.narrow(0, half, elements - half).equal(before.narrow(0, half, elements - half)))
      << "the other replica's, which nobody sent here";
}

TEST_F(ExecutorTest, NamesAReductionThatDoesNotFitTheShards) {
  sharding_ = {.count = 3, .own = 0, .divided = true};
  Build(0, 1);
  Add(Op::kReduceGradients);
  const absl::Status other_ranks = executor_->Run(program_).status();
  EXPECT_EQ(other_ranks.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(other_ranks.message()), HasSubstr("shard 0 of 3"));

  program_ = {};
  Build(0, 1);
  Add(Op::kOptimizerStep);
  const absl::Status none = executor_->Run(program_).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(none.message()), HasSubstr("stage 0 were not reduced"));
}

TEST_F(ExecutorTest, ReducesZeroGradientsWhereTheReplicaHasNoMicroBatch) {
  Build(0, 1);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep).group = 1;
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(communicator_.reduced,
              ElementsAre(Elements(*stage_), /*squares of the stage=*/1 + kVoteCount, kVoteCount));
  EXPECT_THAT(communicator_.groups, ElementsAre(ElementsAre(0, 2), ElementsAre(0, 1), ElementsAre(0, 2)));
  EXPECT_EQ(result->loss, 0);
}

}  // namespace
}  // namespace penstock::worker
