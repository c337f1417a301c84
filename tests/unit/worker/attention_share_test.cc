// Attention of rows that are divided over context ranks, a thread each, against that of the undivided
// micro-batch.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/model_testing.h"
#include "worker/model/attention.h"
#include "worker/model/attention_kernel.h"
#include "worker/model/token_batch.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

struct Operands {
  at::Tensor query_key_value;
  at::Tensor attended_gradient;
};

struct Attended {
  at::Tensor output;
  at::Tensor gradient;
  int64_t exchanges = 0;
};

AttentionOperands Split(const AttentionOptions& options, const at::Tensor& query_key_value) {
  const int64_t width = query_key_value.size(1) / (options.heads + 2 * options.key_value_heads);
  const std::vector<at::Tensor> parts = query_key_value.split_with_sizes(
      {options.heads * width, options.key_value_heads * width, options.key_value_heads * width}, 1);
  return {parts[0], parts[1], parts[2]};
}

// kSumsAndAhead: keys and values are asked for before the backward pass begins.
enum class Keep { kSums, kNothing, kSumsAndReceived, kSumsAndAhead };

Attended Attend(AttentionOptions options, const AttentionShape& shape, const Operands& operands, Keep keep) {
  const at::NoGradGuard by_hand;
  const AttentionOperands split = Split(options, operands.query_key_value);
  AttentionMemory memory;
  memory.keep_received = keep == Keep::kSumsAndReceived;
  Attended result;
  result.output = AttentionForward(options, shape, split, keep == Keep::kNothing ? nullptr : &memory);
  result.gradient = at::full_like(operands.query_key_value, 7);
  if (keep == Keep::kSumsAndAhead) ReceiveAhead(options, shape, split, memory);
  AttentionBackward(options, shape, split, result.output, std::move(memory), operands.attended_gradient,
                    Split(options, result.gradient));
  return result;
}

at::Tensor OwnRows(const at::Tensor& whole, const MicroBatch& shape, int context) {
  std::vector<at::Tensor> runs = {whole.narrow(0, 0, 0)};
  for (const TokenRun& run : RunsOf(shape, Side::kTarget, context))
    runs.push_back(whole.narrow(0, run.begin, run.length));
  return at::cat(runs, 0);
}

// Every context rank's attention, on a thread each.
std::vector<Attended> AttendDivided(const AttentionOptions& options, const ModelConfig& config,
                                    const MicroBatch& shape, int contexts, const Operands& operands,
                                    Keep keep) {
  std::vector<Attended> results(static_cast<size_t>(contexts));
  RunStageGroup({.contexts = contexts}, [&](ThreadStageGroup& group) {
    const int context = group.place().context;
    AttentionOptions own = options;
    own.group = &group;
    const AttentionShape target = MakeAttentionShapes(shape, config, at::kCPU, group.place()).target;
    Attended& result = results[static_cast<size_t>(context)];
    result = Attend(own, target,
                    {OwnRows(operands.query_key_value, shape, context),
                     OwnRows(operands.attended_gradient, shape, context)},
                    keep);
    result.exchanges = group.counts().exchanges;
    EXPECT_TRUE(group.status().ok()) << group.status();
  });
  return results;
}

double Difference(const at::Tensor& left, const at::Tensor& right) {
  if (left.sizes() != right.sizes()) return INFINITY;
  if (left.numel() == 0) return 0;
  return ((left.to(at::kDouble) - right.to(at::kDouble)).abs().max() /
          right.to(at::kDouble).abs().max().clamp_min(1e-9))
      .item<double>();
}

struct Placement {
  int contexts = 0;
  std::vector<TestSample> samples;
  std::vector<Span> spans;
};

const std::vector<Placement>& Placements() {
  static const std::vector<Placement> placements = {
      {2, {{0, 11}}, {{0, 2}}},
      {2, {{3, 9}, {0, 4}, {0, 5}, {2, 11}}, {{1, 1}, {0, 2}, {0, 1}, {0, 2}}},
      {4,
       {{0, 31}, {0, 8}, {3, 10}, {0, 4}, {0, 1}, {4, 4}, {0, 17}},
       {{0, 4}, {0, 4}, {2, 2}, {0, 2}, {1, 1}, {3, 1}, {0, 4}}},
      // Longer than the blocks of the kernel.
      {4, {{0, 301}, {0, 70}, {0, 150}}, {{0, 4}, {2, 2}, {0, 4}}},
      // Ranks without tokens, and a rank with whole rows alone.
      {4, {{0, 9}, {0, 6}}, {{0, 2}, {2, 1}}},
      {4, {{0, 9}, {0, 6}}, {{3, 1}, {3, 1}}},
  };
  return placements;
}

// The placement as rows of `layout`. Concatenated rows hold two samples: so many spans are left.
MicroBatch Shape(const ModelConfig& config, const Placement& placement, Layout layout) {
  MicroBatch shape = MakeMicroBatch(config, placement.samples, layout);
  shape.spans = placement.spans;
  if (layout == Layout::kConcatenated) shape.spans.resize(static_cast<size_t>(shape.rows));
  return shape;
}

void ExpectDividedEqualsWhole(const ModelConfig& config, int64_t key_value_heads, const MicroBatch& shape,
                              int contexts, Keep keep, double tolerance) {
  const AttentionOptions options = {
      .heads = 4, .key_value_heads = key_value_heads, .causal = true, .scale = 0.4};
  ASSERT_TRUE(CheckSpans(shape, Side::kTarget, contexts).ok());
  at::manual_seed(5);
  const int64_t tokens = TargetTokens(shape);
  const at::ScalarType type = ToScalarType(config.dtype);
  const Operands operands = {at::randn({tokens, (4 + 2 * key_value_heads) * 8}, at::kDouble).to(type),
                             at::randn({tokens, 4 * 8}, at::kDouble).to(type)};
  MicroBatch undivided = shape;
  undivided.spans.clear();
  const AttentionShape whole_shape = MakeAttentionShapes(undivided, config, at::kCPU).target;
  const Attended whole = Attend(options, whole_shape, operands, Keep::kSums);
  const std::vector<Attended> divided = AttendDivided(options, config, shape, contexts, operands, keep);
  for (int context = 0; context < contexts; ++context) {
    const Attended& own = divided[static_cast<size_t>(context)];
    EXPECT_LT(Difference(own.output, OwnRows(whole.output, shape, context)), tolerance);
    EXPECT_LT(Difference(own.gradient, OwnRows(whole.gradient, shape, context)), tolerance);
    EXPECT_EQ(own.exchanges, !AnyRowIsDivided(shape) ? 0 : keep == Keep::kSumsAndReceived ? 2 : 3);
  }
}

class DividedRows : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(Layouts, DividedRows,
                         ::testing::Values(Layout::kPadded, Layout::kPacked, Layout::kConcatenated));

TEST_P(DividedRows, EqualsThatOfTheWholeMicroBatch) {
  const std::pair<DataType, double> tolerances[] = {
      {DataType::kFloat64, 1e-13}, {DataType::kFloat32, 3e-6}, {DataType::kBFloat16, 3e-2}};
  for (const auto& [type, tolerance] : tolerances) {
    const ModelConfig config = SmallConfig(type);
    for (const Placement& placement : Placements()) {
      const MicroBatch shape = Shape(config, placement, GetParam());
      for (const int64_t key_value_heads : {4, 2, 1}) {
        ExpectDividedEqualsWhole(config, key_value_heads, shape, placement.contexts, Keep::kSums, tolerance);
      }
      for (const Keep keep : {Keep::kNothing, Keep::kSumsAndReceived, Keep::kSumsAndAhead}) {
        ExpectDividedEqualsWhole(config, 2, shape, placement.contexts, keep, tolerance);
      }
    }
  }
}

TEST(DividedAttention, EqualsThatOfTheWholeMicroBatchHoweverItIsPlaced) {
  const ModelConfig config = SmallConfig(DataType::kFloat64);
  std::mt19937 random(7);
  const auto below = [&](uint32_t end) {
    return std::uniform_int_distribution<uint32_t>(0, end - 1)(random);
  };
  for (int i = 0; i < 150; ++i) {
    const uint32_t contexts = 2U << below(3);
    std::vector<TestSample> samples;
    std::vector<Span> spans;
    for (uint32_t rows = 1 + below(6); rows > 0; --rows) {
      uint32_t ranks = 1;
      while (ranks < contexts && below(3) > 0) ranks *= 2;
      spans.push_back({below(contexts / ranks) * ranks, ranks});
      samples.push_back({0, 2 * ranks + below(50)});
    }
    MicroBatch shape = MakeMicroBatch(config, samples, Layout::kPacked);
    shape.spans = spans;
    ExpectDividedEqualsWhole(config, 2, shape, static_cast<int>(contexts), Keep::kNothing, 1e-13);
  }
}

at::Tensor Heads(int64_t heads, int64_t length) { return at::randn({2, heads, length, 8}, at::kDouble); }

TEST(AttentionKernel, ProductsEqualTheFusedKernel) {
  const RowBegins rows;
  for (const bool causal : {false, true}) {
    const AttentionOptions options = {.heads = 4, .key_value_heads = 2, .causal = causal, .scale = 0.4};
    at::manual_seed(3);
    const AttentionOperands piece = {Heads(4, 70), Heads(2, causal ? 70 : 45), Heads(2, causal ? 70 : 45)};
    const at::Tensor gradient = Heads(4, 70);
    const KernelResult fused = KernelForward(options, rows, piece);
    const KernelResult products = ProductForward(options, piece);
    EXPECT_LT(Difference(products.output, fused.output), 1e-13);
    EXPECT_LT(Difference(products.log_sums, fused.log_sums), 1e-13);
    const AttentionOperands expected = {at::empty_like(piece.query), at::empty_like(piece.key),
                                        at::empty_like(piece.value)};
    KernelBackward(options, rows, piece, fused, gradient, Write::kOverwrite, expected);
    const AttentionOperands found = ProductBackward(options, piece, products, gradient);
    EXPECT_LT(Difference(found.query, expected.query), 1e-13);
    EXPECT_LT(Difference(found.key, expected.key), 1e-13);
    EXPECT_LT(Difference(found.value, expected.value), 1e-13);
  }
}

TEST(AttentionKernel, MergesWhatIsSeenInTwoPlaces) {
  const RowBegins rows;
  const AttentionOptions options = {.heads = 4, .key_value_heads = 2, .causal = false, .scale = 0.4};
  const AttentionOperands piece = {Heads(4, 9), Heads(2, 31), Heads(2, 31)};
  const auto keys = [&](int64_t begin, int64_t length) {
    return AttentionOperands{piece.query, piece.key.narrow(2, begin, length),
                             piece.value.narrow(2, begin, length)};
  };
  const KernelResult whole = KernelForward(options, rows, piece);
  const KernelResult merged = KernelForward(options, rows, keys(0, 5));
  Merge(KernelForward(options, rows, keys(5, 26)), merged);
  EXPECT_LT(Difference(merged.output, whole.output), 1e-14);
  EXPECT_LT(Difference(merged.log_sums, whole.log_sums), 1e-14);
}

}  // namespace
}  // namespace penstock::worker
