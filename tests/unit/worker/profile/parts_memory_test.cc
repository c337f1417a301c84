// What micro-batches in parts take of memory, beside those that stay whole.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/memory/tensor_memory.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/transformer_stage.h"
#include "worker/profile/lone_rank.h"

namespace penstock::worker {
namespace {

ModelConfig ExpertsModel() {
  return {.layers = 3,
          .hidden = 24,
          .heads = 6,
          .attention_inner = 12,
          .ffn = 40,
          .vocab = 29,
          .max_sequence_length = 32,
          .dtype = DataType::kFloat32,
          .feed_forward = FeedForward::kGatedSilu,
          .position = Position::kRotary,
          .norm = Norm::kRms,
          .attention_biases = Biases::kNone,
          .feed_forward_biases = Biases::kNone,
          .key_value_heads = 2,
          .experts = 4,
          .experts_per_token = 2};
}

// Of a stage of several layers on a rank of two context ranks that divide the experts: the most that is there
// while passes run.
double PeakOfExpertRank(const MicroBatch& shape, const LayerRecompute& recompute, bool split, int tensors,
                        const std::vector<int64_t>& dense) {
  ModelConfig config = ExpertsModel();
  config.dense_layers = dense;
  LoneRank rank({.contexts = 2, .tensors = tensors, .experts = 2 * tensors});
  const auto stage = *MakeTransformerStage(config, {0, 3, false, false}, /*seed=*/1, at::kCPU, rank);
  const int64_t before = TensorBytes(at::kCPU);
  const TokenBatch staged = *MakeTokenBatch(shape, {}, config, TokenNeeds(), at::kCPU, rank.place());
  const at::Tensor activation = at::ones(BoundaryShape(shape, config, 1, rank.place()));
  ResetPeakTensorBytes(at::kCPU);
  auto forward = *stage->Forward(shape, *ToDevice(staged, at::kCPU), activation, recompute, 1, {});
  forward.output.reset();
  if (split) {
    EXPECT_TRUE(stage->BackwardInput(std::move(forward), activation, {}).ok());
  } else {
    EXPECT_TRUE(stage->Backward(std::move(forward), activation, {}, {}).ok());
  }
  return static_cast<double>(PeakTensorBytes(at::kCPU) - before);
}

// A part's products for weights wait, with what they are made of, until its rows of the layer below are on
// their way. Where one part is nearly all of the micro-batch that is there beside what the layer below makes.
class MemoryOfParts : public testing::TestWithParam<std::tuple<int, std::vector<int64_t>>> {};

// Rows of two context ranks by turns.
MicroBatch EvenShape(uint32_t rows) {
  MicroBatch shape;
  shape.rows = rows;
  shape.target_length = 32;
  for (uint32_t row = 0; row < rows; ++row) {
    shape.sample_ids.push_back(row);
    shape.input_tokens.push_back(0);
    shape.target_tokens.push_back(32);
    shape.spans.push_back({.first = row % 2, .ranks = 1});
  }
  return shape;
}

// In all layers, or not in the one between two others.
INSTANTIATE_TEST_SUITE_P(TensorRanks, MemoryOfParts,
                         testing::Combine(testing::Values(1, 2),
                                          testing::Values(std::vector<int64_t>{}, std::vector<int64_t>{1})),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param),
                                               std::get<1>(info.param).empty() ? "" : "SomeDense");
                         });

TEST_P(MemoryOfParts, IsThatOfTheWholeUnlessOnePartIsMostOfIt) {
  CountCpuTensors();
  constexpr uint32_t kRows = 12;
  MicroBatch shape = EvenShape(kRows);
  const auto& [tensors, dense] = GetParam();
  for (const LayerRecompute& recompute : {LayerRecompute{}, {.selective = 3}, {.full = 3}}) {
    for (const bool split : {false, true}) {
      shape.part_rows = {};
      const double whole = PeakOfExpertRank(shape, recompute, split, tensors, dense);
      ASSERT_GT(whole, 0);
      for (const std::vector<uint32_t>& part_rows :
           {std::vector<uint32_t>{0, 12}, {0, 6, 12}, {0, 2, 12}, {0, 4, 8, 12}, {0, 2, 4, 8, 12}}) {
        shape.part_rows = part_rows;
        const uint32_t last = kRows - part_rows[part_rows.size() - 2];
        // What waits for rows of the layer below a dense one waits a layer longer.
        const double even = dense.empty() ? 1.0 : 1.03;
        EXPECT_LE(PeakOfExpertRank(shape, recompute, split, tensors, dense),
                  (2 * last <= kRows ? even : 1.13) * whole)
            << part_rows.size() - 1 << " parts, the last of " << last << " rows, full " << recompute.full
            << ", selective " << recompute.selective << ", split " << split;
      }
    }
  }
}

// What layers kept of the parts is joined tensor by tensor: one is there twice, which is the widest one of a
// dense layer where there is one.
TEST_P(MemoryOfParts, IsAboveThatOfTheWholeByOneTensorWhereBackwardPassesAreWhole) {
  const auto& [tensors, dense] = GetParam();
  if (tensors > 1) GTEST_SKIP() << "there are none";
  CountCpuTensors();
  constexpr uint32_t kRows = 12;
  MicroBatch shape = EvenShape(kRows);
  for (const LayerRecompute& recompute : {LayerRecompute{}, {.selective = 3}, {.full = 3}}) {
    for (const bool split : {false, true}) {
      shape.part_rows = {};
      shape.whole_backward = false;
      const double whole = PeakOfExpertRank(shape, recompute, split, tensors, dense);
      shape.whole_backward = true;
      for (const std::vector<uint32_t>& part_rows :
           {std::vector<uint32_t>{0, 12}, {0, 6, 12}, {0, 2, 12}, {0, 2, 4, 8, 12}}) {
        shape.part_rows = part_rows;
        const uint32_t last = kRows - part_rows[part_rows.size() - 2];
        const double even = dense.empty() ? 1.05 : 1.2;
        EXPECT_LE(PeakOfExpertRank(shape, recompute, split, tensors, dense),
                  (2 * last <= kRows ? even : std::max(even, 1.15)) * whole)
            << part_rows.size() - 1 << " parts, full " << recompute.full << ", selective "
            << recompute.selective << ", split " << split;
      }
    }
  }
}

// Of a forward pass of a context rank of two, which keeps its layers' inputs alone.
double PeakOfForward(const MicroBatch& shape, const std::vector<int64_t>& dense, int context) {
  ModelConfig config = ExpertsModel();
  config.dense_layers = dense;
  config.max_sequence_length = 192;
  LoneRank rank({.context = context, .contexts = 2, .experts = 2});
  const auto stage = *MakeTransformerStage(config, {0, 3, false, false}, /*seed=*/1, at::kCPU, rank);
  const TokenBatch tokens = *MakeTokenBatch(shape, {}, config, TokenNeeds(), at::kCPU, rank.place());
  const at::Tensor activation = at::ones(BoundaryShape(shape, config, 1, rank.place()));
  const int64_t before = TensorBytes(at::kCPU);
  ResetPeakTensorBytes(at::kCPU);
  const auto forward = *stage->Forward(shape, tokens, activation, {.full = 3}, 1, {});
  return static_cast<double>(PeakTensorBytes(at::kCPU) - before);
}

// One long row over two context ranks, in two parts or more. Plans count what layers keep of it
// (execution.md, section 8, `carried`) beside what a forward pass of the whole takes.
TEST(MemoryOfCutRows, IsThatOfTheWholeAndOfCarriedKeys) {
  CountCpuTensors();
  constexpr uint32_t kTokens = 192;
  MicroBatch shape;
  shape.rows = 1;
  shape.target_length = kTokens;
  shape.sample_ids = {0};
  shape.input_tokens = {0};
  shape.target_tokens = {kTokens};
  shape.spans = {{.first = 0, .ranks = 2}};
  for (const std::vector<int64_t>& dense :
       {std::vector<int64_t>{}, std::vector<int64_t>{1}, std::vector<int64_t>{0, 1}}) {
    for (const int context : {0, 1}) {
      shape.part_rows = shape.part_chunks = {};
      shape.whole_backward = false;
      const double whole = PeakOfForward(shape, dense, context);
      shape.whole_backward = true;
      // Two heads of keys and values of width 2, in float32.
      const double carried = (1.0 + static_cast<double>(dense.size())) * 2 * 2 * 2 * sizeof(float) * kTokens;
      for (const std::vector<uint32_t>& chunks :
           {std::vector<uint32_t>{0, 2, 0}, {0, 1, 0}, {0, 3, 0}, {0, 1, 2, 3, 0}}) {
        shape.part_rows.assign(chunks.size(), 0);
        shape.part_rows.back() = 1;
        shape.part_chunks = chunks;
        EXPECT_LE(PeakOfForward(shape, dense, context), whole + carried)
            << chunks.size() - 1 << " parts, " << dense.size() << " dense layers, context rank " << context;
      }
    }
  }
}

// With a backward pass, which takes more.
TEST(MemoryOfCutRows, IsThatOfOtherPartsWhereBackwardPassesAreWhole) {
  CountCpuTensors();
  MicroBatch shape = EvenShape(4);
  for (Span& span : shape.spans) span = {.first = 0, .ranks = 2};
  for (const LayerRecompute& recompute : {LayerRecompute{}, {.selective = 3}, {.full = 3}}) {
    for (const bool split : {false, true}) {
      shape.part_rows = shape.part_chunks = {};
      shape.whole_backward = false;
      const double whole = PeakOfExpertRank(shape, recompute, split, /*tensors=*/1, {});
      shape.part_rows = {0, 2, 4};
      shape.whole_backward = true;
      const double rows = PeakOfExpertRank(shape, recompute, split, /*tensors=*/1, {});
      for (const auto& [part_rows, part_chunks] :
           {std::pair<std::vector<uint32_t>, std::vector<uint32_t>>{{0, 1, 4}, {0, 2, 0}},
            {{0, 0, 2, 3, 4}, {0, 2, 0, 2, 0}}}) {
        shape.part_rows = part_rows;
        shape.part_chunks = part_chunks;
        EXPECT_LE(PeakOfExpertRank(shape, recompute, split, /*tensors=*/1, {}),
                  std::max(1.03 * rows, 1.05 * whole))
            << part_rows.size() - 1 << " parts, full " << recompute.full << ", selective "
            << recompute.selective << ", split " << split;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::worker
