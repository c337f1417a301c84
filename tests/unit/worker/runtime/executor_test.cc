#include "worker/runtime/executor.h"

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/memory/tensor_memory.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/describe.h"
#include "worker/runtime/ballot.h"

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
  absl::StatusOr<std::vector<int32_t>> Tokens(size_t sample) const override {
    const auto first = static_cast<int32_t>(sample);
    return std::vector<int32_t>{first, first + 1, first + 2, first + 3};
  }
};

// Sees whether a tensor still exists without keeping it alive.
class Watched {
 public:
  explicit Watched(const at::Tensor& tensor) : tensor_(tensor.getIntrusivePtr()) {}
  bool alive() const { return !tensor_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
};

// What happened, in order: "begin SEND", "send to 3", "end SEND", "wait: send to 3", ...
using Events = std::vector<std::string>;

class FakeTransfer : public PendingTransfer {
 public:
  FakeTransfer(absl::Status status, std::string name, Watched buffer, std::optional<HostSpan> span,
               Events* events)
      : status_(std::move(status)),
        name_(std::move(name)),
        buffer_(std::move(buffer)),
        span_(span),
        events_(events) {}
  absl::Status Wait() override {
    events_->push_back(absl::StrCat("wait: ", name_, buffer_.alive() ? "" : ", whose buffer is gone"));
    return status_;
  }
  std::optional<HostSpan> span() const override { return span_; }

 private:
  const absl::Status status_;
  const std::string name_;
  const Watched buffer_;
  const std::optional<HostSpan> span_;
  Events* const events_;
};

// Receives ones when a transfer is started, reduces with itself alone. Unlike a real one it keeps no tensor
// alive.
class FakeCommunicator : public Communicator {
 public:
  explicit FakeCommunicator(Events* events) : events_(events) {}

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                        uint32_t) override {
    sent[peer] = tensor.sizes().vec();
    buffers.emplace_back(tensor);
    return Start(absl::OkStatus(), absl::StrCat("send to ", peer));
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t peer,
                                                           uint32_t) override {
    tensor.fill_(1);
    buffers.emplace_back(tensor);
    return Start(receive_status, absl::StrCat("receive from ", peer));
  }
  absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override {
    reduced.push_back(0);
    for (const at::Tensor& tensor : tensors) reduced.back() += tensor.numel();
    groups.push_back(group);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllReduceSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override {
    reduced.push_back(tensors.front().numel());
    return StartReduction("all-reduce", tensors, group);
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatterSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override {
    reduce_scattered.push_back(tensors.front().numel());
    return StartReduction("reduce-scatter", tensors, group);
  }
  absl::Status AllGather(const std::vector<at::Tensor>& tensors,
                         const std::vector<uint32_t>& group) override {
    gathered.push_back(tensors.front().numel());
    groups.push_back(group);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllToAll(const std::vector<at::Tensor>&,
                                                                 const std::vector<at::Tensor>&,
                                                                 const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  void Abort(const std::string&) override {}
  absl::Status status() const override { return aborted; }

  absl::Status aborted;
  absl::Status receive_status;
  absl::Status reduction_status;
  std::optional<HostSpan> reduction_span;
  std::map<uint32_t, std::vector<int64_t>> sent;
  // Of all transfers, in the order in which they were started.
  std::vector<Watched> buffers;
  // Elements of each call.
  std::vector<int64_t> reduced;
  std::vector<int64_t> reduce_scattered;
  std::vector<int64_t> gathered;
  std::vector<std::vector<uint32_t>> groups;

 private:
  std::unique_ptr<PendingTransfer> Start(const absl::Status& status, const std::string& name) {
    events_->push_back(name);
    return std::make_unique<FakeTransfer>(status, name, buffers.back(), std::nullopt, events_);
  }
  std::unique_ptr<PendingTransfer> StartReduction(const std::string& kind,
                                                  const std::vector<at::Tensor>& tensors,
                                                  const std::vector<uint32_t>& group) {
    EXPECT_EQ(tensors.size(), 1U) << "one span: this model's stages share nothing";
    groups.push_back(group);
    const std::string name = absl::StrCat(kind, " of ", tensors.front().numel());
    events_->push_back(name);
    // The gradients belong to the stage, which lives on.
    return std::make_unique<FakeTransfer>(reduction_status, name, Watched(gradients_), reduction_span,
                                          events_);
  }

  const at::Tensor gradients_ = at::ones({1});

  Events* const events_;
};

// Writes down where each instruction begins and ends, and whether the first buffer of a transfer exists then.
class RecordingTimer : public InstructionTimer {
 public:
  RecordingTimer(const FakeCommunicator* communicator, Events* events)
      : communicator_(communicator), events_(events) {}
  absl::Status StartIteration(const Program&) override { return absl::OkStatus(); }
  absl::Status Begin(const Instruction& instruction) override {
    Record("begin ", instruction);
    return absl::OkStatus();
  }
  absl::Status End(const Instruction& instruction) override {
    Record("end ", instruction);
    return absl::OkStatus();
  }
  absl::StatusOr<IterationTimes> Finish() override { return IterationTimes(); }

  // At the end of which instructions the buffer of the first transfer still existed.
  std::vector<std::string> alive_after;

 private:
  void Record(const char* what, const Instruction& instruction) {
    events_->push_back(absl::StrCat(what, OpName(instruction.op)));
    const bool ends = what[0] == 'e';
    if (ends && !communicator_->buffers.empty() && communicator_->buffers.front().alive()) {
      alive_after.push_back(OpName(instruction.op));
    }
  }

  const FakeCommunicator* const communicator_;
  Events* const events_;
};

int64_t Elements(const Stage& stage) { return stage.flat_parameters().gradients.numel(); }

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
    stage_ = MakeStage(stage, stages);
    BuildExecutor({{stage, stage_.get()}}, stages);
  }

  // An executor of both stages of two.
  void BuildBothStages() {
    stage_ = MakeStage(0, 2);
    upper_stage_ = MakeStage(1, 2);
    BuildExecutor({{0, stage_.get()}, {1, upper_stage_.get()}}, 2);
  }

  std::unique_ptr<Stage> MakeStage(uint32_t stage, uint32_t stages) const {
    const int64_t layers = 2 / stages;
    return *MakeTransformerStage(
        job_.model,
        {.first_layer = stage * layers, .layers = layers, .first = stage == 0, .last = stage + 1 == stages},
        /*seed=*/1, at::kCPU);
  }

  void BuildExecutor(const std::map<uint32_t, Stage*>& on_rank, uint32_t stages) {
    std::vector<const FlatParameters*> parameters;
    for (const auto& [number, stage] : on_rank) {
      parameters.push_back(&stage->flat_parameters());
      program_.stages.push_back(number);
    }
    optimizer_ = *AdamW::Create(job_.training, parameters, {.of_tensor_rank = sharding_});
    if (timer_ == nullptr) timer_ = MakeHostTimer();
    order_ = device_->MakeOrder(timer_.get());
    executor_ = std::make_unique<Executor>(ExecutorParts{.job = &job_,
                                                         .device = device_.get(),
                                                         .stages = on_rank,
                                                         .optimizer = optimizer_.get(),
                                                         .communicator = &communicator_,
                                                         .timer = timer_.get(),
                                                         .order = order_.get(),
                                                         .step_begins = step_begins_});
    program_.iteration = 7;
    program_.layers_per_stage.assign(stages, 2 / stages);
    program_.groups = {{0, 2}, {0, 1}};
    program_.loss_tokens = 6;
  }

  void AddMicroBatch() {
    program_.micro_batches.push_back(
        {.sample_ids = {0, 1},
         .input_tokens = {1, 1},
         .target_tokens = {3, 3},
         .layout = Layout::kPacked,
         .target_cu_seqlens = {0, 4, 8},
         .computed_tokens = 8,
         .recompute = std::vector<LayerRecompute>(program_.layers_per_stage.size())});
  }

  Instruction& Add(Op op) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.id = static_cast<uint32_t>(program_.instructions.size() - 1);
    instruction.op = op;
    instruction.stage = program_.stages.front();
    if (op != Op::kOptimizerStep) return instruction;
    for (const Instruction& earlier : program_.instructions) {
      if (earlier.op == Op::kReduceGradients) instruction.deps.push_back(earlier.id);
    }
    return instruction;
  }

  void AddTransfer(Op op, TransferKind kind) {
    Add(op).transfer = static_cast<uint32_t>(program_.transfers.size());
    program_.transfers.push_back({.peer = 3, .kind = kind, .shape = {8, 8}});
  }

  // Before Build: events_ then says where instructions begin and end.
  RecordingTimer& RecordInstructions() {
    auto timer = std::make_unique<RecordingTimer>(&communicator_, &events_);
    RecordingTimer& recorder = *timer;
    timer_ = std::move(timer);
    return recorder;
  }

  const JobConfig job_ = SmallJob();
  const FakeDataset dataset_;
  const std::unique_ptr<Device> device_ = *MakeTorchDevice("cpu", &dataset_);
  Events events_;
  FakeCommunicator communicator_{&events_};
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Stage> upper_stage_;
  // Before Build.
  Sharding sharding_;
  std::function<void()> step_begins_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<InstructionTimer> timer_;
  std::unique_ptr<InstructionOrder> order_;
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
  EXPECT_THAT(communicator_.sent[3], ElementsAre(8, 8));
}

TEST_F(ExecutorTest, ASendDoesNotWaitForItsEndAndItsBufferLivesUntilItIsFreed) {
  const RecordingTimer& recorder = RecordInstructions();
  Build(0, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  Add(Op::kForward);
  AddTransfer(Op::kSend, TransferKind::kActivation);
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kLoadedTokens);
  Add(Op::kWait).transfer = 2;
  Add(Op::kFree).part = static_cast<uint32_t>(FreePart::kOutputActivation);
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("begin LOAD", "end LOAD", "begin FORWARD", "end FORWARD",  //
                                   "begin SEND", "send to 3", "end SEND",                     //
                                   "begin FREE", "end FREE",                                  //
                                   "begin WAIT", "wait: send to 3", "end WAIT",               //
                                   "begin FREE", "end FREE"));
  EXPECT_THAT(recorder.alive_after, ElementsAre("SEND", "FREE", "WAIT")) << "gone at the end of its own FREE";
}

TEST_F(ExecutorTest, AReceivedBufferIsWaitedForBeforeItIsUsedAndGoneAfterwards) {
  const RecordingTimer& recorder = RecordInstructions();
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  Add(Op::kLoad);
  Add(Op::kForward);
  Add(Op::kBackward);
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("begin RECV", "receive from 3", "end RECV", "begin LOAD", "end LOAD",
                                   "begin FORWARD", "wait: receive from 3", "end FORWARD", "begin BACKWARD",
                                   "end BACKWARD"));
  EXPECT_THAT(recorder.alive_after, ::testing::Not(::testing::Contains("BACKWARD")));
}

TEST_F(ExecutorTest, AReceiveIsNotPostedBeforeItsDepsHaveEnded) {
  Build(1, 2);
  AddMicroBatch();
  AddTransfer(Op::kRecv, TransferKind::kActivation);
  AddTransfer(Op::kRecv, TransferKind::kGradient);
  program_.transfers[1].peer = 4;
  program_.instructions[1].deps = {0};
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("receive from 3", "wait: receive from 3", "receive from 4",
                                   "wait: receive from 4"));
}

TEST_F(ExecutorTest, AnIterationDoesNotEndBeforeItsTransfers) {
  Build(0, 2);
  AddMicroBatch();
  Add(Op::kLoad);
  Add(Op::kForward);
  AddTransfer(Op::kSend, TransferKind::kActivation);
  ASSERT_TRUE(executor_->Run(program_).ok());
  EXPECT_THAT(events_, ElementsAre("send to 3", "wait: send to 3"));
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
