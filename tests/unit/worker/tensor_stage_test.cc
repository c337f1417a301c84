// Stages that tensor ranks divide, a thread each, against the stages of one rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/comm/shard.h"
#include "worker/model/attention_shape.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/transformer_stage.h"
#include "worker/model/whole_gradients.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kDividedSeed = 13;
constexpr double kTokensOfLoss = 31;

// What one rank has of a stage after a micro-batch.
struct StageOutcome {
  int64_t end_layer = 0;
  // Not of the last stage, and not of the first.
  at::Tensor output;
  at::Tensor input_gradient;
  // After SumWholeGradients. Their values are gone.
  std::vector<NamedParameter> parameters;
};

struct Outcome {
  double loss = 0;
  std::vector<StageOutcome> stages;
};

struct RunOptions {
  std::vector<uint32_t> layers = {1, 3};
  LayerRecompute recompute = {};
  bool split_backward = false;
};

class OneRank {
 public:
  OneRank(const ModelConfig& config, RunOptions options, StageGroup& group)
      : config_(config), options_(std::move(options)), group_(group) {
    for (uint32_t i = 0; i < options_.layers.size(); ++i) {
      stages_.push_back(
          *MakeTransformerStage(config, StageRangeOf(options_.layers, i), kDividedSeed, at::kCPU, group));
      StageOutcome& outcome = outcome_.stages.emplace_back();
      outcome.end_layer = StageRangeOf(options_.layers, i).first_layer + options_.layers[i];
    }
  }

  Outcome Run(const MicroBatch& shape, const Tokens& ids) {
    at::Tensor activation;
    for (uint32_t i = 0; i < stages_.size(); ++i) {
      const TokenNeeds needs = TokenNeedsOf(config_, StageRangeOf(options_.layers, i));
      const TokenBatch tokens = *MakeTokenBatch(shape, ids, config_, needs, at::kCPU, group_.place());
      const auto layers = static_cast<int32_t>(options_.layers[i]);
      LayerRecompute recompute = {.full = std::min(options_.recompute.full, layers)};
      recompute.selective = std::min(options_.recompute.selective, layers - recompute.full);
      auto forward = stages_[i]->Forward(shape, tokens, activation, recompute, kTokensOfLoss, {});
      if (!forward.ok()) {
        ADD_FAILURE() << forward.status();
        return {};
      }
      activation = std::exchange(forward->output, at::Tensor());
      if (i + 1 < stages_.size()) outcome_.stages[i].output = activation.clone();
      forwards_.push_back(*std::move(forward));
    }
    outcome_.loss = activation.item<double>();
    Backward();
    for (size_t i = 0; i < stages_.size(); ++i) Reduce(*stages_[i], outcome_.stages[i]);
    EXPECT_TRUE(group_.status().ok()) << group_.status();
    return std::move(outcome_);
  }

 private:
  void Backward() {
    at::Tensor gradient;
    for (size_t i = stages_.size(); i-- > 0;) {
      if (options_.split_backward) {
        auto split = stages_[i]->BackwardInput(std::move(forwards_[i]), gradient, {});
        ASSERT_TRUE(split.ok()) << split.status();
        gradient = split->input_gradient;
        ASSERT_TRUE(stages_[i]->BackwardWeight(std::move(split->put_aside), {}).ok());
      } else {
        const auto backward = stages_[i]->Backward(std::move(forwards_[i]), gradient, {}, {});
        ASSERT_TRUE(backward.ok()) << backward.status();
        gradient = *backward;
      }
      if (i > 0) outcome_.stages[i].input_gradient = gradient.clone();
    }
  }

  void Reduce(const Stage& stage, StageOutcome& outcome) {
    for (const FlatSpan& span : stage.flat_parameters().spans)
      SumWholeGradients(stage.flat_parameters(), span, group_);
    for (NamedParameter parameter : stage.parameters()) {
      parameter.value.reset();
      parameter.gradient = parameter.gradient.clone();
      outcome.parameters.push_back(std::move(parameter));
    }
  }

  const ModelConfig config_;
  const RunOptions options_;
  StageGroup& group_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<StageForward> forwards_;
  Outcome outcome_;
};

// By rank of the group.
std::vector<Outcome> RunDivided(const ModelConfig& config, const GroupPlace& ranks, const MicroBatch& shape,
                                const Tokens& ids, const RunOptions& options) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks.ranks()));
  RunStageGroup(ranks, [&](ThreadStageGroup& group) {
    const GroupPlace place = group.place();
    outcomes[static_cast<size_t>(place.context * place.tensors + place.tensor)] =
        OneRank(config, options, group).Run(shape, ids);
  });
  return outcomes;
}

// A tensor rank's rows of what crosses the boundary before `layer`, in one dimension.
at::Tensor OwnPart(const ModelConfig& config, const MicroBatch& shape, int64_t layer, const at::Tensor& whole,
                   const GroupPlace& place) {
  const at::Tensor rows = whole.reshape({-1, config.hidden});
  const auto own = [&](const at::Tensor& stream) {
    const Shard shard = ShardOf(stream.size(0), place.tensor, place.tensors);
    return stream.narrow(0, shard.begin, shard.size()).flatten();
  };
  if (!CarriesBothStreams(config, layer)) return own(rows);
  const int64_t source = SourceTokens(shape);
  return at::cat({own(rows.narrow(0, 0, source)), own(rows.narrow(0, source, rows.size(0) - source))});
}

double LargestOf(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

double LargestGradient(const Outcome& whole) {
  double largest = 0;
  for (const StageOutcome& stage : whole.stages)
    for (const NamedParameter& parameter : stage.parameters)
      largest = std::max(largest, LargestOf(parameter.gradient));
  return largest;
}

void ExpectSlice(const at::Tensor& own, const at::Tensor& expected, double size, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(own.numel(), expected.numel()) << what;
  EXPECT_LE(LargestOf(own.flatten() - expected.flatten()), tolerance * size) << what;
}

// Sums over the context ranks of what each tensor rank has, against the slices of the whole.
void ExpectGradients(const std::vector<Outcome>& outcomes, const GroupPlace& ranks, const Outcome& whole,
                     double tolerance) {
  const double largest = LargestGradient(whole);
  for (size_t stage = 0; stage < whole.stages.size(); ++stage) {
    for (size_t i = 0; i < whole.stages[stage].parameters.size(); ++i) {
      const NamedParameter& expected = whole.stages[stage].parameters[i];
      // Some are but rounding: a bias of keys has no part in a softmax.
      const double size = std::max(LargestOf(expected.gradient), 1e-3 * largest);
      for (int tensor = 0; tensor < ranks.tensors; ++tensor) {
        at::Tensor sum;
        for (int context = 0; context < ranks.contexts; ++context) {
          const Outcome& own = outcomes[static_cast<size_t>(context * ranks.tensors + tensor)];
          const at::Tensor& part = own.stages[stage].parameters[i].gradient;
          sum = sum.defined() ? sum + part : part;
        }
        const NamedParameter& parameter = outcomes[static_cast<size_t>(tensor)].stages[stage].parameters[i];
        EXPECT_EQ(parameter.name, expected.name);
        ExpectSlice(sum, SliceOfWhole(parameter.part, expected.gradient), size, tolerance,
                    parameter.name + " of tensor rank " + std::to_string(tensor));
      }
    }
  }
}

void ExpectBoundaries(const ModelConfig& config, const MicroBatch& shape,
                      const std::vector<Outcome>& outcomes, const Outcome& whole, double tolerance) {
  const auto tensors = static_cast<int>(outcomes.size());
  for (size_t stage = 0; stage + 1 < whole.stages.size(); ++stage) {
    const int64_t layer = whole.stages[stage].end_layer;
    const at::Tensor& output = whole.stages[stage].output;
    const at::Tensor& gradient = whole.stages[stage + 1].input_gradient;
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const GroupPlace place = {.tensor = tensor, .tensors = tensors};
      const Outcome& own = outcomes[static_cast<size_t>(tensor)];
      EXPECT_EQ(own.stages[stage].output.sizes().vec(), BoundaryShape(shape, config, layer, place));
      ExpectSlice(own.stages[stage].output, OwnPart(config, shape, layer, output, place), LargestOf(output),
                  tolerance, "output");
      ExpectSlice(own.stages[stage + 1].input_gradient, OwnPart(config, shape, layer, gradient, place),
                  LargestOf(gradient), tolerance, "gradient of the input");
    }
  }
}

double LossOf(const std::vector<Outcome>& outcomes) {
  double loss = 0;
  for (const Outcome& outcome : outcomes) loss += outcome.loss;
  return loss;
}

// What several ranks have is the same on all of them.
void ExpectSharedBits(const std::vector<Outcome>& outcomes) {
  for (size_t stage = 0; stage < outcomes.front().stages.size(); ++stage) {
    for (const Outcome& outcome : outcomes) {
      for (size_t i = 0; i < outcome.stages[stage].parameters.size(); ++i) {
        const NamedParameter& parameter = outcome.stages[stage].parameters[i];
        int64_t begin = 0;
        for (const OwnBlock& own : parameter.part.blocks) {
          const NamedParameter& first =
              outcomes[static_cast<size_t>(own.first_holder)].stages[stage].parameters[i];
          const auto block = [&](const NamedParameter& of) {
            return of.gradient.flatten().narrow(0, begin, own.block.elements());
          };
          EXPECT_TRUE(block(parameter).equal(block(first))) << parameter.name;
          begin += own.block.elements();
        }
      }
    }
  }
}

bool SameGradientBits(const Outcome& left, const Outcome& right) {
  bool same = left.loss == right.loss;
  for (size_t stage = 0; stage < left.stages.size(); ++stage) {
    for (size_t i = 0; i < left.stages[stage].parameters.size(); ++i) {
      same =
          same && left.stages[stage].parameters[i].gradient.equal(right.stages[stage].parameters[i].gradient);
    }
  }
  return same;
}

const std::vector<TestSample>& Samples() {
  static const std::vector<TestSample> samples = {{3, 9}, {5, 4}, {2, 7}, {6, 3}};
  return samples;
}

class TensorRanks : public ::testing::TestWithParam<std::tuple<DividedModel, Layout>> {
 protected:
  static ModelConfig Config(DataType type) { return std::get<0>(GetParam()).config(type); }
  static MicroBatch Shape(const std::vector<TestSample>& samples) {
    return MakeMicroBatch(Config(DataType::kFloat64), samples, std::get<1>(GetParam()));
  }
};

std::string NameOfCase(const ::testing::TestParamInfo<std::tuple<DividedModel, Layout>>& info) {
  const char* const layouts[] = {"Padded", "Packed", "Concatenated"};
  return std::string(std::get<0>(info.param).name) + layouts[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Models, TensorRanks,
                         ::testing::Combine(::testing::ValuesIn(DividedModels()),
                                            ::testing::Values(Layout::kPadded, Layout::kPacked,
                                                              Layout::kConcatenated)),
                         NameOfCase);

TEST_P(TensorRanks, HaveTheSlicesOfTheUndividedStage) {
  const ModelConfig config = Config(DataType::kFloat64);
  // The second leaves the first tensor ranks without tokens between layers.
  for (const std::vector<TestSample>& samples : {Samples(), std::vector<TestSample>{{1, 2}}}) {
    const MicroBatch shape = Shape(samples);
    const Tokens ids = MakeTokens(samples, config.vocab);
    for (const std::vector<uint32_t>& layers : {std::vector<uint32_t>{4}, {1, 3}, {3, 1}, {0, 4}}) {
      const RunOptions options = {.layers = layers};
      const Outcome whole = OneRank(config, options, SoleRank()).Run(shape, ids);
      for (const int tensors : {2, 4}) {
        const GroupPlace ranks = {.tensors = tensors};
        const std::vector<Outcome> outcomes = RunDivided(config, ranks, shape, ids, options);
        EXPECT_NEAR(LossOf(outcomes), whole.loss, 1e-12 * whole.loss);
        for (size_t i = 1; i < outcomes.size(); ++i) EXPECT_EQ(outcomes[i].loss, 0);
        ExpectBoundaries(config, shape, outcomes, whole, 1e-12);
        ExpectGradients(outcomes, ranks, whole, 1e-12);
        ExpectSharedBits(outcomes);
      }
    }
  }
}

TEST_P(TensorRanks, RecomputeAndASplitBackwardPassGiveTheSameBits) {
  for (const DataType type : {DataType::kFloat64, DataType::kBFloat16}) {
    const ModelConfig config = Config(type);
    const Tokens ids = MakeTokens(Samples(), config.vocab);
    const GroupPlace ranks = {.tensors = 4};
    const std::vector<Outcome> kept = RunDivided(config, ranks, Shape(Samples()), ids, {});
    const std::pair<LayerRecompute, bool> ways[] = {
        {{}, true}, {{.full = 3}, false}, {{.selective = 3}, true}, {{.selective = 1, .full = 1}, true}};
    for (const auto& [recompute, split] : ways) {
      const std::vector<Outcome> again =
          RunDivided(config, ranks, Shape(Samples()), ids, {.recompute = recompute, .split_backward = split});
      for (size_t rank = 0; rank < kept.size(); ++rank)
        EXPECT_TRUE(SameGradientBits(again[rank], kept[rank])) << recompute.full << " full, split " << split;
    }
  }
}

TEST_P(TensorRanks, AreWithinRoundingOfTheUndividedStage) {
  const ModelConfig exact = Config(DataType::kFloat64);
  const Tokens ids = MakeTokens(Samples(), exact.vocab);
  const Outcome whole = OneRank(exact, {}, SoleRank()).Run(Shape(Samples()), ids);
  const GroupPlace ranks = {.tensors = 4};
  ExpectGradients(RunDivided(Config(DataType::kFloat32), ranks, Shape(Samples()), ids, {}), ranks, whole,
                  1e-4);
  const std::vector<Outcome> narrow =
      RunDivided(Config(DataType::kBFloat16), ranks, Shape(Samples()), ids, {});
  EXPECT_NEAR(LossOf(narrow) / whole.loss, 1, 0.02);
}

// Tensor and context ranks at once: rows of spans of one and two context ranks.
class TensorAndContextRanks : public ::testing::TestWithParam<std::tuple<DividedModel, Layout>> {};
INSTANTIATE_TEST_SUITE_P(Models, TensorAndContextRanks,
                         ::testing::Combine(::testing::Values(DividedModels()[0], DividedModels()[2]),
                                            ::testing::Values(Layout::kPadded, Layout::kPacked)),
                         NameOfCase);

TEST_P(TensorAndContextRanks, AddUpToTheUndividedStage) {
  const ModelConfig config = std::get<0>(GetParam()).config(DataType::kFloat64);
  const Tokens ids = MakeTokens(Samples(), config.vocab);
  MicroBatch shape = MakeMicroBatch(config, Samples(), std::get<1>(GetParam()));
  const Outcome whole = OneRank(config, {}, SoleRank()).Run(shape, ids);
  shape.spans = {{0, 2}, {1, 1}, {0, 2}, {0, 1}};
  const GroupPlace ranks = {.contexts = 2, .tensors = 4};
  for (const LayerRecompute recompute : {LayerRecompute{}, LayerRecompute{.full = 3}}) {
    const std::vector<Outcome> outcomes = RunDivided(config, ranks, shape, ids, {.recompute = recompute});
    EXPECT_NEAR(LossOf(outcomes), whole.loss, 1e-12 * whole.loss);
    ExpectGradients(outcomes, ranks, whole, 1e-12);
  }
}

// What a stage of the middle exchanges in its passes: counts and elements of all its rows (T - 1 of T of them
// go out).
struct Exchanged {
  ThreadStageGroup::Counts forward;
  ThreadStageGroup::Counts backward;
};

Exchanged CountExchanges(const ModelConfig& config, int64_t layer, const MicroBatch& shape,
                         const LayerRecompute& recompute) {
  Exchanged exchanged;
  RunStageGroup({.tensors = 2}, [&](ThreadStageGroup& group) {
    const GroupPlace place = group.place();
    const auto stage = *MakeTransformerStage(config, {layer, 1, false, false}, kDividedSeed, at::kCPU, group);
    const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, TokenNeeds(), at::kCPU, place);
    auto forward = stage->Forward(
        shape, tokens, at::ones(BoundaryShape(shape, config, layer, place), at::kDouble), recompute, 1, {});
    ASSERT_TRUE(forward.ok()) << forward.status();
    const ThreadStageGroup::Counts counted = group.counts();
    group.ResetCounts();
    const auto split = stage->BackwardInput(
        *std::move(forward), at::ones(BoundaryShape(shape, config, layer + 1, place), at::kDouble), {});
    ASSERT_TRUE(split.ok()) << split.status();
    const ThreadStageGroup::Counts backward = group.counts();
    group.ResetCounts();
    ASSERT_TRUE(stage->BackwardWeight(split->put_aside, {}).ok());
    EXPECT_EQ(group.counts().gathers + group.counts().row_sums, 0) << "all is exchanged before";
    if (place.tensor == 0) exchanged = {counted, backward};
  });
  return exchanged;
}

void ExpectHalves(const ThreadStageGroup::Counts& counts, int64_t gathers, int64_t row_sums,
                  int64_t elements) {
  EXPECT_EQ(counts.gathers, gathers);
  EXPECT_EQ(counts.row_sums, row_sums);
  EXPECT_EQ(counts.gathered_elements + counts.row_summed_elements, elements);
  EXPECT_EQ(counts.sums + counts.maxima + counts.exchanges, 0);
}

TEST(TensorExchanges, OfADecoderOnlyLayerAreFourForwardAndSixOrTenBackward) {
  // One that all tokens share is gathered and summed with the other experts.
  ModelConfig shared_expert = WithFourHeads(SmallExpertsConfig(DataType::kFloat64), 2);
  shared_expert.shared_expert_ffn = 8;
  for (const ModelConfig& config : {DividedModels()[0].config(DataType::kFloat64),
                                    DividedModels()[2].config(DataType::kFloat64), shared_expert}) {
    const MicroBatch shape = MakeMicroBatch(config, Samples(), Layout::kPacked);
    const int64_t half = TargetTokens(shape) * config.hidden;
    const Exchanged kept = CountExchanges(config, 1, shape, {});
    ExpectHalves(kept.forward, 2, 2, 4 * half);
    ExpectHalves(kept.backward, 4, 2, 6 * half);
    ExpectHalves(CountExchanges(config, 1, shape, {.selective = 1}).backward, 4, 2, 6 * half);
    const Exchanged again = CountExchanges(config, 1, shape, {.full = 1});
    ExpectHalves(again.forward, 2, 2, 4 * half);
    ExpectHalves(again.backward, 6, 4, 10 * half);
  }
}

TEST(TensorExchanges, OfADecoderLayerAreAlsoOfTheSource) {
  const ModelConfig config = WithFourHeads(SmallT5Config(DataType::kFloat64));
  const MicroBatch shape = MakeMicroBatch(config, Samples(), Layout::kPacked);
  const int64_t source = SourceTokens(shape) * config.hidden;
  const int64_t target = TargetTokens(shape) * config.hidden;
  const Exchanged kept = CountExchanges(config, 3, shape, {});
  ExpectHalves(kept.forward, 4, 3, 6 * target + source);
  ExpectHalves(kept.backward, 7, 4, 9 * target + 2 * source);
  ExpectHalves(CountExchanges(config, 3, shape, {.full = 1}).backward, 11, 7, 15 * target + 3 * source);
}

TEST(TensorRanksOfAModel, AreRefusedWithTheNearestDegreesThatFit) {
  const auto refusal = [](const ModelConfig& config, int tensors) {
    ThreadStageGroup group({.tensor = 0, .tensors = tensors}, nullptr, nullptr, nullptr);
    return std::string(
        MakeTransformerStage(config, {0, 1, false, false}, kDividedSeed, at::kCPU, group).status().message());
  };
  ModelConfig config = WithFourHeads(SmallConfig(DataType::kFloat64));
  EXPECT_EQ(refusal(config, 3),
            "model.heads: 4 cannot be divided over 3 tensor ranks; the nearest degrees that can divide the "
            "model: 2 "
            "and 4");
  EXPECT_EQ(refusal(config, 8),
            "model.heads: 4 cannot be divided over 8 tensor ranks; the nearest degrees that can divide the "
            "model: 4");
  config.ffn = 30;
  EXPECT_EQ(refusal(config, 4),
            "model.ffn: 30 cannot be divided over 4 tensor ranks; the nearest degrees that can divide the "
            "model: 2");
  config = SmallLlamaConfig(DataType::kFloat64);
  config.heads = config.attention_inner = 12;
  config.key_value_heads = 4;
  config.position = Position::kLearned;
  config.ffn = 48;
  EXPECT_EQ(refusal(config, 6),
            "model.key_value_heads: 4 cannot be divided over 6 tensor ranks; the nearest degrees that can "
            "divide the "
            "model: 4 and 12");
  config = WithFourHeads(SmallSharedExpertConfig(DataType::kFloat64));
  config.shared_expert_ffn = 6;
  EXPECT_EQ(refusal(config, 4),
            "model.shared_expert_ffn: 6 cannot be divided over 4 tensor ranks; the nearest degrees that can "
            "divide the model: 2");
  config = WithFourHeads(SmallConfig(DataType::kFloat64));
  config.vocab = 3;
  EXPECT_EQ(refusal(config, 4),
            "model.vocab: 3 cannot be divided over 4 tensor ranks; the nearest degrees that can divide the "
            "model: 2");
}

TEST(TensorRanksOfAModel, FailTogetherWhereOneDoesNotCome) {
  const ModelConfig config = WithFourHeads(SmallConfig(DataType::kFloat64));
  const MicroBatch shape = MakeMicroBatch(config, Samples(), Layout::kPacked);
  RunStageGroup(
      {.tensors = 2},
      [&](ThreadStageGroup& group) {
        if (group.place().tensor == 1) return;
        const auto stage = *MakeTransformerStage(config, {1, 1, false, false}, kDividedSeed, at::kCPU, group);
        const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, TokenNeeds(), at::kCPU, group.place());
        const auto forward = stage->Forward(
            shape, tokens, at::ones(BoundaryShape(shape, config, 1, group.place()), at::kDouble), {}, 1, {});
        EXPECT_EQ(forward.status().code(), absl::StatusCode::kUnavailable) << forward.status();
      },
      std::chrono::seconds(0));
}

}  // namespace
}  // namespace penstock::worker
