#include "worker/runtime/gradient_reductions.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Parameters of `layers` layers, a bucket each, and one that stages share. Runs nothing.
class BucketStage : public Stage {
 public:
  explicit BucketStage(int layers) {
    std::vector<ParameterSpec> specs = {{.name = "table", .shape = {7}, .shared = true}};
    for (int layer = 0; layer < layers; ++layer) {
      specs.push_back({.name = absl::StrCat("layers.", layer), .shape = {16}, .begins_layer = true});
    }
    flat_ = MakeFlatParameters(specs, /*seed=*/0, at::kFloat, at::kCPU, /*bucket_bytes=*/64);
  }

  absl::StatusOr<StageForward> Forward(const MicroBatch&, const TokenBatch&, const at::Tensor&,
                                       const LayerRecompute&, double, const ParametersNeeded&) override {
    return StageForward();
  }
  absl::StatusOr<StageForward> ForwardAlone(const MicroBatch&, const TokenBatch&, const at::Tensor&, double,
                                            const ParametersNeeded&) override {
    return StageForward();
  }
  absl::StatusOr<at::Tensor> Backward(StageForward, const at::Tensor&, const ProductsBeside&,
                                      const GradientsReady&) override {
    return at::Tensor();
  }
  absl::StatusOr<SplitBackward> BackwardInput(StageForward, const at::Tensor&,
                                              const ProductsBeside&) override {
    return SplitBackward();
  }
  absl::Status BackwardWeight(SplitBackward::PutAside, const GradientsReady&) override {
    return absl::OkStatus();
  }
  void ZeroGradients() override {}
  const FlatParameters& flat_parameters() const override { return flat_; }

  int64_t Begin(size_t layer) const { return flat_.spans[layer].begin; }

 private:
  FlatParameters flat_;
};

class DonePending : public PendingTransfer {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
};

// Writes down what is started: "all-reduce 16 to 32 over 0,2".
class StartRecorder : public Communicator {
 public:
  using Pending = absl::StatusOr<std::unique_ptr<PendingTransfer>>;

  Pending Send(const at::Tensor&, uint32_t, uint32_t) override { return absl::UnimplementedError(""); }
  Pending Receive(const at::Tensor&, uint32_t, uint32_t) override { return absl::UnimplementedError(""); }
  absl::Status AllReduceSum(std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  Pending StartAllReduceSum(const std::vector<at::Tensor>& tensors,
                            const std::vector<uint32_t>& group) override {
    return Start("all-reduce", tensors, group);
  }
  Pending StartReduceScatterSum(const std::vector<at::Tensor>& tensors,
                                const std::vector<uint32_t>& group) override {
    return Start("reduce-scatter", tensors, group);
  }
  absl::Status AllGather(const std::vector<at::Tensor>&, const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  Pending StartAllToAll(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&,
                        const std::vector<uint32_t>&) override {
    return absl::UnimplementedError("");
  }
  void Abort(const std::string&) override {}

  std::vector<std::string> started;
  absl::Status status;

 private:
  Pending Start(const char* kind, const std::vector<at::Tensor>& tensors,
                const std::vector<uint32_t>& group) {
    if (!status.ok()) return status;
    EXPECT_EQ(tensors.size(), 1U);
    const at::Tensor& tensor = tensors.front();
    started.push_back(absl::StrCat(kind, " ", tensor.storage_offset(), " to ",
                                   tensor.storage_offset() + tensor.numel(), " over ", group[0], ",",
                                   group[1]));
    return std::make_unique<DonePending>();
  }
};

// Stages 0 and 1 of rank 2, of three layers each.
class GradientReductionsTest : public ::testing::Test {
 protected:
  GradientReductionsTest() {
    program_.rank = 2;
    program_.groups = {{0, 2}, {1, 2}};
    Shard({});
  }

  void Shard(const Sharding& sharding) {
    optimizer_ =
        *AdamW::Create(TrainingConfig(), {&stages_[0].flat_parameters()}, {.of_tensor_rank = sharding});
    parts_ = {.stages = {{0, &stages_[0]}, {1, &stages_[1]}},
              .optimizer = optimizer_.get(),
              .communicator = &communicator_};
  }

  uint32_t Add(Op op, uint32_t stage) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.id = static_cast<uint32_t>(program_.instructions.size() - 1);
    instruction.op = op;
    instruction.stage = stage;
    instruction.group = stage;
    return instruction.id;
  }

  const Instruction& At(uint32_t id) const { return program_.instructions[id]; }

  Program program_;
  BucketStage stages_[2] = {BucketStage(3), BucketStage(3)};
  StartRecorder communicator_;
  std::unique_ptr<AdamW> optimizer_;
  ExecutorParts parts_;
};

TEST_F(GradientReductionsTest, TheLastPassLetsBucketsGoAndTheReductionWhatIsLeft) {
  const uint32_t first = Add(Op::kBackward, 0);
  const uint32_t last = Add(Op::kBackward, 0);
  const uint32_t reduce = Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  EXPECT_FALSE(reductions.During(At(first))) << "more is added to every gradient";
  const GradientsReady ready = reductions.During(At(last));
  ASSERT_TRUE(ready);
  ready(stages_[0].Begin(2));
  EXPECT_THAT(communicator_.started, ElementsAre("all-reduce 32 to 48 over 0,2"));
  ready(stages_[0].Begin(1));
  EXPECT_THAT(communicator_.started,
              ElementsAre("all-reduce 32 to 48 over 0,2", "all-reduce 16 to 32 over 0,2"));
  communicator_.started.clear();
  const auto pending = reductions.Start(At(reduce));
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_TRUE((*pending)->Wait().ok());
  EXPECT_THAT(communicator_.started,
              ElementsAre("all-reduce 0 to 16 over 0,2", "all-reduce 48 to 55 over 0,2"))
      << "what stages share comes last";
}

TEST_F(GradientReductionsTest, WhatIsStartedIsTheSameWhereNothingWasLetGo) {
  const uint32_t pass = Add(Op::kBackward, 0);
  const uint32_t reduce = Add(Op::kReduceGradients, 0);
  ASSERT_TRUE(GradientReductions(parts_, program_).Start(At(reduce)).ok());
  const std::vector<std::string> at_once = std::exchange(communicator_.started, {});
  GradientReductions reductions(parts_, program_);
  const GradientsReady ready = reductions.During(At(pass));
  for (const size_t layer : {2, 1, 0}) ready(stages_[0].Begin(layer));
  EXPECT_EQ(communicator_.started.size(), 3U);
  ASSERT_TRUE(reductions.Start(At(reduce)).ok());
  EXPECT_EQ(communicator_.started, at_once);
}

TEST_F(GradientReductionsTest, ABucketOfSeveralLayersGoesWithItsLowestOne) {
  const uint32_t pass = Add(Op::kBackward, 0);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  const GradientsReady ready = reductions.During(At(pass));
  ready(stages_[0].Begin(1) + 8);
  EXPECT_THAT(communicator_.started, ElementsAre("all-reduce 32 to 48 over 0,2"));
}

TEST_F(GradientReductionsTest, OfASplitPassTheWeightsAreLast) {
  const uint32_t input = Add(Op::kBackwardInput, 0);
  const uint32_t weight = Add(Op::kBackwardWeight, 0);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  EXPECT_FALSE(reductions.During(At(input)));
  EXPECT_TRUE(reductions.During(At(weight)));
}

// Replicas run their passes in other orders, and reduce in the same one.
TEST_F(GradientReductionsTest, NothingGoesBeforeTheReductionOfAnotherStage) {
  const uint32_t lower = Add(Op::kBackward, 0);
  const uint32_t upper = Add(Op::kBackward, 1);
  Add(Op::kReduceGradients, 1);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  EXPECT_FALSE(reductions.During(At(lower)));
  EXPECT_TRUE(reductions.During(At(upper)));
}

TEST_F(GradientReductionsTest, EachStageIsReducedOverItsGroup) {
  const uint32_t upper = Add(Op::kBackward, 1);
  const uint32_t reduce_upper = Add(Op::kReduceGradients, 1);
  const uint32_t lower = Add(Op::kBackward, 0);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  EXPECT_EQ(reductions.groups(), (std::map<uint32_t, uint32_t>{{0, 0}, {1, 1}}));
  reductions.During(At(upper))(stages_[1].Begin(2));
  ASSERT_TRUE(reductions.Start(At(reduce_upper)).ok());
  communicator_.started.clear();
  reductions.During(At(lower))(stages_[0].Begin(2));
  EXPECT_THAT(communicator_.started, ElementsAre("all-reduce 32 to 48 over 0,2"));
}

TEST_F(GradientReductionsTest, ADividedStateIsScattered) {
  Shard({.count = 2, .own = 1, .divided = true});
  const uint32_t pass = Add(Op::kBackward, 0);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  reductions.During(At(pass))(stages_[0].Begin(2));
  EXPECT_THAT(communicator_.started, ElementsAre("reduce-scatter 32 to 48 over 0,2"));
}

TEST_F(GradientReductionsTest, ADividedStateOfAnotherGroupIsRefusedBeforeAnythingIsStarted) {
  Shard({.count = 2, .own = 0, .divided = true});
  const uint32_t pass = Add(Op::kBackward, 0);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  reductions.During(At(pass))(stages_[0].Begin(2));
  EXPECT_THAT(std::string(reductions.status().message()), HasSubstr("over ranks 0, 2"));
  EXPECT_THAT(communicator_.started, IsEmpty());
}

TEST_F(GradientReductionsTest, AFailureInsideThePassIsKeptAndNothingMoreIsStarted) {
  const uint32_t pass = Add(Op::kBackward, 0);
  Add(Op::kReduceGradients, 0);
  GradientReductions reductions(parts_, program_);
  const GradientsReady ready = reductions.During(At(pass));
  communicator_.status = absl::UnavailableError("rank 0 is gone");
  ready(stages_[0].Begin(2));
  communicator_.status = absl::OkStatus();
  ready(stages_[0].Begin(1));
  EXPECT_EQ(reductions.status().message(), "rank 0 is gone");
  EXPECT_THAT(communicator_.started, IsEmpty());
}

}  // namespace
}  // namespace penstock::worker
