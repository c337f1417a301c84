// An executor of one rank whose peers, data set and clock are the test's: everything that it asks of them is
// written down, in order.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
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
#include "worker/runtime/executor.h"

namespace penstock::worker {

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

inline int64_t Elements(const Stage& stage) { return stage.flat_parameters().gradients.numel(); }

inline constexpr double kVocab = 17;

inline JobConfig SmallJob() {
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
                                                         .group = group_,
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
  const FakeDataset dataset_ = {};
  const std::unique_ptr<Device> device_ = *MakeTorchDevice("cpu", &dataset_);
  Events events_;
  FakeCommunicator communicator_{&events_};
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Stage> upper_stage_;
  // Before Build.
  StageGroup* group_ = &SoleRank();
  Sharding sharding_;
  std::function<void()> step_begins_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<InstructionTimer> timer_;
  std::unique_ptr<InstructionOrder> order_;
  std::unique_ptr<Executor> executor_;
  Program program_;
};

}  // namespace penstock::worker
