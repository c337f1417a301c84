#include "worker/shares/share_layout.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/worker/tensor_slices.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/model/flat_parameters.h"
#include "worker/optimizer/adamw.h"
#include "worker/optimizer/parameter_slice.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kLayoutSeed = 7;

using Weights = std::vector<uint32_t>;

ShareLayout LayoutOf(const ModelConfig& model, const Weights& weights) {
  return {model.layers, weights, [&](const StageRange& range, const GroupPlace& place) {
            return StageParameterSpecs(model, range, place);
          }};
}

ShareLayout LayoutOf(const ModelConfig& model, uint32_t ranks) { return LayoutOf(model, Weights(ranks, 1)); }

// Those of equal shares, and others.
std::vector<Weights> SomeWeights() {
  std::vector<Weights> all;
  for (const size_t ranks : {1, 2, 3, 4, 7, 64}) all.emplace_back(ranks, 1);
  for (const Weights& weights : {Weights{3, 1, 0, 2}, Weights{0, 0, 1, 0}, Weights{1, 1 << 20, 5},
                                 Weights{1 << 20, 1 << 20, 1}, Weights{7, 7, 7}})
    all.push_back(weights);
  return all;
}

// As one rank has them.
std::vector<ParameterSpec> WholeSpecs(const ModelConfig& model) {
  return StageParameterSpecs(model, {.first_layer = 0, .layers = model.layers, .first = true, .last = true});
}

// By the names alone.
int64_t LayerOf(const std::string& name, const ModelConfig& model) {
  const auto number_behind = [&](const std::string& prefix) {
    return std::stoll(name.substr(prefix.size()));
  };
  const auto numbered = [&](const std::string& prefix) {
    return name.starts_with(prefix) && std::isdigit(name[prefix.size()]) != 0;
  };
  if (numbered("layers.")) return number_behind("layers.");
  if (numbered("encoder.")) return number_behind("encoder.");
  if (numbered("decoder.")) return model.encoder_layers + number_behind("decoder.");
  if (name.starts_with("encoder.final_norm")) return model.encoder_layers - 1;
  if (name.starts_with("decoder.relative_bias")) return model.encoder_layers;
  // With tied embeddings the encoder, which comes first, has it.
  if (name.starts_with("decoder.embedding")) return model.tied_embeddings ? 0 : model.encoder_layers;
  if (name.starts_with("final_norm") || name.starts_with("head")) return model.layers - 1;
  return 0;
}

class ShareLayoutTest : public ::testing::TestWithParam<DividedModel> {
 protected:
  const ModelConfig model_ = GetParam().config(DataType::kFloat64);
};
INSTANTIATE_TEST_SUITE_P(Models, ShareLayoutTest, ::testing::ValuesIn(DividedModels()), NameOfModel);

TEST_P(ShareLayoutTest, EveryElementIsInOneShareAndHasItsInitialValue) {
  const FlatParameters whole = MakeFlatParameters(WholeSpecs(model_), kLayoutSeed, at::kDouble, at::kCPU);
  for (const Weights& weights : SomeWeights()) {
    const ShareLayout layout = LayoutOf(model_, weights);
    const auto ranks = static_cast<uint32_t>(weights.size());
    std::map<std::string, at::Tensor> seen;
    for (const NamedParameter& parameter : whole.parameters)
      seen[parameter.name] = at::zeros({parameter.value.numel()}, at::kLong);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const FlatParameters share =
          MakeFlatParameters(layout.SpecsOf(rank), kLayoutSeed, at::kDouble, at::kCPU);
      for (const NamedParameter& parameter : share.parameters) {
        const ElementInterval own = layout.Of(layout.IndexOf(parameter.name), rank);
        ASSERT_EQ(parameter.value.sizes(), at::IntArrayRef({own.size()}));
        EXPECT_LE(parameter.part.blocks.size(), 3U);
        seen.at(parameter.name).narrow(0, own.begin, own.size()).add_(1);
        const auto of_whole = std::ranges::find(whole.parameters, parameter.name, &NamedParameter::name);
        const at::Tensor flat = of_whole->value.flatten();
        EXPECT_TRUE(parameter.value.equal(flat.narrow(0, own.begin, own.size()))) << parameter.name;
      }
    }
    for (const auto& [name, counts] : seen)
      EXPECT_TRUE(counts.eq(1).all().item<bool>()) << name << ", " << ranks << " ranks";
  }
}

TEST_P(ShareLayoutTest, ARankHasItsPartOfEveryLayer) {
  std::vector<int64_t> elements(static_cast<size_t>(model_.layers), 0);
  for (const ParameterSpec& spec : WholeSpecs(model_))
    elements[static_cast<size_t>(LayerOf(spec.name, model_))] += WholeBlock(spec.shape).elements();
  constexpr uint32_t kRanks = 5;
  const ShareLayout layout = LayoutOf(model_, kRanks);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::vector<int64_t> own(elements.size(), 0);
    for (const ParameterSpec& spec : layout.SpecsOf(rank))
      own[static_cast<size_t>(LayerOf(spec.name, model_))] += spec.part.shape[0];
    for (size_t layer = 0; layer < own.size(); ++layer)
      EXPECT_EQ(own[layer], (rank + 1) * elements[layer] / kRanks - rank * elements[layer] / kRanks);
  }
}

TEST_P(ShareLayoutTest, ARanksPartOfALayerIsAsLargeAsItsWeightSaysToWithinAnElement) {
  for (const Weights& weights : SomeWeights()) {
    const ShareLayout layout = LayoutOf(model_, weights);
    uint64_t all = 0;
    for (const uint32_t weight : weights) all += weight;
    EXPECT_EQ(layout.all_weights(), all);
    for (uint32_t rank = 0; rank < layout.ranks(); ++rank) {
      std::vector<int64_t> own(static_cast<size_t>(model_.layers), 0);
      for (const ParameterSpec& spec : layout.SpecsOf(rank))
        own[static_cast<size_t>(LayerOf(spec.name, model_))] += spec.part.shape[0];
      for (size_t layer = 0; layer < own.size(); ++layer) {
        const double exact =
            static_cast<double>(layout.layers()[layer]) * weights[rank] / static_cast<double>(all);
        EXPECT_LT(std::abs(static_cast<double>(own[layer]) - exact), 1) << "rank " << rank;
        EXPECT_TRUE(weights[rank] > 0 || own[layer] == 0);
      }
    }
  }
}

TEST_P(ShareLayoutTest, WeightsThatAreAllAlikeGiveEqualShares) {
  const ShareLayout equal = LayoutOf(model_, 5), alike = LayoutOf(model_, Weights(5, 1 << 20));
  for (const ParameterSpec& spec : WholeSpecs(model_)) {
    const size_t parameter = equal.IndexOf(spec.name);
    for (uint32_t rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(alike.Of(parameter, rank).begin, equal.Of(parameter, rank).begin);
      EXPECT_EQ(alike.Of(parameter, rank).end, equal.Of(parameter, rank).end);
    }
  }
}

// Elements of a large layer times the largest weights of many ranks need more than 64 bits.
TEST(ShareLayout, OfALargeLayerAndLargeWeightsLeavesNothingOut) {
  constexpr int64_t kElements = int64_t{1} << 37;
  Weights weights(1 << 12, 1 << 20);
  weights[5] = 1;
  const ShareLayout layout(1, weights, [](const StageRange&, const GroupPlace&) {
    return std::vector<ParameterSpec>{{.name = "large", .shape = {kElements}}};
  });
  int64_t end = 0;
  for (uint32_t rank = 0; rank < layout.ranks(); ++rank) {
    EXPECT_EQ(layout.Of(0, rank).begin, end);
    end = layout.Of(0, rank).end;
  }
  EXPECT_EQ(end, kElements);
  EXPECT_LT(layout.Of(0, 5).size(), 64);
}

// A vector is not decayed, and a matrix is though a share has it in one dimension.
TEST_P(ShareLayoutTest, AStepChangesSharesAsItChangesTheWhole) {
  const TrainingConfig training = {.learning_rate = {.peak = 0.1}, .weight_decay = 0.3};
  const auto step = [&](const FlatParameters& flat) {
    for (const NamedParameter& parameter : flat.parameters) {
      parameter.value.add_(1);
      parameter.gradient.copy_(parameter.value.sin());
    }
    const auto optimizer = *AdamW::Create(training, {&flat});
    const double squares = optimizer->SumsOfSquares()->item<double>();
    EXPECT_TRUE(optimizer->Step(0, 0.5).ok());
    return squares;
  };
  const FlatParameters whole = MakeFlatParameters(WholeSpecs(model_), kLayoutSeed, at::kDouble, at::kCPU);
  step(whole);
  double expected_squares = 0;
  for (const NamedParameter& parameter : whole.parameters)
    expected_squares += parameter.gradient.square().sum().item<double>();
  constexpr uint32_t kRanks = 3;
  const ShareLayout layout = LayoutOf(model_, kRanks);
  double squares = 0;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const FlatParameters share = MakeFlatParameters(layout.SpecsOf(rank), kLayoutSeed, at::kDouble, at::kCPU);
    squares += step(share);
    for (const NamedParameter& parameter : share.parameters) {
      const ElementInterval own = layout.Of(layout.IndexOf(parameter.name), rank);
      const auto of_whole = std::ranges::find(whole.parameters, parameter.name, &NamedParameter::name);
      const at::Tensor expected = of_whole->value.flatten().narrow(0, own.begin, own.size());
      EXPECT_TRUE(parameter.value.equal(expected)) << parameter.name;
    }
  }
  EXPECT_NEAR(squares, expected_squares, 1e-12 * expected_squares);
}

TEST_P(ShareLayoutTest, WhatSharesWriteIsTheWholeParameter) {
  constexpr uint32_t kRanks = 3;
  const ShareLayout layout = LayoutOf(model_, kRanks);
  std::map<std::string, int64_t> elements;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    const FlatParameters share = MakeFlatParameters(layout.SpecsOf(rank), kLayoutSeed, at::kDouble, at::kCPU);
    for (const NamedParameter& parameter : share.parameters) {
      for (const NamedTensor& entry :
           EntriesOf({{.slice = SliceOf(parameter, /*tensor_rank=*/0), .values = parameter.value}})) {
        const EntryName name = ParseEntryName(entry.name);
        EXPECT_FALSE(name.is_block) << entry.name;
        elements[name.tensor] += entry.value.numel();
      }
    }
  }
  for (const ParameterSpec& spec : WholeSpecs(model_))
    EXPECT_EQ(elements[spec.name], WholeBlock(spec.shape).elements()) << spec.name;
}

// As simulated devices have: most ranks have nothing.
TEST(ShareLayout, OfLayersWithOneElementHasEmptyShares) {
  constexpr uint32_t kRanks = 4;
  const ShareLayout layout(2, Weights(kRanks, 1), [](const StageRange& range, const GroupPlace&) {
    return std::vector<ParameterSpec>{{.name = std::to_string(range.first_layer), .shape = {1}}};
  });
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(layout.SpecsOf(rank).size(), rank == kRanks - 1 ? 2U : 0U);
    const FlatParameters share = MakeFlatParameters(layout.SpecsOf(rank), kLayoutSeed, at::kFloat, at::kCPU);
    const auto optimizer = *AdamW::Create({}, {&share});
    EXPECT_EQ(optimizer->SumsOfSquares()->item<double>(), 0);
    EXPECT_TRUE(optimizer->Step(0, 1).ok());
  }
}

}  // namespace
}  // namespace penstock::worker
