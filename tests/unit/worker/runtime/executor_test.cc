// Programs that an executor runs, measures and refuses.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/worker/runtime/executor_fixture.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ExecutorTest, RunsAWholeIterationOnOneRank) {
  Build(0, 1);
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward}) Add(op);
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kLoadedTokens);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep).group = 1;
  const at::Tensor before = stage_->parameters().front().value.clone();
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(result->loss, std::log(kVocab), 0.1);
  EXPECT_GT(result->gradient_norm, 0);
  EXPECT_EQ(result->learning_rate, 0.01);
  EXPECT_FALSE(at::equal(before, stage_->parameters().front().value));
  EXPECT_EQ(stage_->parameters().front().gradient.abs().max().item<float>(), 0);
  EXPECT_THAT(communicator_.groups, ElementsAre(ElementsAre(0, 2), ElementsAre(0, 1), ElementsAre(0, 2)))
      << "gradients are summed over the group of REDUCE_GRADIENTS, the norm over that of OPTIMIZER_STEP, "
         "votes "
         "over both";
}

TEST_F(ExecutorTest, MeasuresEveryInstructionInOrder) {
  Build(0, 1);
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kReduceGradients, Op::kOptimizerStep}) Add(op);
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->instructions.size(), 5u);
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result->instructions[i].id, i);
    if (i > 0) {
      const MeasuredInstruction& earlier = result->instructions[i - 1];
      EXPECT_GE(result->instructions[i].start_ns, earlier.start_ns + earlier.duration_ns);
    }
  }
  EXPECT_GE(result->duration_ns, result->instructions[4].start_ns + result->instructions[4].duration_ns);
}

// A rank alone that says that it has waited 1, 2, 3, ... ns since it was asked last.
class WaitingRank : public StageGroup {
 public:
  GroupPlace place() const override { return sole_.place(); }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) override {
    return sole_.GatherRows(own, rows);
  }
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) override {
    return sole_.SumRows(partial, rows);
  }
  void SumOverTensorRanks(at::Tensor& values) override { sole_.SumOverTensorRanks(values); }
  void MaxOverTensorRanks(at::Tensor& values) override { sole_.MaxOverTensorRanks(values); }
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override {
    return sole_.ExchangeRows(rows, sent, received);
  }
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                               const std::vector<int64_t>& received) override {
    return sole_.StartExpertRows(rows, sent, received);
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override {
    return sole_.ExchangeExpertCounts(counts);
  }
  int64_t TakeWaitedNs() override { return ++waited_; }
  absl::Status status() const override { return sole_.status(); }

 private:
  StageGroup& sole_ = SoleRank();
  int64_t waited_ = 0;
};

// What was waited for before a pass is none of it.
TEST_F(ExecutorTest, PassesOfAGroupSayWhatTheyWaitedForInside) {
  WaitingRank group;
  group_ = &group;
  Build(0, 1);
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kReduceGradients, Op::kOptimizerStep}) Add(op);
  for (const uint32_t pass : {1, 2}) program_.instructions[pass].joint = true;
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->instructions.size(), 5U);
  for (const uint32_t other : {0, 3, 4}) EXPECT_EQ(result->instructions[other].exchange_ns, std::nullopt);
  // Asked when LOAD began, and at both ends of the passes.
  EXPECT_EQ(result->instructions[1].exchange_ns, 3);
  EXPECT_EQ(result->instructions[2].exchange_ns, 5);
}

TEST_F(ExecutorTest, ReportsThePeakOfTheTensorsOfEachIteration) {
  CountCpuTensors();
  Build(0, 1);
  AddMicroBatch();
  const int64_t before = TensorBytes(at::kCPU);
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kReduceGradients, Op::kOptimizerStep}) Add(op);
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  // 8 tokens, their positions and labels, and at least their hidden states.
  EXPECT_GT(result->peak_memory_bytes, before + 8 * (24 + 8 * 4));

  program_.instructions.clear();
  const absl::StatusOr<IterationResult> empty = executor_->Run(program_);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->peak_memory_bytes, before) << "what was there before is not forgotten";
}

// The loss and the gradients' norm of one micro-batch with both stages on the rank.
TEST_F(ExecutorTest, HandsOverBetweenStagesOfOneRank) {
  Build(0, 1);
  AddMicroBatch();
  for (Op op : {Op::kLoad, Op::kForward, Op::kBackward, Op::kOptimizerStep}) Add(op);
  const absl::StatusOr<IterationResult> whole = executor_->Run(program_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (const bool split : {false, true}) {
    program_ = {};
    BuildBothStages();
    AddMicroBatch();
    for (const uint32_t stage : {0U, 1U}) {
      Add(Op::kLoad).stage = stage;
      Add(Op::kForward).stage = stage;
    }
    for (const uint32_t stage : {1U, 0U}) Add(split ? Op::kBackwardInput : Op::kBackward).stage = stage;
    if (split) {
      for (const uint32_t stage : {0U, 1U}) Add(Op::kBackwardWeight).stage = stage;
    }
    for (const uint32_t stage : {0U, 1U}) Add(Op::kReduceGradients).stage = stage;
    Add(Op::kOptimizerStep);
    communicator_.reduced.clear();
    const absl::StatusOr<IterationResult> result = executor_->Run(program_);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss, whole->loss);
    EXPECT_NEAR(result->gradient_norm, whole->gradient_norm, 1e-6 * whole->gradient_norm);
    EXPECT_THAT(communicator_.reduced, ElementsAre(Elements(*stage_), Elements(*upper_stage_),
                                                   /*squares of stages=*/2 + kVoteCount, kVoteCount));
    EXPECT_TRUE(communicator_.sent.empty());
  }
}

TEST_F(ExecutorTest, AnErrorNamesIterationInstructionPeerAndCause) {
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kWait).transfer = 0;
  communicator_.receive_status = absl::UnavailableError("connection closed by peer");
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("iteration 7, instruction 1 (WAIT"), HasSubstr("from rank 3"),
                    HasSubstr("connection closed by peer")));
}

TEST_F(ExecutorTest, NamesABufferThatIsNotThere) {
  Build(0, 1);
  AddMicroBatch();
  Add(Op::kForward);
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the loaded tokens of micro-batch 0 on stage 0 is not there"));
}

TEST_F(ExecutorTest, RefusesSamplesThatTheDatasetDoesNotHave) {
  Build(0, 1);
  AddMicroBatch();
  program_.micro_batches[0].sample_ids[1] = 2;
  Add(Op::kLoad);
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sample 2"));
}

TEST_F(ExecutorTest, RefusesAShapeThatIsNotThePlans) {
  Build(0, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  Add(Op::kForward);
  AddTransfer(Op::kSend, TransferKind::kActivation);
  program_.transfers[0].shape = {8, 9};
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("[8, 9]"), HasSubstr("[8, 8]")));
}

TEST_F(ExecutorTest, RefusesAStageThatIsElsewhere) {
  Build(0, 2);
  program_.stages = {1};
  EXPECT_EQ(executor_->Run(program_).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace penstock::worker
