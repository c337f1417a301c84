// Stages whose samples are divided over context ranks, a thread each, against the stage of one rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/divided_stages.h"
#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/stage_checks.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

enum class Kind { kGpt, kLlama, kExperts, kGemma, kOlmo, kSharedExpert, kSomeExperts };

class DividedStage : public ::testing::TestWithParam<std::tuple<Kind, Layout>> {
 protected:
  static ModelConfig Config(DataType type) {
    const Kind kind = std::get<0>(GetParam());
    if (kind == Kind::kExperts) return SmallExpertsConfig(type);
    if (kind == Kind::kGemma) return SmallGemmaConfig(type);
    if (kind == Kind::kOlmo) return SmallOlmoConfig(type);
    if (kind == Kind::kSharedExpert) return SmallSharedExpertConfig(type);
    if (kind == Kind::kSomeExperts) return SmallSomeExpertsConfig(type);
    return kind == Kind::kGpt ? SmallConfig(type) : SmallLlamaConfig(type);
  }
  static Layout layout() { return std::get<1>(GetParam()); }
};

std::string NameOfKind(const ::testing::TestParamInfo<std::tuple<Kind, Layout>>& info) {
  const char* const families[] = {"Gpt", "Llama", "Experts", "Gemma", "Olmo", "SharedExpert", "SomeExperts"};
  const char* const layouts[] = {"Padded", "Packed", "Concatenated"};
  return std::string(families[static_cast<size_t>(std::get<0>(info.param))]) +
         layouts[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    Models, DividedStage,
    ::testing::Combine(::testing::Values(Kind::kGpt, Kind::kLlama, Kind::kExperts, Kind::kGemma, Kind::kOlmo,
                                         Kind::kSharedExpert, Kind::kSomeExperts),
                       ::testing::Values(Layout::kPadded, Layout::kPacked, Layout::kConcatenated)),
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
    const std::pair<LayerRecompute, bool> ways[] = {
        {{.full = 3}, false}, {{.selective = 3}, true}, {{.selective = 1, .full = 1}, true}};
    for (const auto& [recompute, split] : ways) {
      const Whole again = RunDivided(Config(type), placed, layout(), {1, 3}, {recompute, split});
      EXPECT_TRUE(SameBits(again.result, kept.result)) << recompute.full << " full, split " << split;
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

// Four on two context ranks, who then have the same heads of keys and values of the Llama two by two.
TEST(ContextRanks, OfSeveralTensorRanksAddUpToTheUndividedStage) {
  // By turns: what tensor ranks do knows no layout.
  const Layout layouts[] = {Layout::kPadded, Layout::kPacked, Layout::kConcatenated};
  size_t turn = 0;
  for (const DividedModel& model : DividedModels()) {
    const ModelConfig config = model.config(DataType::kFloat64);
    if (config.architecture == Architecture::kT5) continue;
    for (const Placed& placed : PlacedSamples()) {
      const Layout layout = layouts[turn++ % std::size(layouts)];
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

std::string NameOfExperts(const ::testing::TestParamInfo<ModelConfig (*)(DataType)>& info) {
  const char* const names[] = {"Experts", "SharedExpert", "SomeExperts"};
  return names[info.index];
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertRanks,
                         ::testing::Values(SmallExpertsConfig, SmallSharedExpertConfig,
                                           SmallSomeExpertsConfig),
                         NameOfExperts);

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
        const std::pair<LayerRecompute, bool> ways[] = {{{}, false}, {{.selective = 1, .full = 1}, true}};
        for (const auto& [recompute, split] : ways) {
          EXPECT_EQ(Difference(run({recompute, split, beside}), in_order), 0)
              << beside.products_on_return << " on the way back, split " << split;
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
  std::vector<ExpertLoads> loads(4);
  RunStageGroup({.contexts = 4, .experts = 4}, [&](ThreadStageGroup& group) {
    RankPipeline pipeline(config, {4}, group);
    pipeline.BlindRouters();
    pipeline.Run(shape, tokens, {}, loss_tokens);
    parts[static_cast<size_t>(group.place().context)] = pipeline.result();
    loads[static_cast<size_t>(group.place().context)] = pipeline.TakeExpertLoads();
  });
  // Two of four experts have all rows, and each of them twice its share.
  const ExpertLoads undivided = whole.TakeExpertLoads();
  EXPECT_EQ(undivided.fullest, 2);
  ASSERT_EQ(undivided.rows.size(), 4);
  EXPECT_GT(undivided.rows.front(), 0);
  EXPECT_EQ(undivided.rows, std::vector<uint64_t>(4, undivided.rows.front()));
  EXPECT_EQ(undivided.fullest_rows, std::vector<uint64_t>(4, undivided.rows.front() / 2));
  EXPECT_EQ(std::ranges::count_if(loads, [](const ExpertLoads& load) { return load.fullest > 1; }), 2);
  // In each layer as many rows on either of these two, and none on the others.
  const auto rows_of = [](const ExpertLoads& load) { return load.rows; };
  const std::vector<uint64_t> most = rows_of(*std::ranges::max_element(loads, {}, rows_of));
  ASSERT_EQ(most.size(), 4);
  EXPECT_GT(most.front(), 0);
  EXPECT_EQ(most, std::vector<uint64_t>(4, most.front()));
  EXPECT_EQ(std::ranges::count(loads, most, rows_of), 2);
  EXPECT_EQ(std::ranges::count(loads, std::vector<uint64_t>(4, 0), rows_of), 2);
  for (const ExpertLoads& load : loads) EXPECT_EQ(load.fullest_rows, load.rows) << "one expert a rank";
  Result sum;
  for (const Result& part : parts) Add(part, sum);
  EXPECT_LT(RelativeDifference(sum, whole.result()), 1e-12);
}

TEST(RanksOfExperts, DropTheRowsThatOneRankWouldDrop) {
  const ModelConfig config = SmallSharedExpertConfig(DataType::kFloat64);
  const Placed& placed = PlacedSamples()[1];
  const MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
  const double loss_tokens = CountLossTokens(config, placed.samples);
  const Tokens tokens = MakeTokens(placed.samples, config.vocab);
  RankPipeline whole(config, {4}, SoleRank());
  whole.BlindRouters();
  whole.Run(MakeMicroBatch(config, placed.samples, Layout::kPacked), tokens, {}, loss_tokens);
  const ExpertLoads undivided = whole.TakeExpertLoads();
  EXPECT_GT(undivided.dropped, 0);
  EXPECT_LT(undivided.dropped, undivided.routed);
  std::vector<ExpertLoads> loads(4);
  RunStageGroup({.contexts = 4, .experts = 4}, [&](ThreadStageGroup& group) {
    RankPipeline pipeline(config, {4}, group);
    pipeline.BlindRouters();
    pipeline.Run(shape, tokens, {}, loss_tokens);
    loads[static_cast<size_t>(group.place().context)] = pipeline.TakeExpertLoads();
  });
  const auto sum = [&](uint64_t ExpertLoads::*counted) {
    return std::accumulate(loads.begin(), loads.end(), uint64_t{0},
                           [&](uint64_t all, const ExpertLoads& load) { return all + load.*counted; });
  };
  EXPECT_EQ(sum(&ExpertLoads::routed), undivided.routed);
  EXPECT_EQ(sum(&ExpertLoads::dropped), undivided.dropped);
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
    auto forward = stage->Forward(shape, tokens, activation, {}, 1, {});
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
