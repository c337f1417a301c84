// What rounds between shares and stages are tested with: one of two replicas, whose passes are made up, an
// order that does at once what is to be done beside, and exchanges that bring nothing.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "worker/model/transformer_stage.h"
#include "worker/runtime/executor.h"
#include "worker/shares/reshard_routes.h"

namespace penstock::worker {

inline ModelConfig ModelOfFourLayers() {
  ModelConfig config;
  config.layers = 4;
  config.hidden = 24;
  config.heads = 3;
  config.ffn = 40;
  config.vocab = 29;
  config.max_sequence_length = 32;
  config.dtype = DataType::kFloat64;
  return config;
}

// Does at once what is to be done beside, and counts.
class CountingOrder : public InstructionOrder {
 public:
  absl::Status Start(const Program&) override { return absl::OkStatus(); }
  absl::Status Prepare(const Instruction&) override { return absl::OkStatus(); }
  absl::Status Begin(const Instruction&) override { return absl::OkStatus(); }
  absl::Status End(const Instruction&, std::unique_ptr<PendingTransfer>) override { return absl::OkStatus(); }
  absl::Status Use(const at::Tensor&) override { return absl::OkStatus(); }
  absl::Status Await(uint32_t) override { return absl::OkStatus(); }
  bool Awaited(uint32_t) const override { return true; }
  absl::Status Beside(std::function<absl::Status()> work) override {
    ++begun;
    return works ? work() : absl::UnavailableError("the peer is gone");
  }
  absl::Status AwaitBeside(size_t count) override {
    EXPECT_LE(count, static_cast<size_t>(begun)) << "it would wait for ever";
    counts_awaited.push_back(count);
    return works ? absl::OkStatus() : absl::UnavailableError("the peer is gone");
  }
  absl::Status AwaitBeside() override {
    ++awaited;
    return absl::OkStatus();
  }
  absl::Status Finish() override { return absl::OkStatus(); }

  bool works = true;
  int begun = 0;
  int awaited = 0;
  std::vector<size_t> counts_awaited;
};

class DoneExchange : public PendingTransfer {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
};

// Counts exchanges, which bring nothing.
class ExchangeCounter : public Communicator {
 public:
  using Pending = absl::StatusOr<std::unique_ptr<PendingTransfer>>;

  Pending Send(const at::Tensor&, uint32_t, uint32_t) override { return absl::UnimplementedError(""); }
  Pending Receive(const at::Tensor&, uint32_t, uint32_t) override { return absl::UnimplementedError(""); }
  absl::Status AllReduceSum(std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  Pending StartAllReduceSum(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  Pending StartReduceScatterSum(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  absl::Status AllGather(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  Pending StartAllToAll(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&,
                        const std::vector<uint32_t>&) override {
    ++exchanges;
    return std::make_unique<DoneExchange>();
  }
  void Abort(const std::string&) override { ++aborted; }

  int exchanges = 0;
  int aborted = 0;
};

class RoundsFixture : public ::testing::Test {
 protected:
  RoundsFixture() { Hold({4}); }

  // Stages of so many layers.
  void Hold(const std::vector<uint32_t>& layers) {
    topology_.replicas.clear();
    for (const uint32_t rank : {0U, 1U}) {
      ReplicaTopology& replica = topology_.replicas.emplace_back();
      for (const uint32_t count : layers) replica.stages.push_back({{rank}, count});
    }
    stages_.clear();
    ReshardEnds ends = {
        .rank = 0, .layout = &layout_, .specs = specs_, .topology = &topology_, .share = &share_};
    ReshardingParts parts = {
        .rank = 0, .share = &share_, .stages = {}, .communicator = &communicator_, .world = {0, 1}};
    for (uint32_t number = 0; number < layers.size(); ++number) {
      stages_[number] = *MakeTransformerStage(model_, StageRangeOf(layers, number), /*seed=*/std::nullopt,
                                              at::kCPU, group_);
      ends.stages[number] = &stages_[number]->flat_parameters();
      parts.stages[number] = stages_[number].get();
    }
    resharding_ = std::make_unique<Resharding>(
        parts, std::make_shared<const ReshardRoutes>(MakeReshardRoutes(ends, 8, /*round_bytes=*/1)));
    parts_.resharding = resharding_.get();
    parts_.order = &order_;
    parts_.communicator = &communicator_;
  }

  const Instruction& Add(Op op, uint32_t stage) {
    program_.instructions.reserve(100);
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.id = static_cast<uint32_t>(program_.instructions.size() - 1);
    instruction.op = op;
    instruction.stage = stage;
    return instruction;
  }

  // Where the layers of a stage begin, the uppermost first.
  std::vector<int64_t> Begins(uint32_t stage) const {
    std::vector<int64_t> begins;
    for (size_t round = 0; round < resharding_->rounds(); ++round) {
      const auto& of_round = resharding_->BeginsOf(round);
      if (of_round.contains(stage)) begins.push_back(of_round.at(stage));
    }
    return begins;
  }

  const ModelConfig model_ = ModelOfFourLayers();
  const StageSpecs specs_ = [this](const StageRange& range, const GroupPlace& place) {
    return StageParameterSpecs(model_, range, place);
  };
  const ShareLayout layout_{model_.layers, {1, 1}, specs_};
  const FlatParameters share_ = MakeFlatParameters(layout_.SpecsOf(0), 1, at::kDouble, at::kCPU);
  Topology topology_;
  ThreadStageGroup group_{GroupPlace(), nullptr, nullptr, nullptr};
  std::map<uint32_t, std::unique_ptr<Stage>> stages_;
  ExchangeCounter communicator_;
  CountingOrder order_;
  std::unique_ptr<Resharding> resharding_;
  ExecutorParts parts_;
  Program program_;
};

}  // namespace penstock::worker
