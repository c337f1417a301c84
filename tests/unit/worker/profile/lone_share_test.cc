// What a context rank computes of divided rows when it is measured alone, against the same rank among others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/profile/work_clock.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/token_batch.h"
#include "worker/model/transformer_stage.h"
#include "worker/profile/context_shares.h"
#include "worker/profile/lone_rank.h"
#include "worker/profile/stage_run.h"

namespace penstock::worker {
namespace {

constexpr StageRange kLayer = {0, 1, false, false};
constexpr int kContexts = 2;

ModelConfig SmallModel() {
  return {.layers = 2, .hidden = 48, .heads = 4, .ffn = 96, .vocab = 64, .max_sequence_length = 64};
}

MicroBatch Divided() { return DividedShape(PaddedShape(2, {0, 64}), kContexts); }

// Forward and backward; the layer's output. Undefined where a pass failed.
at::Tensor RunLayer(StageGroup& group) {
  const ModelConfig config = SmallModel();
  const MicroBatch shape = Divided();
  auto stage = MakeTransformerStage(config, kLayer, /*seed=*/0, at::kCPU, group);
  if (!stage.ok()) return {};
  (*stage)->ZeroGradients();
  const std::vector<std::vector<int32_t>> ids(shape.sample_ids.size(), std::vector<int32_t>(64, 0));
  const auto staged =
      MakeTokenBatch(shape, ids, config, TokenNeedsOf(config, kLayer), at::kCPU, group.place());
  if (!staged.ok()) return {};
  const std::vector<int64_t> sizes = BoundaryShape(shape, config, 0, group.place());
  const at::Tensor input = at::linspace(-1, 1, c10::multiply_integers(sizes), at::kFloat).view(sizes);
  auto forward = (*stage)->Forward(shape, *ToDevice(*staged, at::kCPU), input, {}, 1, {});
  if (!forward.ok()) return {};
  at::Tensor output = forward->output;
  const auto backward = (*stage)->Backward(std::move(*forward), at::ones_like(output), {}, {});
  return backward.ok() ? output : at::Tensor();
}

TEST(LoneShare, QueriesThatSeeNoKeysOfOthersComeOutAsAmongOthers) {
  at::Tensor among_others;
  RunStageGroup({.contexts = kContexts}, [&](ThreadStageGroup& group) {
    const at::Tensor output = RunLayer(group);
    if (group.place().context == 0) among_others = output;
  });
  LoneRank rank({.context = 0, .contexts = kContexts});
  const at::Tensor alone = RunLayer(rank);
  ASSERT_TRUE(alone.defined() && among_others.defined());
  ASSERT_EQ(alone.sizes(), among_others.sizes());
  // The first chunk of the first row, a quarter of its 64 tokens; the last one sees what others have.
  const auto rows = [](const at::Tensor& output, int64_t begin) {
    return output.flatten(0, -2).narrow(0, begin, 16);
  };
  EXPECT_TRUE(at::equal(rows(alone, 0), rows(among_others, 0)));
  EXPECT_FALSE(at::equal(rows(alone, 16), rows(among_others, 16)));
}

TEST(LoneShare, TakesTheWorkOfItsRankAmongOthers) {
  const WorkClock work;
  double start = work.Now();
  RunStageGroup({.contexts = kContexts},
                [](ThreadStageGroup& group) { EXPECT_TRUE(RunLayer(group).defined()); });
  const double among_others = work.Now() - start;
  start = work.Now();
  for (int context = 0; context < kContexts; ++context) {
    LoneRank rank({.context = context, .contexts = kContexts});
    EXPECT_TRUE(RunLayer(rank).defined());
  }
  // Rows that are made up are written once, those that are exchanged twice.
  EXPECT_NEAR((work.Now() - start) / among_others, 1, 0.02);
}

TEST(LoneShare, OfARunHasTheTokensOfAShare) {
  const WorkClock work;
  const NanosecondClock clock = [&] { return work.Now(); };
  auto run = StageRun::Create(SmallModel(), kLayer, {.context = 1, .contexts = kContexts}, 1, at::kCPU,
                              {clock, clock});
  auto whole = StageRun::Create(SmallModel(), kLayer, {}, 1, at::kCPU, {clock, clock});
  ASSERT_TRUE(run.ok() && whole.ok());
  ASSERT_TRUE(run->Prepare(Divided()).ok());
  ASSERT_TRUE(whole->Prepare(PaddedShape(2, {0, 64})).ok());
  const auto of_share = run->Once({});
  const auto of_whole = whole->Once({});
  ASSERT_TRUE(of_share.ok() && of_whole.ok());
  // Unmasked attention counts the same for each query and key, and causal one as if nothing were masked: of a
  // share own keys and received ones, which are three quarters of all.
  EXPECT_NEAR(of_share->forward_ns / of_whole->forward_ns, 1, 0.15);
}

}  // namespace
}  // namespace penstock::worker
