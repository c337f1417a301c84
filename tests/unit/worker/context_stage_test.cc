// Stages whose samples are divided over context ranks, a thread each, against the stage of one rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/comm/shard.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/stage_checks.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kRankSeed = 11;

struct Placed {
  int contexts = 1;
  std::vector<TestSample> samples;
  // Of concatenated rows, which hold two samples each, every second one is left out.
  std::vector<Span> spans;
};

const std::vector<Placed>& PlacedSamples() {
  static const std::vector<Placed> placed = {
      // A sample over both ranks, odd and as short as it may be, and whole ones.
      {2, {{3, 14}, {0, 5}, {1, 3}, {2, 6}, {0, 4}}, {{0, 2}, {0, 1}, {0, 2}, {1, 1}, {0, 2}}},
      // Spans of 1, 2 and 4 in one micro-batch.
      {4,
       {{4, 27}, {0, 9}, {3, 8}, {0, 8}, {2, 3}, {0, 1}, {5, 8}},
       {{0, 4}, {1, 1}, {2, 2}, {0, 4}, {0, 2}, {3, 1}, {0, 4}}},
      // Rank 0 has but whole samples, ranks 2 and 3 nothing.
      {4, {{0, 9}, {2, 8}}, {{0, 1}, {1, 1}}},
      {4, {{0, 9}, {2, 8}}, {{0, 2}, {0, 1}}},
      // Padding, which a rectangle divides too, lies on ranks that have no loss.
      {4, {{0, 28}, {0, 2}}, {{0, 4}, {0, 4}}},
  };
  return placed;
}

MicroBatch ShapeOf(const ModelConfig& config, const Placed& placed, Layout layout) {
  MicroBatch shape = MakeMicroBatch(config, placed.samples, layout);
  const std::vector<int64_t> lengths = RowLengths(shape, Side::kTarget);
  for (size_t row = 0; row < lengths.size(); ++row) {
    const Span span = placed.spans[layout == Layout::kConcatenated ? 2 * row : row];
    const bool divided = lengths[row] >= 2 * int64_t{span.ranks};
    shape.spans.push_back(divided ? span : Span{span.first, 1});
  }
  return shape;
}

void AddToWhole(const NamedParameter& parameter, const at::Tensor& whole) {
  int64_t begin = 0;
  for (const OwnBlock& own : parameter.part.blocks) {
    const at::Tensor block = BlockOfWhole(own.block, whole);
    block.add_(parameter.gradient.flatten().narrow(0, begin, block.numel()).view(block.sizes()));
    begin += block.numel();
  }
}

// The passes of a pipeline on one rank of each stage group, with what its stages give each other.
class RankPipeline {
 public:
  RankPipeline(const ModelConfig& config, const std::vector<uint32_t>& layers, StageGroup& group)
      : config_(config), layers_(layers), group_(group) {
    for (uint32_t i = 0; i < layers.size(); ++i) {
      stages_.push_back(*MakeTransformerStage(config, StageRangeOf(layers, i), kRankSeed, at::kCPU, group));
    }
  }

  void Run(const MicroBatch& shape, const Tokens& ids, const TestPipeline::Options& options,
           double loss_tokens) {
    std::vector<StageForward> forwards;
    at::Tensor activation;
    for (uint32_t i = 0; i < stages_.size(); ++i) {
      const TokenNeeds needs = TokenNeedsOf(config_, StageRangeOf(layers_, i));
      const auto tokens = MakeTokenBatch(shape, ids, config_, needs, at::kCPU, group_.place());
      ASSERT_TRUE(tokens.ok()) << tokens.status();
      const auto layers = static_cast<int32_t>(layers_[i]);
      LayerRecompute recompute = {.full = std::min(options.recompute.full, layers)};
      recompute.selective = std::min(options.recompute.selective, layers - recompute.full);
      auto forward = stages_[i]->Forward(shape, *tokens, activation, recompute, loss_tokens);
      ASSERT_TRUE(forward.ok()) << forward.status();
      activation = std::exchange(forward->output, at::Tensor());
      if (i + 1 < stages_.size()) boundary_ = activation;
      forwards.push_back(*std::move(forward));
    }
    loss_ += activation.item<double>();
    Backward(std::move(forwards), options);
    for (const auto& stage : stages_) {
      const RouterLosses losses = stage->TakeRouterLosses();
      router_losses_.balance += losses.balance;
      router_losses_.z += losses.z;
    }
  }

  // With whole parameters, zero where other tensor ranks have them.
  Result result() const {
    Result result{loss_, {}, router_losses_.balance, router_losses_.z};
    for (const auto& stage : stages_) {
      for (const NamedParameter& parameter : stage->parameters()) {
        at::Tensor& sum = result.gradients[parameter.name];
        if (!sum.defined()) sum = at::zeros(parameter.part.whole_shape, parameter.gradient.options());
        AddToWhole(parameter, sum);
      }
    }
    return result;
  }

  // What went to the last stage.
  const at::Tensor& boundary() const { return boundary_; }

  double TakeExpertLoad() { return stages_.front()->TakeExpertLoad(); }

  // All tokens go to the first experts.
  void BlindRouters() {
    for (const auto& stage : stages_) {
      for (const NamedParameter& parameter : stage->parameters()) {
        if (parameter.name.ends_with(".router.weight")) parameter.value.zero_();
      }
    }
  }

 private:
  void Backward(std::vector<StageForward> forwards, const TestPipeline::Options& options) {
    at::Tensor gradient;
    for (size_t i = stages_.size(); i-- > 0;) {
      if (!options.split_backward) {
        const auto backward = stages_[i]->Backward(std::move(forwards[i]), gradient, options.beside, {});
        ASSERT_TRUE(backward.ok()) << backward.status();
        gradient = *backward;
        continue;
      }
      auto split = stages_[i]->BackwardInput(std::move(forwards[i]), gradient, options.beside);
      ASSERT_TRUE(split.ok()) << split.status();
      gradient = split->input_gradient;
      ASSERT_TRUE(stages_[i]->BackwardWeight(std::move(split->put_aside), {}).ok());
    }
  }

  const ModelConfig config_;
  const std::vector<uint32_t> layers_;
  StageGroup& group_;
  std::vector<std::unique_ptr<Stage>> stages_;
  double loss_ = 0;
  RouterLosses router_losses_;
  at::Tensor boundary_;
};

// Of the undivided micro-batch.
struct Whole {
  Result result;
  at::Tensor boundary;
};

Whole RunWhole(const ModelConfig& config, const Placed& placed, Layout layout,
               const std::vector<uint32_t>& layers) {
  RankPipeline pipeline(config, layers, SoleRank());
  pipeline.Run(MakeMicroBatch(config, placed.samples, layout), MakeTokens(placed.samples, config.vocab), {},
               CountLossTokens(config, placed.samples));
  return {pipeline.result(), pipeline.boundary().reshape({-1, config.hidden})};
}

void Add(const Result& part, Result& sum) {
  sum.loss += part.loss;
  sum.router_balance_loss += part.router_balance_loss;
  sum.router_z_loss += part.router_z_loss;
  for (const auto& [name, gradient] : part.gradients) {
    at::Tensor& total = sum.gradients[name];
    total = total.defined() ? total + gradient : gradient;
  }
}

// Puts a rank's rows of the boundary in their places.
void PlaceRows(const at::Tensor& rows, const MicroBatch& shape, const GroupPlace& place,
               const at::Tensor& whole) {
  std::vector<int64_t> places;
  for (const TokenRun& run : RunsOf(shape, Side::kTarget, place.context)) {
    for (int64_t i = run.begin; i < run.begin + run.length; ++i) places.push_back(i);
  }
  const Shard own = ShardOf(static_cast<int64_t>(places.size()), place.tensor, place.tensors);
  ASSERT_EQ(rows.size(0), own.size());
  whole.index_copy_(0, at::tensor(places, at::kLong).narrow(0, own.begin, own.size()), rows);
}

// Sums over all ranks of the stage groups, and their rows of the boundary in their places.
Whole RunDivided(const ModelConfig& config, const Placed& placed, Layout layout,
                 const std::vector<uint32_t>& layers, const TestPipeline::Options& options = {},
                 int tensors = 1, int experts = 1) {
  const MicroBatch shape = ShapeOf(config, placed, layout);
  const GroupPlace ranks = {.contexts = placed.contexts, .tensors = tensors, .experts = experts};
  std::vector<Whole> parts(static_cast<size_t>(ranks.ranks()));
  const auto index = [&](const GroupPlace& place) {
    return static_cast<size_t>(place.context * place.tensors + place.tensor);
  };
  RunStageGroup(ranks, [&](ThreadStageGroup& group) {
    Tokens tokens = MakeTokens(placed.samples, config.vocab);
    const std::vector<bool> needed = SamplesOn(shape, group.place().context);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!needed[i]) tokens[i].clear();
    }
    RankPipeline pipeline(config, layers, group);
    pipeline.Run(shape, tokens, options, CountLossTokens(config, placed.samples));
    parts[index(group.place())] = {pipeline.result(), pipeline.boundary()};
  });
  Whole whole;
  if (config.architecture == Architecture::kGpt) {
    whole.boundary = at::zeros({TargetTokens(shape), config.hidden}, ToScalarType(config.dtype));
  }
  for (int context = 0; context < ranks.contexts; ++context) {
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const GroupPlace place = {context, ranks.contexts, tensor, tensors};
      Add(parts[index(place)].result, whole.result);
      if (whole.boundary.defined()) PlaceRows(parts[index(place)].boundary, shape, place, whole.boundary);
    }
  }
  return whole;
}

double Difference(const Whole& left, const Whole& right) {
  const at::Tensor other = right.boundary.to(at::kDouble);
  const double boundary =
      ((left.boundary.to(at::kDouble) - other).abs().max() / other.abs().max()).item<double>();
  return std::max(boundary, RelativeDifference(left.result, right.result));
}

enum class Kind { kGpt, kLlama, kExperts, kGemma, kOlmo, kSharedExpert };

class DividedStage : public ::testing::TestWithParam<std::tuple<Kind, Layout>> {
 protected:
  static ModelConfig Config(DataType type) {
    const Kind kind = std::get<0>(GetParam());
    if (kind == Kind::kExperts) return SmallExpertsConfig(type);
    if (kind == Kind::kGemma) return SmallGemmaConfig(type);
    if (kind == Kind::kOlmo) return SmallOlmoConfig(type);
    if (kind == Kind::kSharedExpert) return SmallSharedExpertConfig(type);
    return kind == Kind::kGpt ? SmallConfig(type) : SmallLlamaConfig(type);
  }
  static Layout layout() { return std::get<1>(GetParam()); }
};

std::string NameOfKind(const ::testing::TestParamInfo<std::tuple<Kind, Layout>>& info) {
  const char* const families[] = {"Gpt", "Llama", "Experts", "Gemma", "Olmo", "SharedExpert"};
  const char* const layouts[] = {"Padded", "Packed", "Concatenated"};
  return std::string(families[static_cast<size_t>(std::get<0>(info.param))]) +
         layouts[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Models, DividedStage,
                         ::testing::Combine(::testing::Values(Kind::kGpt, Kind::kLlama, Kind::kExperts,
                                                              Kind::kGemma, Kind::kOlmo, Kind::kSharedExpert),
                                            ::testing::Values(Layout::kPadded, Layout::kPacked,
                                                              Layout::kConcatenated)),
                         NameOfKind);

TEST_P(DividedStage, AddUpToTheUndividedStage) {
  for (const Placed& placed : PlacedSamples()) {
    const Whole whole = RunWhole(Config(DataType::kFloat64), placed, layout(), {2, 2});
    for (const std::vector<uint32_t>& layers : {std::vector<uint32_t>{2, 2}, {1, 3}, {0, 4}}) {
      const Whole divided = RunDivided(Config(DataType::kFloat64), placed, layout(), layers);
      if (layers[0] == 2) {
        EXPECT_LT(Difference(divided, whole), 1e-12);
      }
      EXPECT_LT(RelativeDifference(divided.result, whole.result), 1e-12);
    }
  }
}

TEST_P(DividedStage, RecomputeAndASplitBackwardPassGiveTheSameBits) {
  for (const DataType type : {DataType::kFloat64, DataType::kBFloat16}) {
    const Placed& placed = PlacedSamples()[1];
    const Whole kept = RunDivided(Config(type), placed, layout(), {1, 3});
    for (const LayerRecompute recompute : {LayerRecompute{.full = 3}, LayerRecompute{.selective = 3},
                                           LayerRecompute{.selective = 1, .full = 1}}) {
      for (const bool split : {false, true}) {
        const Whole again = RunDivided(Config(type), placed, layout(), {1, 3}, {recompute, split});
        EXPECT_TRUE(SameBits(again.result, kept.result)) << recompute.full << " full, split " << split;
      }
    }
  }
}

TEST_P(DividedStage, AreWithinRoundingOfTheUndividedStage) {
  for (const Placed& placed : PlacedSamples()) {
    const Whole exact = RunWhole(Config(DataType::kFloat64), placed, layout(), {2, 2});
    EXPECT_LT(Difference(RunDivided(Config(DataType::kFloat32), placed, layout(), {2, 2}), exact), 1e-4);
    const Whole narrow = RunDivided(Config(DataType::kBFloat16), placed, layout(), {2, 2});
    const Whole whole = RunWhole(Config(DataType::kBFloat16), placed, layout(), {2, 2});
    const auto error = [&](const Result& result) {
      double sum = 0;
      double norm = 0;
      for (const auto& [name, gradient] : exact.result.gradients) {
        sum += (result.gradients.at(name) - gradient).square().sum().item<double>();
        norm += gradient.square().sum().item<double>();
      }
      return std::sqrt(sum / norm);
    };
    EXPECT_NEAR(narrow.result.loss / exact.result.loss, 1, 0.01);
    // Rounding may send a token to another expert, which the losses of routers weigh, too.
    const double times = std::get<0>(GetParam()) == Kind::kSharedExpert ? 2 : 1.3;
    EXPECT_LT(error(narrow.result), times * error(whole.result));
  }
}

// Passes calls on, and counts what context ranks exchange.
class CountingGroup : public StageGroup {
 public:
  explicit CountingGroup(StageGroup* group) : group_(*group) {}

  GroupPlace place() const override { return group_.place(); }
  at::Tensor GatherRows(const at::Tensor& own, int64_t rows) override { return group_.GatherRows(own, rows); }
  at::Tensor SumRows(const at::Tensor& partial) override { return group_.SumRows(partial); }
  void SumOverTensorRanks(at::Tensor& values) override { group_.SumOverTensorRanks(values); }
  void MaxOverTensorRanks(at::Tensor& values) override { group_.MaxOverTensorRanks(values); }
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override {
    at::Tensor result = group_.ExchangeRows(rows, sent, received);
    ++exchanges;
    sent_bytes += static_cast<int64_t>(rows.nbytes());
    received_bytes += static_cast<int64_t>(result.nbytes());
    return result;
  }
  at::Tensor ExchangeExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                const std::vector<int64_t>& received, const Meanwhile& meanwhile) override {
    return group_.ExchangeExpertRows(rows, sent, received, meanwhile);
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override {
    return group_.ExchangeExpertCounts(counts);
  }
  absl::Status status() const override { return group_.status(); }

  int64_t exchanges = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;

 private:
  StageGroup& group_;
};

// Four on two context ranks, who then have the same heads of keys and values of the Llama two by two.
TEST(ContextRanks, OfSeveralTensorRanksAddUpToTheUndividedStage) {
  for (const DividedModel& model : DividedModels()) {
    const ModelConfig config = model.config(DataType::kFloat64);
    if (config.architecture == Architecture::kT5) continue;
    for (const Layout layout : {Layout::kPadded, Layout::kPacked, Layout::kConcatenated}) {
      for (const Placed& placed : PlacedSamples()) {
        const int tensors = placed.contexts == 2 ? 4 : 2;
        const Whole whole = RunWhole(config, placed, layout, {2, 2});
        for (const TestPipeline::Options& options :
             {TestPipeline::Options{}, {.recompute = {.selective = 1, .full = 1}, .split_backward = true}}) {
          EXPECT_LT(Difference(RunDivided(config, placed, layout, {2, 2}, options, tensors), whole), 1e-12)
              << model.name << " on " << placed.contexts << " context ranks";
        }
      }
    }
  }
}

// As the plan counts them: keys and values of the chunks that queries see, once forward; backward the same
// again, and as many gradients the other way.
TEST(ContextRanks, ExchangeThePlannedBytesAtEveryRecomputeLevel) {
  const ModelConfig config = SmallLlamaConfig(DataType::kFloat32);
  const Placed& placed = PlacedSamples()[1];
  const MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
  const int64_t row_bytes = 2 * config.key_value_heads * (config.attention_inner / config.heads) * 4;
  const auto chunk_bytes = [&](int from, int to) {
    int64_t tokens = 0;
    for (const RowChunk& chunk : ChunksSent(shape, from, to)) tokens += chunk.length;
    return tokens * row_bytes;
  };
  for (const LayerRecompute recompute :
       {LayerRecompute{}, LayerRecompute{.selective = 4}, LayerRecompute{.full = 4}}) {
    RunStageGroup({.contexts = placed.contexts}, [&](ThreadStageGroup& group) {
      int64_t sent = 0;
      int64_t received = 0;
      for (int other = 0; other < placed.contexts; ++other) {
        sent += chunk_bytes(group.place().context, other);
        received += chunk_bytes(other, group.place().context);
      }
      CountingGroup counted(&group);
      RankPipeline pipeline(config, {4}, counted);
      pipeline.Run(shape, MakeTokens(placed.samples, config.vocab), {.recompute = recompute}, 1);
      EXPECT_EQ(counted.exchanges, 3 * config.layers);
      EXPECT_EQ(counted.sent_bytes, config.layers * (2 * sent + received));
      EXPECT_EQ(counted.received_bytes, config.layers * (2 * received + sent));
    });
  }
}

TEST(ContextRanks, ExchangeNothingWhereNoSampleIsDivided) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  const Placed& placed = PlacedSamples()[2];
  const MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
  RunStageGroup({.contexts = placed.contexts}, [&](ThreadStageGroup& group) {
    RankPipeline pipeline(config, {4}, group);
    pipeline.Run(shape, MakeTokens(placed.samples, config.vocab), {.recompute = {.full = 2}}, 1);
    EXPECT_EQ(group.counts().exchanges, 0);
  });
}

// Each expert on one of the ranks that divide them, and rows of all tokens on their way there and back.
class ExpertRanks : public ::testing::TestWithParam<ModelConfig (*)(DataType)> {
 protected:
  static ModelConfig Config(DataType type) { return GetParam()(type); }
};

INSTANTIATE_TEST_SUITE_P(Models, ExpertRanks, ::testing::Values(SmallExpertsConfig, SmallSharedExpertConfig),
                         [](const auto& info) { return info.index == 0 ? "Experts" : "SharedExpert"; });

TEST_P(ExpertRanks, AddUpToTheUndividedStage) {
  const ModelConfig config = Config(DataType::kFloat64);
  for (const Placed& placed : PlacedSamples()) {
    const Whole whole = RunWhole(config, placed, Layout::kPacked, {2, 2});
    for (const int tensors : {1, 2}) {
      for (const int experts : {2, 4}) {
        if (placed.contexts * tensors % experts != 0) continue;
        for (const TestPipeline::Options& options :
             {TestPipeline::Options{}, {.recompute = {.selective = 1, .full = 1}, .split_backward = true}}) {
          const Whole divided =
              RunDivided(config, placed, Layout::kPacked, {2, 2}, options, tensors, experts);
          EXPECT_LT(Difference(divided, whole), 1e-12)
              << experts << " expert ranks of " << placed.contexts << " x " << tensors;
        }
      }
    }
  }
}

TEST_P(ExpertRanks, RecomputeAndASplitBackwardPassGiveTheSameBits) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const ModelConfig config = Config(type);
    const Placed& placed = PlacedSamples()[1];
    const auto run = [&](const TestPipeline::Options& options) {
      return RunDivided(config, placed, Layout::kPacked, {1, 3}, options, /*tensors=*/1, /*experts=*/4);
    };
    const Whole kept = run({});
    for (const LayerRecompute recompute : {LayerRecompute{}, {.full = 3}, {.selective = 2, .full = 1}}) {
      for (const bool split : {false, true}) {
        EXPECT_EQ(Difference(run({.recompute = recompute, .split_backward = split}), kept), 0)
            << recompute.full << " full, split " << split;
      }
    }
    const Whole exact = RunWhole(Config(DataType::kFloat64), placed, Layout::kPacked, {1, 3});
    EXPECT_NEAR(kept.result.loss / exact.result.loss, 1, type == DataType::kFloat32 ? 1e-5 : 0.02);
  }
}

TEST_P(ExpertRanks, ProductsBesideExchangesGiveTheSameBits) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const ModelConfig config = Config(type);
    const Placed& placed = PlacedSamples()[1];
    for (const int tensors : {1, 2}) {
      const auto run = [&](const TestPipeline::Options& options) {
        return RunDivided(config, placed, Layout::kPacked, {1, 3}, options, tensors, /*experts=*/2);
      };
      const Whole in_order = run({});
      for (const ProductsBeside& beside :
           {ProductsBeside{.products_on_return = 1}, ProductsBeside{.products_on_return = 6},
            ProductsBeside{.products_on_return = 1, .products_on_arrival = 3},
            ProductsBeside{.products_on_return = 2, .products_on_arrival = 4, .others_on_arrival = true}}) {
        for (const LayerRecompute recompute : {LayerRecompute{}, {.selective = 1, .full = 1}}) {
          for (const bool split : {false, true}) {
            EXPECT_EQ(Difference(run({recompute, split, beside}), in_order), 0)
                << beside.products_on_return << " on the way back, split " << split;
          }
        }
      }
    }
  }
}

TEST(RanksOfExperts, AreRefusedWhereTheyCannotDivideTheExperts) {
  struct Case {
    GroupPlace place;
    const char* reason;
  };
  for (const Case& refused :
       {Case{{.contexts = 8, .experts = 8}, "does not divide their number, 4"},
        Case{{.contexts = 4, .tensors = 4, .experts = 2}, "multiple of the tensor ranks, 4"},
        Case{{.contexts = 2, .experts = 4}, "does not divide the ranks of a stage group, 2"}}) {
    const absl::Status status = CheckExpertRanks(SmallExpertsConfig(DataType::kFloat32), refused.place);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(refused.reason));
  }
  EXPECT_THAT(
      std::string(CheckExpertRanks(SmallConfig(DataType::kFloat32), {.contexts = 2, .experts = 2}).message()),
      ::testing::HasSubstr("the model has none"));
}

TEST(RanksOfExperts, AreCorrectWhereAllTokensGoToOneRankAndToOthersNone) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat64);
  const Placed& placed = PlacedSamples()[1];
  const MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
  const double loss_tokens = CountLossTokens(config, placed.samples);
  const Tokens tokens = MakeTokens(placed.samples, config.vocab);
  RankPipeline whole(config, {4}, SoleRank());
  whole.BlindRouters();
  whole.Run(MakeMicroBatch(config, placed.samples, Layout::kPacked), tokens, {}, loss_tokens);
  std::vector<Result> parts(4);
  std::vector<double> loads(4);
  RunStageGroup({.contexts = 4, .experts = 4}, [&](ThreadStageGroup& group) {
    RankPipeline pipeline(config, {4}, group);
    pipeline.BlindRouters();
    pipeline.Run(shape, tokens, {}, loss_tokens);
    parts[static_cast<size_t>(group.place().context)] = pipeline.result();
    loads[static_cast<size_t>(group.place().context)] = pipeline.TakeExpertLoad();
  });
  // Two of four experts have all rows, and each of them twice its share.
  EXPECT_EQ(whole.TakeExpertLoad(), 2);
  EXPECT_EQ(std::ranges::count_if(loads, [](double load) { return load > 1; }), 2);
  EXPECT_EQ(std::ranges::count(loads, 0), 2);
  Result sum;
  for (const Result& part : parts) Add(part, sum);
  EXPECT_LT(RelativeDifference(sum, whole.result()), 1e-12);
}

// Rank 0 of two, whose peer goes after so many exchanges.
class LostGroup : public CountingGroup {
 public:
  explicit LostGroup(int64_t exchanges) : CountingGroup(&SoleRank()), last_(exchanges) {}

  GroupPlace place() const override { return {.contexts = 2}; }
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>&,
                          const std::vector<int64_t>& received) override {
    ++exchanges;
    return at::zeros({received[1], rows.size(1)}, rows.options());
  }
  absl::Status status() const override {
    return exchanges > last_ ? absl::UnavailableError("rank 1 is gone") : absl::OkStatus();
  }

 private:
  const int64_t last_;
};

TEST(ContextRanks, SayThatAnExchangeFailedAtTheEndOfThePass) {
  const ModelConfig config = SmallConfig(DataType::kFloat32);
  MicroBatch shape = MakeMicroBatch(config, {{0, 8}}, Layout::kPacked);
  shape.spans = {{0, 2}};
  for (const int calls : {0, 2, 3}) {
    LostGroup group(calls);
    const auto stage = *MakeTransformerStage(config, {1, 2, false, false}, kRankSeed, at::kCPU, group);
    const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, {}, at::kCPU, group.place());
    const at::Tensor activation = at::ones(BoundaryShape(shape, config, 1, group.place()));
    auto forward = stage->Forward(shape, tokens, activation, {}, 1);
    if (calls == 0) {
      EXPECT_EQ(forward.status().code(), absl::StatusCode::kUnavailable);
      continue;
    }
    ASSERT_TRUE(forward.ok()) << forward.status();
    const absl::Status backward = calls == 2 ? stage->Backward(*forward, activation, {}, {}).status()
                                             : stage->BackwardInput(*forward, activation, {}).status();
    EXPECT_EQ(backward.code(), absl::StatusCode::kUnavailable);
  }
}

// Spans of 1 alone: nothing is exchanged, and T5 runs on them as well.
TEST(ContextRanks, OfWholeSamplesAddUpForT5) {
  const ModelConfig config = SmallT5Config(DataType::kFloat64);
  const Placed placed = {
      4, {{3, 4}, {0, 9}, {5, 4}, {2, 1}, {1, 7}, {5, 4}}, {{0, 1}, {2, 1}, {2, 1}, {0, 1}, {1, 1}, {0, 1}}};
  for (const Layout layout : {Layout::kPadded, Layout::kPacked, Layout::kConcatenated}) {
    const Whole whole = RunWhole(config, placed, layout, {1, 1, 1, 1});
    const Whole divided = RunDivided(config, placed, layout, {1, 1, 1, 1});
    EXPECT_LT(RelativeDifference(divided.result, whole.result), 1e-12);
  }
}

}  // namespace
}  // namespace penstock::worker
