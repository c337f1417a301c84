#include "worker/data/sample_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One sample: input 1 2 3 4, target 5 6 7.
class FakeDataset : public IndexedDataset {
 public:
  size_t size() const override { return 1; }
  size_t bytes_per_token() const override { return 2; }
  SampleLength Length(size_t) const override { return {.input = 4, .target = 3}; }
  absl::StatusOr<std::vector<int32_t>> Tokens(size_t) const override {
    return std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7};
  }
};

TEST(SampleTokens, ASampleThatFitsIsWhole) {
  for (const InputCut cut : {InputCut::kEnd, InputCut::kStart})
    EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 4, 3, cut), ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST(SampleTokens, AnInputLosesTheEndThatItIsToldTo) {
  EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 2, 3), ElementsAre(1, 2, 5, 6, 7));
  EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 2, 3, InputCut::kEnd), ElementsAre(1, 2, 5, 6, 7));
  EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 2, 3, InputCut::kStart), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 0, 3, InputCut::kStart), ElementsAre(5, 6, 7));
}

TEST(SampleTokens, ATargetLosesItsEnd) {
  for (const InputCut cut : {InputCut::kEnd, InputCut::kStart})
    EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 4, 1, cut), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(*SampleTokens(FakeDataset(), 0, 1, 2, InputCut::kStart), ElementsAre(4, 5, 6));
}

TEST(SampleTokens, AnotherDatasetIsNoticed) {
  EXPECT_THAT(std::string(SampleTokens(FakeDataset(), 1, 1, 1).status().message()), HasSubstr("sample 1"));
  EXPECT_THAT(std::string(SampleTokens(FakeDataset(), 0, 5, 1).status().message()), HasSubstr("5 + 1"));
}

// The same with weights 0.5, 0 and 2 of its target.
class WeightedDataset final : public FakeDataset {
 public:
  bool has_weights() const override { return true; }
  absl::StatusOr<std::vector<float>> TargetWeights(size_t) const override {
    return std::vector<float>{0.5F, 0, 2};
  }
};

TEST(SampleWeights, AreThoseThatThePlanCountsOn) {
  EXPECT_THAT(*SampleWeights(WeightedDataset(), 0, 3, true, 2.5), ElementsAre(0.5F, 0, 2));
  EXPECT_THAT(*SampleWeights(WeightedDataset(), 0, 3, false, 2), ElementsAre(0.5F, 0, 2));
  EXPECT_THAT(*SampleWeights(WeightedDataset(), 0, 2, true, 0.5), ElementsAre(0.5F, 0));
  EXPECT_THAT(*SampleWeights(FakeDataset(), 0, 3, true, std::nullopt), ElementsAre(1, 1, 1));
  EXPECT_THAT(*SampleWeights(FakeDataset(), 0, 3, true, 3), ElementsAre(1, 1, 1));
}

TEST(SampleWeights, OfAnotherDatasetAreRefused) {
  EXPECT_THAT(std::string(SampleWeights(WeightedDataset(), 0, 3, true, 2).status().message()),
              HasSubstr("sample 0 is planned with loss_weight 2, but the dataset's weights add up to 2.5"));
  EXPECT_THAT(std::string(SampleWeights(WeightedDataset(), 0, 3, true, std::nullopt).status().message()),
              HasSubstr("loss_weight unset"));
}

}  // namespace
}  // namespace penstock::worker
