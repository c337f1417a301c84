#include "worker/profile/stage_run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/worker/profile/work_clock.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/token_batch.h"
#include "worker/profile/measured_shapes.h"

namespace penstock::worker {
namespace {

constexpr int64_t kTokens = 4 * 32;

ModelConfig SmallStages() {
  return {.layers = 2, .hidden = 48, .heads = 4, .ffn = 96, .vocab = 64, .max_sequence_length = 32};
}

struct ForwardWork {
  double measured = 0;
  // Of the pass alone, with tokens that are loaded.
  double alone = 0;
};

std::optional<ForwardWork> WorkOfForward(const StageRange& range) {
  const ModelConfig config = SmallStages();
  const WorkClock work;
  const NanosecondClock clock = [&] { return work.Now(); };
  auto run = StageRun::Create(config, range, {}, 1, at::kCPU, {clock, clock});
  const MicroBatch shape = PaddedShape(4, {0, 32});
  if (!run.ok() || !run->Prepare(shape).ok()) return std::nullopt;
  const auto times = run->Once({});
  const std::vector<std::vector<int32_t>> ids(4, std::vector<int32_t>(32, 0));
  const auto staged = MakeTokenBatch(shape, ids, config, TokenNeedsOf(config, range), at::kCPU);
  if (!times.ok() || !staged.ok()) return std::nullopt;
  const auto tokens = ToDevice(*staged, at::kCPU);
  const at::Tensor input =
      range.first ? at::Tensor() : at::ones(BoundaryShape(shape, config, range.first_layer));
  const double start = work.Now();
  const auto forward = run->stages().front()->Forward(shape, *tokens, input, {}, 1, {});
  if (!forward.ok()) return std::nullopt;
  return ForwardWork{times->forward_ns, work.Now() - start};
}

TEST(StageRun, AForwardPassIncludesTheLoadOfTokensThatItNeeds) {
  const auto embedding = WorkOfForward({0, 0, true, false});
  ASSERT_TRUE(embedding.has_value());
  EXPECT_GE(embedding->measured, embedding->alone + 2 * kTokens) << "an id and a position each";
  const auto head = WorkOfForward({2, 0, false, true});
  ASSERT_TRUE(head.has_value());
  EXPECT_GE(head->measured, head->alone + 2 * (kTokens - 4)) << "a place and a label each";
  const auto layer = WorkOfForward({0, 1, false, false});
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(layer->measured, layer->alone);
}

}  // namespace
}  // namespace penstock::worker
