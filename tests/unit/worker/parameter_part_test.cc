// What tensor ranks have of the parameters: together everything, each its slice, with the values of the
// whole.
#include "worker/model/parameter_part.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/model/flat_parameters.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kPartSeed = 5;
constexpr StageRange kWholeModel = {.first_layer = 0, .layers = 4, .first = true, .last = true};

using ::testing::ElementsAre;

TEST(ParameterPart, RowsAreDividedByUnits) {
  const ParameterPart part = PartByRows({96, 5}, {{64, 8}, {16, 4}, {16, 4}}, {.tensor = 1, .tensors = 4});
  EXPECT_THAT(part.blocks, ElementsAre(OwnBlock{{16, 32, 0, 5}, 1, 1}, OwnBlock{{68, 72, 0, 5}, 1, 1},
                                       OwnBlock{{84, 88, 0, 5}, 1, 1}));
  EXPECT_THAT(part.shape, ElementsAre(24, 5));
  EXPECT_EQ(part.most_elements, 24 * 5);
}

TEST(ParameterPart, NeighboursShareWhatHasFewerUnits) {
  for (int rank = 0; rank < 4; ++rank) {
    const ParameterPart part = PartByRows({32}, {{16, 4}, {16, 2}}, {.tensor = rank, .tensors = 4});
    const int head = rank / 2;
    EXPECT_THAT(part.blocks, ElementsAre(OwnBlock{{0, 1, 4 * rank, 4 * rank + 4}, rank, 1},
                                         OwnBlock{{0, 1, 16 + 8 * head, 24 + 8 * head}, 2 * head, 2}));
    EXPECT_THAT(part.shape, ElementsAre(12));
  }
}

TEST(ParameterPart, TheLastRankHasTheRest) {
  const ParameterPart last = PartByRows({17, 3}, {{17, 17}}, {.tensor = 2, .tensors = 3});
  EXPECT_THAT(last.blocks, ElementsAre(OwnBlock{{10, 17, 0, 3}, 2, 1}));
  const ParameterPart first = PartByRows({17, 3}, {{17, 17}}, {.tensor = 0, .tensors = 3});
  EXPECT_THAT(first.shape, ElementsAre(5, 3));
  EXPECT_EQ(first.most_elements, 21);
}

TEST(ParameterPart, ColumnsAreDivided) {
  const ParameterPart part = PartByColumns({5, 12}, {.tensor = 1, .tensors = 3});
  EXPECT_THAT(part.blocks, ElementsAre(OwnBlock{{0, 5, 4, 8}, 1, 1}));
  EXPECT_THAT(part.shape, ElementsAre(5, 4));
}

class PartsOfModels : public ::testing::TestWithParam<DividedModel> {};
INSTANTIATE_TEST_SUITE_P(Models, PartsOfModels, ::testing::ValuesIn(DividedModels()), NameOfModel);

TEST_P(PartsOfModels, BeginWithTheSlicesOfTheWholeValues) {
  for (const DataType type : {DataType::kFloat64, DataType::kBFloat16}) {
    const ModelConfig config = GetParam().config(type);
    const FlatParameters whole =
        MakeFlatParameters(StageParameterSpecs(config, kWholeModel), kPartSeed, ToScalarType(type), at::kCPU);
    for (const int tensors : {2, 4}) {
      for (int tensor = 0; tensor < tensors; ++tensor) {
        const FlatParameters own = MakeFlatParameters(
            StageParameterSpecs(config, kWholeModel, {.tensor = tensor, .tensors = tensors}), kPartSeed,
            ToScalarType(type), at::kCPU);
        ASSERT_EQ(own.parameters.size(), whole.parameters.size());
        for (size_t i = 0; i < own.parameters.size(); ++i) {
          const NamedParameter& parameter = own.parameters[i];
          EXPECT_EQ(parameter.name, whole.parameters[i].name);
          EXPECT_EQ(parameter.part.whole_shape, whole.parameters[i].value.sizes().vec());
          EXPECT_TRUE(parameter.value.equal(SliceOfWhole(parameter.part, whole.parameters[i].value)))
              << parameter.name;
        }
      }
    }
  }
}

TEST_P(PartsOfModels, HoldEveryElementAsOftenAsTheySay) {
  const ModelConfig config = GetParam().config(DataType::kFloat64);
  for (const int tensors : {2, 4}) {
    std::vector<at::Tensor> seen;
    for (int tensor = 0; tensor < tensors; ++tensor) {
      const std::vector<ParameterSpec> specs =
          StageParameterSpecs(config, kWholeModel, {.tensor = tensor, .tensors = tensors});
      seen.resize(specs.size());
      for (size_t i = 0; i < specs.size(); ++i) {
        if (!seen[i].defined()) seen[i] = at::zeros(specs[i].shape, at::kDouble);
        for (const OwnBlock& own : specs[i].part.blocks) {
          EXPECT_LE(own.first_holder, tensor);
          EXPECT_LT(tensor, own.first_holder + own.holders);
          BlockOfWhole(own.block, seen[i]).add_(1.0 / own.holders);
        }
        EXPECT_LE(c10::multiply_integers(specs[i].part.shape), specs[i].part.most_elements);
      }
    }
    for (const at::Tensor& times : seen) EXPECT_TRUE(times.equal(at::ones_like(times)));
  }
}

TEST(PartsOfModels, LieInTheSameBucketsOnAllTensorRanks) {
  ModelConfig config = SmallConfig(DataType::kFloat32);
  config.vocab = 4 * 40 + 3;
  // About where the embedding of the first ranks is below a bucket, and that of the last is not.
  for (int64_t bytes = 4000; bytes < 12000; bytes += 64) {
    std::vector<size_t> buckets;
    for (int tensor = 0; tensor < 4; ++tensor) {
      const FlatParameters flat =
          MakeFlatParameters(StageParameterSpecs(config, kWholeModel, {.tensor = tensor, .tensors = 4}),
                             kPartSeed, at::kFloat, at::kCPU, bytes);
      buckets.push_back(flat.buckets);
    }
    EXPECT_THAT(buckets, ::testing::Each(buckets.front())) << bytes;
  }
}

}  // namespace
}  // namespace penstock::worker
