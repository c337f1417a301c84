// Micro-batches whose passes go through them part by part, against the same ones undivided.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/divided_stages.h"
#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/parts_testing.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/parts.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

class PartsOfEveryLayout : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Parts, PartsOfEveryLayout,
                         ::testing::Values(Layout::kPadded, Layout::kPacked, Layout::kConcatenated),
                         NameOfLayout);

// Of one rank, and of an implementation that knows neither ranks nor parts.
TEST_P(PartsOfEveryLayout, AddUpToTheUndividedStage) {
  size_t combination = 0;
  for (ModelConfig (*config_of)(DataType) :
       {&SmallExpertsConfig, &ExpertsWithWindows, &SmallSharedExpertConfig, &SmallSomeExpertsConfig}) {
    const ModelConfig config = config_of(DataType::kFloat64);
    for (const Placed& placed : PlacedSamples()) {
      const Whole whole = RunWhole(config, placed, GetParam(), {1, 3});
      const Result plain = PlainModel(config, kRankSeed, placed.samples, GetParam());
      EXPECT_LT(RelativeDifference(whole.result, plain), 1e-9);
      MicroBatch shape = ShapeOf(config, placed, GetParam());
      const uint32_t rows = RowsIn(shape);
      for (uint32_t parts = 1; parts <= std::min(4U, rows); ++parts) {
        shape.part_rows = PartRows(rows, parts);
        for (const auto& [tensors, experts] : {std::pair(1, 2), {1, 4}, {2, 2}, {2, 4}}) {
          if (placed.contexts * tensors % experts != 0) continue;
          for (const TestPipeline::Options& options : EveryKindOfPass()) {
            shape.whole_backward = tensors == 1 && combination % 2 == 1;
            if (!IsRun(combination++, 29)) continue;
            const Whole divided = RunDivided(config, placed, shape, {1, 3}, options, tensors, experts);
            EXPECT_LT(Difference(divided, whole), 1e-12)
                << parts << " parts, " << placed.contexts << " context and " << tensors
                << " tensor ranks, experts over " << experts << ", " << options.recompute.full
                << " full, split " << options.split_backward << ", whole backward " << shape.whole_backward;
          }
        }
      }
    }
  }
}

TEST_P(PartsOfEveryLayout, HaveTheSameBitsForEveryKindOfPass) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const ModelConfig config = SmallExpertsConfig(type);
    const Placed& placed = PlacedSamples()[1];
    MicroBatch shape = ShapeOf(config, placed, GetParam());
    shape.part_rows = PartRows(RowsIn(shape), 2);
    const auto run = [&](const TestPipeline::Options& options) {
      return RunDivided(config, placed, shape, {2, 2}, options, /*tensors=*/1, /*experts=*/4);
    };
    const Whole kept = run({});
    for (const TestPipeline::Options& options : EveryKindOfPass()) {
      EXPECT_EQ(Difference(run(options), kept), 0)
          << options.recompute.full << " full, split " << options.split_backward;
    }
    const Whole exact = RunWhole(SmallExpertsConfig(DataType::kFloat64), placed, GetParam(), {2, 2});
    EXPECT_NEAR(kept.result.loss / exact.result.loss, 1, type == DataType::kFloat32 ? 1e-5 : 0.02);
  }
}

// Forward passes in parts, backward passes of the whole.
TEST_P(PartsOfEveryLayout, AreJoinedForAWholeBackwardPass) {
  size_t combination = 0;
  for (ModelConfig (*config_of)(DataType) :
       {&SmallExpertsConfig, &ExpertsWithWindows, &SmallSharedExpertConfig, &SmallSomeExpertsConfig}) {
    ModelConfig config = config_of(DataType::kFloat64);
    config.router_balance_loss = 0.01;
    config.router_z_loss = 0.001;
    for (const double capacity : {0.0, 1.1}) {
      config.expert_capacity_factor = capacity;
      for (const Placed& placed : PlacedSamples()) {
        MicroBatch shape = ShapeOf(config, placed, GetParam());
        shape.batch_tokens = 100;
        const uint32_t rows = RowsIn(shape);
        for (const int experts : {2, 4}) {
          if (placed.contexts % experts != 0) continue;
          for (const TestPipeline::Options& options : EveryKindOfPass()) {
            shape.part_rows = {};
            shape.whole_backward = false;
            if (!IsRun(combination++, 13)) continue;
            const Whole whole = RunDivided(config, placed, shape, {1, 3}, options, /*tensors=*/1, experts);
            shape.part_rows = PartRows(rows, std::min<uint32_t>(2 + combination % 3, rows));
            shape.whole_backward = true;
            const Whole joined = RunDivided(config, placed, shape, {1, 3}, options, /*tensors=*/1, experts);
            EXPECT_LT(Difference(joined, whole), 1e-12)
                << PartsOf(shape) << " parts, " << placed.contexts << " context ranks, experts over "
                << experts << ", capacity " << capacity << ", " << options.recompute.full << " full, split "
                << options.split_backward;
          }
        }
      }
    }
  }
}

TEST_P(PartsOfEveryLayout, AreMicroBatchesWhoseTokensFollowEachOther) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  for (const Placed& placed : PlacedSamples()) {
    MicroBatch shape = ShapeOf(config, placed, GetParam());
    shape.part_rows = PartRows(RowsIn(shape), std::min(3U, RowsIn(shape)));
    for (int context = 0; context < placed.contexts; ++context) {
      std::vector<RowChunk> chunks;
      for (size_t part = 0; part < PartsOf(shape); ++part) {
        const MicroBatch of_part = PartOf(shape, part);
        EXPECT_TRUE(CheckSpans(of_part, Side::kTarget, placed.contexts).ok());
        for (RowChunk chunk : ChunksOf(of_part, Side::kTarget, context)) {
          chunk.row += shape.part_rows[part];
          chunks.push_back(chunk);
        }
      }
      EXPECT_EQ(chunks, ChunksOf(shape, Side::kTarget, context));
    }
  }
}

TEST(MicroBatchParts, AreCountedOnceForTheLoadOfExperts) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat64);
  const Placed& placed = PlacedSamples()[1];
  const auto load_of = [&](const std::vector<uint32_t>& part_rows) {
    MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
    shape.part_rows = part_rows;
    std::vector<double> loads(4);
    RunStageGroup({.contexts = 4, .experts = 4}, [&](ThreadStageGroup& group) {
      RankPipeline pipeline(config, {4}, group);
      pipeline.Run(shape, MakeTokens(placed.samples, config.vocab), {}, 1);
      loads[static_cast<size_t>(group.place().context)] = pipeline.TakeExpertLoads().fullest;
    });
    return loads;
  };
  const std::vector<double> whole = load_of({});
  const std::vector<double> parts = load_of({0, 1, 4, 7});
  for (size_t rank = 0; rank < whole.size(); ++rank) EXPECT_NEAR(parts[rank], whole[rank], 1e-12);
}

// Writes down what passes ask of the group, in letters: k keys and their gradients, n numbers of rows, s rows
// that are sent, w rows that are waited for.
class WritingGroup : public CountingGroup {
 public:
  explicit WritingGroup(StageGroup* group) : CountingGroup(group) {}

  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override {
    written += 'k';
    return CountingGroup::ExchangeRows(rows, sent, received);
  }
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                               const std::vector<int64_t>& received) override {
    written += 's';
    return std::make_unique<Rows>(this, CountingGroup::StartExpertRows(rows, sent, received));
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override {
    written += 'n';
    return CountingGroup::ExchangeExpertCounts(counts);
  }

  std::string written;

 private:
  class Rows : public PendingRows {
   public:
    Rows(WritingGroup* group, std::unique_ptr<PendingRows> rows) : group_(*group), rows_(std::move(rows)) {}
    at::Tensor Wait() override {
      group_.written += 'w';
      return rows_->Wait();
    }

   private:
    WritingGroup& group_;
    const std::unique_ptr<PendingRows> rows_;
  };
};

// Of the forward and the backward pass through two layers, all rows of the micro-batch divided.
std::string WrittenOf(const std::vector<uint32_t>& part_rows, const LayerRecompute& recompute,
                      bool whole_backward = false) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  const std::vector<TestSample> samples = {{2, 9}, {0, 8}, {3, 5}};
  MicroBatch shape = MakeMicroBatch(config, samples, Layout::kPacked);
  shape.spans = {{0, 2}, {0, 2}, {0, 2}};
  shape.part_rows = part_rows;
  shape.whole_backward = whole_backward;
  std::string written;
  RunStageGroup({.contexts = 2, .experts = 2}, [&](ThreadStageGroup& group) {
    WritingGroup writes(&group);
    const auto stage = *MakeTransformerStage(config, {1, 2, false, false}, kRankSeed, at::kCPU, writes);
    const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, {}, at::kCPU, group.place());
    const at::Tensor activation = at::ones(BoundaryShape(shape, config, 1, group.place()));
    auto forward = stage->Forward(shape, tokens, activation, recompute, 1, {});
    ASSERT_TRUE(forward.ok()) << forward.status();
    writes.written += '|';
    ASSERT_TRUE(stage->Backward(*std::move(forward), activation, {}, {}).ok());
    if (group.place().context == 0) written = writes.written;
  });
  return written;
}

TEST(MicroBatchParts, AreComputedWhileRowsOfOthersTravel) {
  EXPECT_EQ(WrittenOf({}, {}),
            "knswsw"
            "knswsw|"
            // Keys of others travel while experts run.
            "kswswk"
            "kswswk");
  // Attention of the second part, and its numbers, behind the first one's rows; then a turn of each.
  EXPECT_EQ(WrittenOf({0, 1, 3}, {}),
            "kns"
            "kns"
            "wswswknswkns"
            "wswsww|"
            "ksks"
            "wswswkkswkks"
            "wswswkwk");
}

TEST(MicroBatchParts, GoBackAtOnceWhereBackwardPassesAreWhole) {
  const std::string whole = WrittenOf({}, {}), parts = WrittenOf({0, 1, 3}, {}, /*whole_backward=*/true);
  EXPECT_EQ(parts.substr(0, parts.find('|')), "knsknswswswknswknswswsww");
  EXPECT_EQ(parts.substr(parts.find('|')), whole.substr(whole.find('|')));
  // One that runs again is whole, too.
  const std::string again = WrittenOf({0, 1, 3}, {.full = 2}, /*whole_backward=*/true);
  EXPECT_EQ(again.substr(again.find('|')), WrittenOf({}, {.full = 2}).substr(whole.find('|')));
}

TEST(MicroBatchParts, RunAgainInTurnToo) {
  EXPECT_EQ(WrittenOf({0, 1, 3}, {.full = 2}),
            "knsknswswswknswknswswsww|"
            // Rows of the layer travel before their gradients do.
            "knsknswswswswswswswkkns"
            "wkknswswswswswswswkwk");
}

TEST(MicroBatchParts, AreRefusedWhereTheyCannotBe) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  MicroBatch shape = MakeMicroBatch(config, {{2, 9}, {0, 8}, {3, 5}}, Layout::kPacked);
  shape.spans = {{0, 1}, {1, 1}, {0, 2}};
  const auto error = [&](const std::vector<uint32_t>& part_rows, const GroupPlace& place) {
    shape.part_rows = part_rows;
    return std::string(MakeTokenBatch(shape, {}, config, {}, at::kCPU, place).status().message());
  };
  const GroupPlace place = {.contexts = 2, .experts = 2};
  EXPECT_EQ(error({0, 1, 3}, place), "");
  EXPECT_THAT(error({0, 1, 3}, {.contexts = 2}), HasSubstr("part_rows is 0, 1, 3: there are no parts where "
                                                           "ranks do not divide experts"));
  EXPECT_EQ(error({0, 1, 3}, {.contexts = 2, .tensors = 2, .experts = 4}), "");
  for (const std::vector<uint32_t>& wrong :
       {std::vector<uint32_t>{0}, {1, 3}, {0, 2}, {0, 1, 1, 3}, {0, 2, 1, 3}, {0, 4}}) {
    EXPECT_THAT(error(wrong, place), HasSubstr("values that rise from 0 to 3, the number of rows"));
  }
  shape.whole_backward = true;
  EXPECT_EQ(error({0, 1, 3}, place), "");
  EXPECT_THAT(error({}, place), HasSubstr("whole_backward is set, but part_rows is empty"));
  EXPECT_THAT(error({0, 1, 3}, {.contexts = 2, .tensors = 2, .experts = 4}),
              HasSubstr("whole_backward is set, but tensor ranks divide the tokens of each part by 2"));
}

TEST(MicroBatchParts, RefuseProductsThatAPlanPutsBesideTheirExchanges) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  MicroBatch shape = MakeMicroBatch(config, {{2, 9}, {0, 8}}, Layout::kPacked);
  shape.spans = {{0, 1}, {1, 1}};
  shape.part_rows = {0, 1, 2};
  RunStageGroup({.contexts = 2, .experts = 2}, [&](ThreadStageGroup& group) {
    const auto stage = *MakeTransformerStage(config, {1, 2, false, false}, kRankSeed, at::kCPU, group);
    const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, {}, at::kCPU, group.place());
    const at::Tensor activation = at::ones(BoundaryShape(shape, config, 1, group.place()));
    const auto forward = stage->Forward(shape, tokens, activation, {}, 1, {});
    ASSERT_TRUE(forward.ok()) << forward.status();
    const absl::Status refused =
        stage->BackwardInput(*forward, activation, {.products_on_return = 1}).status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr("a micro-batch in parts"));
  });
}

// The peer goes while rows of both parts are under way.
class GoneGroup : public CountingGroup {
 public:
  explicit GoneGroup(int64_t waits) : CountingGroup(&SoleRank()), left_(waits) {}

  GroupPlace place() const override { return {.contexts = 2, .experts = 2}; }
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>&,
                                               const std::vector<int64_t>& received) override {
    ++under_way;
    return std::make_unique<Rows>(this, at::zeros({received[0] + received[1], rows.size(1)}, rows.options()));
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override {
    return left_ > 0 ? counts : at::zeros_like(counts);
  }
  absl::Status status() const override {
    return left_ > 0 ? absl::OkStatus() : absl::UnavailableError("rank 1 is gone");
  }

  int64_t under_way = 0;

 private:
  class Rows : public PendingRows {
   public:
    Rows(GoneGroup* group, at::Tensor rows) : group_(*group), rows_(std::move(rows)) {}
    ~Rows() override { --group_.under_way; }
    at::Tensor Wait() override {
      --group_.left_;
      return std::move(rows_);
    }

   private:
    GoneGroup& group_;
    at::Tensor rows_;
  };

  int64_t left_;
};

TEST(MicroBatchParts, SayThatAPeerIsGoneAndLeaveNothingUnderWay) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  MicroBatch shape = MakeMicroBatch(config, {{2, 9}, {0, 8}}, Layout::kPacked);
  shape.spans = {{0, 1}, {0, 1}};
  shape.part_rows = {0, 1, 2};
  for (const int64_t waits : {0, 1, 3, 8, 11}) {
    GoneGroup group(waits);
    const auto stage = *MakeTransformerStage(config, {1, 2, false, false}, kRankSeed, at::kCPU, group);
    const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, {}, at::kCPU, group.place());
    const at::Tensor activation = at::ones(BoundaryShape(shape, config, 1, group.place()));
    auto forward = stage->Forward(shape, tokens, activation, {}, 1, {});
    EXPECT_EQ(group.under_way, 0);
    if (!forward.ok()) {
      EXPECT_EQ(forward.status().code(), absl::StatusCode::kUnavailable);
      continue;
    }
    EXPECT_GE(waits, 8);
    EXPECT_EQ(stage->Backward(*forward, activation, {}, {}).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(group.under_way, 0);
  }
}

}  // namespace
}  // namespace penstock::worker
