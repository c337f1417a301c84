// What an executor does when a number is not finite: nothing changes, and the first such number is named.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/transformer_stage.h"
#include "worker/runtime/ballot.h"
#include "worker/runtime/executor.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr uint32_t kNever = 99;

// Of four tokens each.
class FourSamples : public IndexedDataset {
 public:
  size_t size() const override { return 4; }
  size_t bytes_per_token() const override { return 2; }
  SampleLength Length(size_t) const override { return {.input = 1, .target = 3}; }
  absl::StatusOr<std::vector<int32_t>> Tokens(size_t sample) const override {
    const auto first = static_cast<int32_t>(sample);
    return std::vector<int32_t>{first, first + 1, first + 2, first + 3};
  }
};

// A stage that makes NaN in a pass of one micro-batch, every time that it is run.
class SpoilingStage : public Stage {
 public:
  explicit SpoilingStage(std::unique_ptr<Stage> stage) : stage_(std::move(stage)) {}

  absl::StatusOr<StageForward> Forward(const MicroBatch& shape, const TokenBatch& tokens,
                                       const at::Tensor& input, const LayerRecompute& recompute,
                                       double loss_tokens, const ParametersNeeded& needed) override {
    auto forward = stage_->Forward(shape, tokens, input, recompute, loss_tokens, needed);
    if (forward.ok() && forwards_++ % micro_batches == spoilt_output) forward->output.fill_(kNan);
    return forward;
  }
  absl::StatusOr<StageForward> ForwardAlone(const MicroBatch& shape, const TokenBatch& tokens,
                                            const at::Tensor& input, double loss_tokens,
                                            const ParametersNeeded& needed) override {
    return stage_->ForwardAlone(shape, tokens, input, loss_tokens, needed);
  }
  absl::StatusOr<at::Tensor> Backward(StageForward forward, const at::Tensor& output_gradient,
                                      const ProductsBeside& beside, const GradientsReady& ready) override {
    auto gradient = stage_->Backward(std::move(forward), output_gradient, beside, ready);
    const uint32_t micro_batch = backwards_++ % micro_batches;
    if (micro_batch == spoilt_gradient) parameters().back().gradient.view(-1)[0].fill_(kNan);
    if (gradient.ok() && micro_batch == spoilt_input_gradient) gradient->fill_(kNan);
    return gradient;
  }
  absl::StatusOr<SplitBackward> BackwardInput(StageForward forward, const at::Tensor& output_gradient,
                                              const ProductsBeside& beside) override {
    return stage_->BackwardInput(std::move(forward), output_gradient, beside);
  }
  absl::Status BackwardWeight(SplitBackward::PutAside put_aside, const GradientsReady& ready) override {
    const absl::Status status = stage_->BackwardWeight(std::move(put_aside), ready);
    if (backwards_++ % micro_batches == spoilt_gradient) parameters().back().gradient.fill_(kNan);
    return status;
  }
  void ZeroGradients() override { stage_->ZeroGradients(); }
  const FlatParameters& flat_parameters() const override { return stage_->flat_parameters(); }

  uint32_t micro_batches = 1;
  // Micro-batches, numbered as they are run.
  uint32_t spoilt_output = kNever;
  uint32_t spoilt_gradient = kNever;
  uint32_t spoilt_input_gradient = kNever;

 private:
  const std::unique_ptr<Stage> stage_;
  uint32_t forwards_ = 0;
  uint32_t backwards_ = 0;
};

class FinishedTransfer : public PendingTransfer {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
};

// Three other ranks that say what they are told to.
class OtherRanks : public Communicator {
 public:
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor&, uint32_t, uint32_t) override {
    return std::make_unique<FinishedTransfer>();
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t,
                                                           uint32_t) override {
    tensor.fill_(received);
    return std::make_unique<FinishedTransfer>();
  }
  absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override {
    const bool world = group.size() == 4;
    // Gradients go alone.
    const bool votes = tensors.front().numel() == kVoteCount;
    if (votes && group == std::vector<uint32_t>{0, 2}) tensors.front()[0].add_(lost_replicas);
    // What rank 2 has found: the loss of micro-batch 5 on stage 1.
    if (world && lost_replicas > 0) tensors[0].narrow(0, 6, 3).copy_(at::tensor({3.0, 1.0, 5.0}));
    return absl::OkStatus();
  }
  // This rank's part is the first half; nobody may look at the other one.
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatterSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>&) override {
    const int64_t half = tensors[0].numel() / 2;
    tensors[0].narrow(0, half, tensors[0].numel() - half).fill_(kNan);
    if (spoilt_sum) tensors[0][0].fill_(kNan);
    return std::make_unique<FinishedTransfer>();
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllReduceSum(const std::vector<at::Tensor>&,
                                                                     const std::vector<uint32_t>&) override {
    return std::make_unique<FinishedTransfer>();
  }
  absl::Status AllGather(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllToAll(const std::vector<at::Tensor>&,
                                                                 const std::vector<at::Tensor>&,
                                                                 const std::vector<uint32_t>&) override {
    return std::make_unique<FinishedTransfer>();
  }
  void Abort(const std::string&) override {}

  double received = 1;
  // Of the other replica: losses that are not finite.
  double lost_replicas = 0;
  bool spoilt_sum = false;
};

class NotFiniteTest : public ::testing::Test {
 protected:
  NotFiniteTest() {
    job_.model = {.layers = 2,
                  .hidden = 8,
                  .heads = 2,
                  .attention_inner = 8,
                  .ffn = 16,
                  .vocab = 17,
                  .max_sequence_length = 8,
                  .dtype = DataType::kFloat32};
    job_.pipeline = 2;
    job_.replicas = 2;
    job_.topology = {.replicas = {{.stages = {{{0}}, {{1}}}}, {.stages = {{{2}}, {{3}}}}}};
    job_.training.learning_rate.peak = 0.01;
    program_.iteration = 7;
    program_.groups = {{0, 2}, {0, 1}};
    program_.loss_tokens = 12;
  }

  void Build(uint32_t stage, uint32_t stages, uint32_t micro_batches) {
    const int64_t layers = 2 / stages;
    stage_ = std::make_unique<SpoilingStage>(*MakeTransformerStage(
        job_.model,
        {.first_layer = stage * layers, .layers = layers, .first = stage == 0, .last = stage + 1 == stages},
        /*seed=*/1, at::kCPU));
    stage_->micro_batches = micro_batches;
    optimizer_ = *AdamW::Create(job_.training, {&stage_->flat_parameters()}, {.of_tensor_rank = sharding_});
    executor_ = std::make_unique<Executor>(Parts(stage));
    program_.stages = {stage};
    program_.layers_per_stage.assign(stages, layers);
    program_.micro_batches.assign(micro_batches, {.sample_ids = {0},
                                                  .input_tokens = {1},
                                                  .target_tokens = {3},
                                                  .layout = Layout::kPacked,
                                                  .target_cu_seqlens = {0, 4},
                                                  .computed_tokens = 4,
                                                  .recompute = std::vector<LayerRecompute>(stages)});
  }

  // Of an executor of the stage that was built.
  ExecutorParts Parts(uint32_t stage) {
    return {.job = &job_,
            .device = device_.get(),
            .stages = {{stage, stage_.get()}},
            .optimizer = optimizer_.get(),
            .communicator = &communicator_,
            .timer = timer_.get(),
            .order = order_.get()};
  }

  Instruction& Add(Op op, uint32_t micro_batch = 0) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.id = static_cast<uint32_t>(program_.instructions.size() - 1);
    instruction.op = op;
    instruction.stage = program_.stages.front();
    instruction.micro_batch = micro_batch;
    // The reduction comes right before the step.
    if (op == Op::kOptimizerStep) instruction.deps = {instruction.id - 1};
    return instruction;
  }

  void AddTransfer(Op op, TransferKind kind, uint32_t micro_batch) {
    Add(op, micro_batch).transfer = static_cast<uint32_t>(program_.transfers.size());
    program_.transfers.push_back({.peer = 1, .kind = kind, .shape = {4, 8}});
  }

  // All of the model on this rank, in `micro_batches`.
  void BuildWhole(uint32_t micro_batches, bool split = false) {
    Build(0, 1, micro_batches);
    for (uint32_t i = 0; i < micro_batches; ++i) {
      for (const Op op : {Op::kLoad, Op::kForward}) Add(op, i);
      Add(split ? Op::kBackwardInput : Op::kBackward, i);
      if (split) Add(Op::kBackwardWeight, i);
    }
    Add(Op::kReduceGradients);
    Add(Op::kOptimizerStep).group = 1;
  }

  // Runs the iteration, which ends because of a number that is not finite and changes nothing.
  std::string Failure() {
    std::vector<at::Tensor> before;
    for (const TensorPiece& piece : optimizer_->State(true)) before.push_back(piece.values.clone());
    for (const NamedParameter& parameter : stage_->parameters()) before.push_back(parameter.value.clone());
    const absl::Status status = executor_->Run(program_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    size_t i = 0;
    for (const TensorPiece& piece : optimizer_->State(true))
      EXPECT_TRUE(at::equal(piece.values, before[i++])) << piece.slice.name;
    for (const NamedParameter& parameter : stage_->parameters())
      EXPECT_TRUE(at::equal(parameter.value, before[i++])) << parameter.name;
    return std::string(status.message());
  }

  JobConfig job_;
  Program program_;
  const FourSamples dataset_;
  const std::unique_ptr<Device> device_ = *MakeTorchDevice("cpu", &dataset_);
  const std::unique_ptr<InstructionTimer> timer_ = MakeHostTimer();
  const std::unique_ptr<InstructionOrder> order_ = device_->MakeOrder(timer_.get());
  OtherRanks communicator_;
  std::unique_ptr<SpoilingStage> stage_;
  // Before Build.
  Sharding sharding_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(NotFiniteTest, ALossStopsTheStepAndNamesItsMicroBatch) {
  BuildWhole(4);
  stage_->spoilt_output = 2;
  EXPECT_THAT(Failure(), HasSubstr("iteration 7: the loss is not finite, which began at rank 0: the loss of "
                                   "micro-batch 2 on stage 0; no parameter was changed. Try"));
}

TEST_F(NotFiniteTest, AGradientStopsTheStepAndNamesItsMicroBatch) {
  for (const bool split : {false, true}) {
    program_.instructions.clear();
    BuildWhole(4, split);
    stage_->spoilt_gradient = 3;
    EXPECT_THAT(Failure(), HasSubstr("iteration 7: the norm of the gradients is not finite, which began at "
                                     "rank 0: the gradients of micro-batch 3 on stage 0;"));
  }
}

TEST_F(NotFiniteTest, ABatchWithNothingToLearnChangesNothingAndTrainingGoesOn) {
  BuildWhole(2);
  const auto state = [&] {
    std::vector<at::Tensor> all;
    for (const TensorPiece& piece : optimizer_->State(true)) all.push_back(piece.values.reshape({-1}));
    for (const NamedParameter& parameter : stage_->parameters()) all.push_back(parameter.value.reshape({-1}));
    return at::cat(all);
  };
  ASSERT_TRUE(executor_->Run(program_).ok());
  const at::Tensor before = state();
  Program nothing = program_;
  nothing.loss_tokens = 0;
  for (MicroBatch& micro_batch : nothing.micro_batches) {
    micro_batch.target_tokens = {0};
    micro_batch.target_cu_seqlens = {0, 1};
    micro_batch.computed_tokens = 1;
  }
  const absl::StatusOr<IterationResult> result = executor_->Run(nothing);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss, 0);
  EXPECT_EQ(result->gradient_norm, 0);
  EXPECT_TRUE(at::equal(state(), before)) << "weights did not decay, nor did moments";
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_FALSE(at::equal(state(), before));
}

TEST_F(NotFiniteTest, FiniteNumbersAreNotLookedAtTwice) {
  BuildWhole(4);
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->votes.loss_not_finite);
  EXPECT_EQ(result->instructions.size(), program_.instructions.size());
}

TEST_F(NotFiniteTest, GradientsAreShownWhereTheyAreFinite) {
  BuildWhole(4);
  std::vector<uint64_t> shown;
  ExecutorParts parts = Parts(0);
  parts.gradients_ready = [&](uint64_t iteration) {
    shown.push_back(iteration);
    return absl::OkStatus();
  };
  executor_ = std::make_unique<Executor>(std::move(parts));
  EXPECT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(shown, ElementsAre(7));
  stage_->spoilt_gradient = 3;
  Failure();
  EXPECT_THAT(shown, ElementsAre(7)) << "of the second run neither";
}

TEST_F(NotFiniteTest, AParameterThatWasNotFiniteBeforeIsNamedRatherThanWhatFollows) {
  BuildWhole(2);
  stage_->parameters().front().value.fill_(kNan);
  const absl::Status status = executor_->Run(program_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 0: a parameter of stage 0 was not finite before"));
}

// The first of two stages: what it sends and gets.
class FirstStageTest : public NotFiniteTest {
 protected:
  FirstStageTest() {
    Build(0, 2, 2);
    for (uint32_t i = 0; i < 2; ++i) {
      Add(Op::kLoad, i);
      Add(Op::kForward, i);
      AddTransfer(Op::kSend, TransferKind::kActivation, i);
      AddTransfer(Op::kRecv, TransferKind::kGradient, i);
      Add(Op::kBackward, i);
    }
    Add(Op::kReduceGradients);
    Add(Op::kOptimizerStep).group = 1;
  }
};

TEST_F(FirstStageTest, AnOutputIsNamedAlthoughItsGradientsAreNotFiniteEither) {
  stage_->spoilt_output = 1;
  stage_->spoilt_gradient = 1;
  EXPECT_THAT(Failure(), HasSubstr("rank 0: the output of micro-batch 1 on stage 0;"));
}

TEST_F(FirstStageTest, WhatCameFromAnotherRankIsNotItsFault) {
  communicator_.received = kNan;
  EXPECT_THAT(Failure(), Not(HasSubstr("rank 0")));
}

TEST_F(NotFiniteTest, AnInputGradientIsNamed) {
  Build(1, 2, 1);
  Add(Op::kLoad);
  AddTransfer(Op::kRecv, TransferKind::kActivation, 0);
  for (const Op op : {Op::kForward, Op::kBackward}) Add(op);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep).group = 1;
  stage_->spoilt_input_gradient = 0;
  stage_->spoilt_gradient = 0;
  EXPECT_THAT(Failure(), HasSubstr("rank 0: the input gradient of micro-batch 0 on stage 1;"));
}

TEST_F(NotFiniteTest, TheLossOfAnotherReplicaStopsTheStepToo) {
  BuildWhole(2);
  communicator_.lost_replicas = 1;
  EXPECT_THAT(
      Failure(),
      HasSubstr("the loss is not finite, which began at rank 2: the loss of micro-batch 5 on stage 1;"));
}

// Four ranks, of which two replicas divide the optimizer's state of each stage.
class DividedStateTest : public NotFiniteTest {
 protected:
  DividedStateTest() {
    sharding_ = {.count = 2, .own = 0, .divided = true};
    BuildWhole(2);
  }
};

TEST_F(DividedStateTest, WhatIsNotSummedHereIsNotLookedAt) {
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(std::isfinite(result->gradient_norm));
}

TEST_F(DividedStateTest, TheLossOfAnotherReplicaStopsTheStep) {
  communicator_.lost_replicas = 1;
  EXPECT_THAT(
      Failure(),
      HasSubstr("the loss is not finite, which began at rank 2: the loss of micro-batch 5 on stage 1;"));
}

TEST_F(DividedStateTest, ASumIsNamed) {
  communicator_.spoilt_sum = true;
  EXPECT_THAT(Failure(),
              HasSubstr("the norm of the gradients is not finite, which began at rank 0: the sum of "
                        "the gradients of stage 0 over the replicas;"));
}

TEST_F(NotFiniteTest, WhatAnyRankSaysReachesTheResult) {
  BuildWhole(2);
  const absl::StatusOr<IterationResult> quiet = executor_->Run(program_);
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  EXPECT_FALSE(quiet->votes.stop);
  ExecutorParts parts = Parts(0);
  parts.votes = [] { return Votes{.stop = true}; };
  executor_ = std::make_unique<Executor>(std::move(parts));
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->votes.stop);
  EXPECT_FALSE(result->votes.unwritten);
}

}  // namespace
}  // namespace penstock::worker
