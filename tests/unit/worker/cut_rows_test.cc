// Micro-batches whose parts begin and end inside of rows that context ranks divide, against the same ones
// undivided.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/divided_stages.h"
#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/parts_testing.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/parts.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

// A place in a micro-batch: a row, and a chunk of it.
using RowAndChunk = std::pair<uint32_t, uint32_t>;

// All places between the first and the last one where a part may begin.
std::vector<RowAndChunk> PlacesIn(const MicroBatch& shape) {
  std::vector<RowAndChunk> places;
  for (uint32_t row = 0; row < RowsIn(shape); ++row) {
    const uint32_t ranks = shape.spans[row].ranks;
    for (uint32_t chunk = 0; chunk < (ranks > 1 ? 2 * ranks : 1); ++chunk) places.emplace_back(row, chunk);
  }
  places.erase(places.begin());
  return places;
}

void CutAt(std::vector<RowAndChunk> begins, MicroBatch& shape) {
  begins.emplace(begins.begin(), 0, 0);
  begins.emplace_back(RowsIn(shape), 0);
  shape.part_rows.clear();
  shape.part_chunks.clear();
  for (const auto& [row, chunk] : begins) {
    shape.part_rows.push_back(row);
    shape.part_chunks.push_back(chunk);
  }
  shape.whole_backward = true;
}

std::string Describe(const MicroBatch& shape) {
  std::string text;
  for (size_t part = 0; part < shape.part_rows.size(); ++part)
    text += std::to_string(shape.part_rows[part]) + "." + std::to_string(shape.part_chunks[part]) + " ";
  return text;
}

// Two to four parts, at least one of which begins inside of a row.
std::vector<RowAndChunk> Draw(const MicroBatch& shape, std::mt19937& random) {
  std::vector<RowAndChunk> places = PlacesIn(shape), drawn;
  const auto is_inside = [](const RowAndChunk& place) { return place.second > 0; };
  const size_t count = 1 + random() % std::min<size_t>(3, places.size());
  do {
    std::ranges::shuffle(places, random);
    drawn.assign(places.begin(), places.begin() + static_cast<ptrdiff_t>(count));
  } while (std::ranges::none_of(drawn, is_inside));
  std::ranges::sort(drawn);
  return drawn;
}

ModelConfig SharedExpertWithoutCapacity(DataType type) {
  ModelConfig config = SmallSharedExpertConfig(type);
  config.expert_capacity_factor = 0;
  return config;
}

// One alone over all ranks; several of which short ones lie between.
const std::vector<Placed>& LongSamples() {
  static const std::vector<Placed> placed = [] {
    std::vector<Placed> all = {{2, {{3, 22}}, {{0, 2}}}, {4, {{5, 26}}, {{0, 4}}}};
    for (const size_t i : {0, 1, 4}) all.push_back(PlacedSamples()[i]);
    return all;
  }();
  return placed;
}

class CutRowsOfEveryLayout : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(CutRows, CutRowsOfEveryLayout,
                         ::testing::Values(Layout::kPadded, Layout::kPacked, Layout::kConcatenated),
                         NameOfLayout);

TEST_P(CutRowsOfEveryLayout, AddUpToTheUndividedMicroBatch) {
  std::mt19937 random(7);
  size_t combination = 0;
  for (ModelConfig (*config_of)(DataType) :
       {&SmallExpertsConfig, &ExpertsWithWindows, &SharedExpertWithoutCapacity, &SmallSomeExpertsConfig}) {
    ModelConfig config = config_of(DataType::kFloat64);
    config.router_balance_loss = 0.01;
    config.router_z_loss = 0.001;
    for (const Placed& placed : LongSamples()) {
      MicroBatch shape = ShapeOf(config, placed, GetParam());
      shape.batch_tokens = 100;
      for (const int experts : {2, 4}) {
        if (placed.contexts % experts != 0) continue;
        for (const TestPipeline::Options& options : EveryKindOfPass()) {
          if (!IsRun(combination++, 7)) continue;
          MicroBatch cut = shape;
          CutAt(Draw(shape, random), cut);
          const Whole whole = RunDivided(config, placed, shape, {1, 3}, options, /*tensors=*/1, experts);
          const Whole joined = RunDivided(config, placed, cut, {1, 3}, options, /*tensors=*/1, experts);
          EXPECT_LT(Difference(joined, whole), 1e-12)
              << "parts from " << Describe(cut) << "of " << placed.contexts << " context ranks, experts over "
              << experts << ", " << options.recompute.full << " full, " << options.recompute.selective
              << " selective, split " << options.split_backward;
        }
      }
    }
  }
}

TEST_P(CutRowsOfEveryLayout, HaveTheSameBitsForEveryKindOfPass) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    const ModelConfig config = SmallExpertsConfig(type);
    const Placed& placed = LongSamples()[1];
    MicroBatch shape = ShapeOf(config, placed, GetParam());
    CutAt({{0, 4}}, shape);
    const auto run = [&](const TestPipeline::Options& options) {
      return RunDivided(config, placed, shape, {2, 2}, options, /*tensors=*/1, /*experts=*/4);
    };
    // What runs again has other pieces than the parts had, and sums in another order.
    const Whole kept = run({}), split = run({.split_backward = true});
    EXPECT_EQ(Difference(split, kept), 0);
    const Whole exact = RunWhole(SmallExpertsConfig(DataType::kFloat64), placed, GetParam(), {2, 2});
    EXPECT_NEAR(kept.result.loss / exact.result.loss, 1, type == DataType::kFloat32 ? 1e-5 : 0.02);
  }
}

// Everywhere that a row of four ranks can be cut, once and twice, also where ranks have no token of a part.
TEST(CutRows, MayBeCutAtEveryChunk) {
  for (ModelConfig (*config_of)(DataType) : {&SmallExpertsConfig, &ExpertsWithWindows}) {
    const ModelConfig config = config_of(DataType::kFloat64);
    const Placed& placed = LongSamples()[1];
    MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
    const Whole whole = RunDivided(config, placed, shape, {1, 1}, {}, /*tensors=*/1, /*experts=*/4);
    for (uint32_t first = 1; first < 8; ++first) {
      for (uint32_t second = first; second < 8; ++second) {
        std::vector<RowAndChunk> begins = {{0, first}};
        if (second > first) begins.emplace_back(0, second);
        CutAt(begins, shape);
        const Whole joined = RunDivided(config, placed, shape, {1, 1}, {}, /*tensors=*/1, /*experts=*/4);
        EXPECT_LT(Difference(joined, whole), 1e-12) << Describe(shape);
      }
    }
  }
}

// What every rank has and is sent, over the parts.
TEST(CutRows, EveryChunkIsSentOnce) {
  std::mt19937 random(3);
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  for (int round = 0; round < 100; ++round) {
    const Placed& placed = LongSamples()[static_cast<size_t>(round) % LongSamples().size()];
    MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
    const auto less = [](const RowChunk& a, const RowChunk& b) {
      return std::pair(a.row, a.first) < std::pair(b.row, b.first);
    };
    const auto of_parts = [&](const auto& chunks_of) {
      std::vector<RowChunk> chunks;
      for (size_t part = 0; part < PartsOf(shape); ++part) {
        const MicroBatch of_part = PartOf(shape, part);
        EXPECT_TRUE(CheckSpans(of_part, Side::kTarget, placed.contexts).ok());
        for (RowChunk chunk : chunks_of(of_part)) {
          chunk.row += shape.part_rows[part];
          chunks.push_back(chunk);
        }
      }
      return chunks;
    };
    CutAt(Draw(shape, random), shape);
    ASSERT_TRUE(CheckParts(shape, config, {.contexts = placed.contexts, .experts = 2}).ok());
    for (int context = 0; context < placed.contexts; ++context) {
      const auto own = [&](const MicroBatch& of) { return ChunksOf(of, Side::kTarget, context); };
      EXPECT_EQ(of_parts(own), own(shape)) << Describe(shape);
      for (int to = 0; to < placed.contexts; ++to) {
        const auto sent = [&](const MicroBatch& of) { return ChunksSent(of, context, to); };
        std::vector<RowChunk> all = of_parts(sent), whole = sent(shape);
        std::ranges::sort(all, less);
        std::ranges::sort(whole, less);
        EXPECT_EQ(all, whole) << Describe(shape);
      }
    }
  }
}

TEST(CutRows, HaveTheSameLossWithoutABackwardPass) {
  const ModelConfig config = SmallExpertsConfig(DataType::kFloat64);
  const Placed& placed = LongSamples()[1];
  const auto loss_of = [&](const MicroBatch& shape) {
    std::vector<double> losses(4);
    RunStageGroup({.contexts = 4, .experts = 4}, [&](ThreadStageGroup& group) {
      const auto stage = *MakeTransformerStage(config, {0, 2, true, true}, kRankSeed, at::kCPU, group);
      const TokenNeeds needs = {.target = true, .loss = true};
      const TokenBatch tokens = *MakeTokenBatch(shape, MakeTokens(placed.samples, config.vocab), config,
                                                needs, at::kCPU, group.place());
      const auto forward = stage->ForwardAlone(shape, tokens, {}, 1, {});
      ASSERT_TRUE(forward.ok()) << forward.status();
      losses[static_cast<size_t>(group.place().context)] = forward->output.item<double>();
    });
    return losses;
  };
  MicroBatch shape = ShapeOf(config, placed, Layout::kPacked);
  const std::vector<double> whole = loss_of(shape);
  CutAt({{0, 3}, {0, 4}}, shape);
  const std::vector<double> cut = loss_of(shape);
  for (size_t rank = 0; rank < whole.size(); ++rank) EXPECT_NEAR(cut[rank], whole[rank], 1e-12);
}

TEST(CutRows, AreRefusedWhereTheyCannotBe) {
  ModelConfig config = SmallExpertsConfig(DataType::kFloat32);
  MicroBatch shape = MakeMicroBatch(config, {{2, 9}, {0, 8}, {3, 5}}, Layout::kPacked);
  shape.spans = {{0, 1}, {1, 1}, {0, 2}};
  shape.whole_backward = true;
  const GroupPlace place = {.contexts = 2, .experts = 2};
  const auto error = [&](const std::vector<uint32_t>& part_rows, const std::vector<uint32_t>& part_chunks) {
    shape.part_rows = part_rows;
    shape.part_chunks = part_chunks;
    return std::string(MakeTokenBatch(shape, {}, config, {}, at::kCPU, place).status().message());
  };
  EXPECT_EQ(error({0, 2, 3}, {0, 3, 0}), "");
  EXPECT_EQ(error({0, 2, 2, 3}, {0, 0, 3, 0}), "");
  EXPECT_THAT(error({0, 2, 3}, {0, 3}), HasSubstr("expected one value for each of part_rows"));
  EXPECT_THAT(error({0, 2, 3}, {0, 4, 0}),
              HasSubstr("part_chunks is 0, 4, 0 of part_rows 0, 2, 3: row 2 has the chunks 0 to 3"));
  EXPECT_THAT(error({0, 1, 3}, {0, 1, 0}), HasSubstr("row 1 lies on one context rank"));
  EXPECT_THAT(error({0, 2, 3}, {0, 2, 1}), HasSubstr("there is no row 3"));
  for (const auto& [rows, chunks] :
       {std::pair<std::vector<uint32_t>, std::vector<uint32_t>>{{0, 2, 2, 3}, {0, 2, 1, 0}},
        {{0, 2, 2, 3}, {0, 2, 2, 0}},
        {{2, 2, 3}, {1, 2, 0}},
        {{0, 2}, {0, 2}}})
    EXPECT_THAT(error(rows, chunks), HasSubstr("to the end, chunk 0 of row 3"));
  config.expert_capacity_factor = 1;
  EXPECT_THAT(error({0, 2, 3}, {0, 2, 0}), HasSubstr("experts have a capacity"));
  config.expert_capacity_factor = 0;
  shape.whole_backward = false;
  EXPECT_THAT(error({0, 2, 3}, {0, 2, 0}), HasSubstr("whole_backward is set alone"));
  EXPECT_THAT(error({}, {0, 2, 0}), HasSubstr("there are no parts"));
}

}  // namespace
}  // namespace penstock::worker
