#include "worker/model/whole_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/tensor_slices.h"

namespace penstock::worker {
namespace {

TEST(WholeGradients, AreSummedOverTheRanksThatHaveThem) {
  const ModelConfig config = WithFourHeads(SmallLlamaConfig(DataType::kFloat64), 2);
  RunStageGroup({.tensors = 4}, [&](ThreadStageGroup& group) {
    const int rank = group.place().tensor;
    const FlatParameters flat =
        MakeFlatParameters(StageParameterSpecs(config, {0, 1, false, false}, group.place()),
                           /*seed=*/1, at::kDouble, at::kCPU);
    ASSERT_EQ(flat.spans.size(), 1U);
    for (const NamedParameter& parameter : flat.parameters) parameter.gradient.fill_(1 << rank);
    SumWholeGradients(flat, flat.spans.front(), group);
    EXPECT_TRUE(group.status().ok()) << group.status();
    EXPECT_EQ(group.counts().sums, 1);
    for (const NamedParameter& parameter : flat.parameters) {
      int64_t begin = 0;
      for (const OwnBlock& own : parameter.part.blocks) {
        int expected = 0;
        for (int holder = own.first_holder; holder < own.first_holder + own.holders; ++holder)
          expected += 1 << holder;
        const at::Tensor block = parameter.gradient.flatten().narrow(0, begin, own.block.elements());
        EXPECT_TRUE(block.eq(expected).all().item<bool>()) << parameter.name;
        begin += own.block.elements();
      }
    }
  });
}

TEST(WholeGradients, ExchangeNothingWhereARankHasAllOrASpanIsDivided) {
  const ModelConfig config = SmallConfig(DataType::kFloat64);
  ThreadStageGroup sole({}, nullptr, nullptr, nullptr);
  const FlatParameters flat = MakeFlatParameters(StageParameterSpecs(config, {0, 1, false, false}),
                                                 /*seed=*/1, at::kDouble, at::kCPU);
  flat.gradients.fill_(3);
  SumWholeGradients(flat, flat.spans.front(), sole);
  EXPECT_TRUE(flat.gradients.eq(3).all().item<bool>());

  RunStageGroup({.tensors = 2}, [&](ThreadStageGroup& group) {
    ParameterSpec spec = {.name = "a", .shape = {4, 2}};
    spec.part = PartByColumns(spec.shape, group.place());
    const FlatParameters divided = MakeFlatParameters({spec}, /*seed=*/1, at::kDouble, at::kCPU);
    SumWholeGradients(divided, divided.spans.front(), group);
    EXPECT_EQ(group.counts().sums, 0);
  });
}

}  // namespace
}  // namespace penstock::worker
