#include "worker/runtime/executor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two samples of four tokens.
class FakeDataset : public IndexedDataset {
 public:
  size_t size() const override { return 2; }
  size_t bytes_per_token() const override { return 2; }
  SampleLength Length(size_t) const override { return {.input = 1, .target = 3}; }
  std::vector<int32_t> Tokens(size_t sample) const override {
    const auto first = static_cast<int32_t>(sample);
    return {first, first + 1, first + 2, first + 3};
  }
};

class FakeTransfer : public PendingTransfer {
 public:
  explicit FakeTransfer(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }

 private:
  const absl::Status status_;
};

// Receives ones, sends into `sent`, reduces with itself alone.
class FakeCommunicator : public Communicator {
 public:
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                        uint32_t) override {
    sent[peer] = tensor;
    return std::make_unique<FakeTransfer>(absl::OkStatus());
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t,
                                                           uint32_t) override {
    tensor.fill_(1);
    return std::make_unique<FakeTransfer>(receive_status);
  }
  absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override {
    reduced.push_back(tensors.size());
    groups.push_back(group);
    return absl::OkStatus();
  }
  void Abort(const std::string&) override {}

  absl::Status receive_status;
  std::map<uint32_t, at::Tensor> sent;
  std::vector<size_t> reduced;
  std::vector<std::vector<uint32_t>> groups;
};

constexpr double kVocab = 17;

JobConfig SmallJob() {
  return {.job_id = "job",
          .model = {.layers = 2,
                    .hidden = 8,
                    .heads = 2,
                    .attention_inner = 8,
                    .ffn = 16,
                    .vocab = static_cast<int64_t>(kVocab),
                    .max_sequence_length = 8,
                    .dtype = DataType::kFloat32},
          .pipeline = 1,
          .replicas = 1,
          .training = {.learning_rate = {.peak = 0.01}}};
}

class ExecutorTest : public ::testing::Test {
 protected:
  // An executor of stage `stage` of `stages`, each of 2 / stages layers.
  void Build(uint32_t stage, uint32_t stages) {
    const int64_t layers = 2 / stages;
    stage_ = *GptStage::Create(
        job_.model,
        {.first_layer = stage * layers, .layers = layers, .first = stage == 0, .last = stage + 1 == stages},
        /*seed=*/1, at::kCPU);
    optimizer_ = *AdamW::Create(job_.training, stage_->parameters());
    timer_ = MakeHostTimer();
    executor_ = std::make_unique<Executor>(ExecutorParts{.job = &job_,
                                                         .dataset = &dataset_,
                                                         .stages = {{stage, stage_.get()}},
                                                         .optimizer = optimizer_.get(),
                                                         .communicator = &communicator_,
                                                         .timer = timer_.get()});
    program_.iteration = 7;
    program_.stages = {stage};
    program_.layers_per_stage.assign(stages, static_cast<uint32_t>(layers));
    program_.groups = {{0}, {0}};
    program_.loss_tokens = 6;
  }

  void AddMicroBatch() {
    program_.micro_batches.push_back(
        {.sample_ids = {0, 1},
         .input_tokens = {1, 1},
         .target_tokens = {3, 3},
         .layout = Layout::kPacked,
         .cu_seqlens = {0, 4, 8},
         .computed_tokens = 8,
         .full_recompute_layers = std::vector<int32_t>(program_.layers_per_stage.size())});
  }

  Instruction& Add(Op op) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.id = static_cast<uint32_t>(program_.instructions.size() - 1);
    instruction.op = op;
    instruction.stage = program_.stages.front();
    return instruction;
  }

  void AddTransfer(Op op, TransferKind kind) {
    Add(op).transfer = static_cast<uint32_t>(program_.transfers.size());
    program_.transfers.push_back({.peer = 3, .kind = kind, .shape = {8, 8}});
  }

  const JobConfig job_ = SmallJob();
  const FakeDataset dataset_;
  FakeCommunicator communicator_;
  std::unique_ptr<GptStage> stage_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<InstructionTimer> timer_;
  std::unique_ptr<Executor> executor_;
  Program program_;
};

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

TEST_F(ExecutorTest, ReceivesAnActivationAndSendsItsGradientBack) {
  Build(1, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kWait).transfer = 1;
  Add(Op::kForward);
  Add(Op::kBackward);
  AddTransfer(Op::kSend, TransferKind::kGradient);
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kInputGradient);
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(communicator_.sent.contains(3));
  EXPECT_EQ(communicator_.sent[3].sizes(), at::IntArrayRef({8, 8}));
}

TEST_F(ExecutorTest, ReducesZeroGradientsWhereTheReplicaHasNoMicroBatch) {
  Build(0, 1);
  Add(Op::kReduceGradients);
  Add(Op::kOptimizerStep).group = 1;
  const absl::StatusOr<IterationResult> result = executor_->Run(program_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(communicator_.reduced, ElementsAre(stage_->parameters().size(), 1u));
  EXPECT_EQ(result->loss, 0);
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

TEST_F(ExecutorTest, ADependencyOnATransferWaitsForIt) {
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kLoad).deps = {0};
  communicator_.receive_status = absl::UnavailableError("gone");
  EXPECT_THAT(std::string(executor_->Run(program_).status().message()), HasSubstr("instruction 1 (LOAD"));
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
