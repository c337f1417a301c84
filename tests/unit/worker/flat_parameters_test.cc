#include "worker/model/flat_parameters.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

ModelConfig FourLayerT5() {
  return {.layers = 4,
          .hidden = 8,
          .heads = 2,
          .attention_inner = 8,
          .ffn = 12,
          .vocab = 17,
          .max_sequence_length = 8,
          .architecture = Architecture::kT5,
          .feed_forward = FeedForward::kRelu,
          .encoder_layers = 2};
}

// The middle of the model: both stacks, and what they share with other stages.
std::vector<ParameterSpec> Specs() {
  return StageParameterSpecs(FourLayerT5(), {.first_layer = 1, .layers = 2});
}

class FlatParametersTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  const FlatParameters flat_ = MakeFlatParameters(Specs(), /*seed=*/3, GetParam(), at::kCPU);
};
INSTANTIATE_TEST_SUITE_P(Types, FlatParametersTest, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return c10::toString(info.param); });

TEST_P(FlatParametersTest, AreViewsWithTheirInitialValues) {
  const std::vector<ParameterSpec> specs = Specs();
  ASSERT_EQ(flat_.parameters.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const NamedParameter& parameter = flat_.parameters[i];
    EXPECT_EQ(parameter.name, specs[i].name);
    EXPECT_TRUE(parameter.value.equal(InitialValue(specs[i], 3, GetParam(), at::kCPU))) << parameter.name;
    EXPECT_TRUE(parameter.value.is_alias_of(flat_.values));
    EXPECT_TRUE(parameter.gradient.is_alias_of(flat_.gradients));
    EXPECT_EQ(parameter.value.storage_offset(), parameter.offset);
    EXPECT_EQ(parameter.gradient.storage_offset(), parameter.offset);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parameter.value.const_data_ptr()) % 64, 0U) << parameter.name;
  }
  EXPECT_EQ(flat_.gradients.scalar_type(), AccumulationType(GetParam()));
  EXPECT_EQ(flat_.gradients.abs().max().item<double>(), 0);
}

TEST_P(FlatParametersTest, DoNotOverlap) {
  for (const NamedParameter& parameter : flat_.parameters) parameter.gradient.add_(1);
  EXPECT_EQ(flat_.gradients.max().item<double>(), 1);
}

// The bytes that a bucket has at least, but for the one of the highest layers.
constexpr int64_t kSmallBucket = 1 << 10;

std::vector<std::string> FirstOfEachBucket(int64_t bucket_bytes, at::ScalarType type) {
  const FlatParameters flat = MakeFlatParameters(
      StageParameterSpecs(FourLayerT5(), {.first_layer = 0, .layers = 4, .first = true, .last = true}),
      /*seed=*/3, type, at::kCPU, bucket_bytes);
  std::vector<std::string> first;
  int64_t end = 0;
  for (size_t i = 0; i < flat.buckets; ++i) {
    const FlatSpan& bucket = flat.spans[i];
    EXPECT_EQ(bucket.begin, end) << "end to end";
    end = bucket.end;
    if (i + 1 < flat.buckets) {
      EXPECT_GE(bucket.size() * static_cast<int64_t>(flat.gradients.element_size()), bucket_bytes);
    }
    for (const NamedParameter& parameter : flat.parameters) {
      if (!parameter.shared && parameter.offset == bucket.begin) first.push_back(parameter.name);
    }
  }
  return first;
}

TEST_P(FlatParametersTest, ABucketBeginsWithALayer) {
  using ::testing::ElementsAre;
  EXPECT_THAT(FirstOfEachBucket(1, GetParam()),
              ElementsAre("embedding.token.weight", "encoder.0.attention_norm.weight",
                          "encoder.1.attention_norm.weight", "decoder.0.attention_norm.weight",
                          "decoder.1.attention_norm.weight"));
  EXPECT_THAT(FirstOfEachBucket(kBucketBytes, GetParam()), ElementsAre("embedding.token.weight"));
  EXPECT_THAT(FirstOfEachBucket(kSmallBucket, GetParam()).size(), ::testing::Gt(2U));
}

TEST_P(FlatParametersTest, AreInOneSpanButThoseThatStagesShare) {
  std::vector<int> spans_of(flat_.parameters.size());
  for (const FlatSpan& span : flat_.spans) {
    for (size_t i = 0; i < spans_of.size(); ++i) {
      const NamedParameter& parameter = flat_.parameters[i];
      if (parameter.offset < span.begin || parameter.offset >= span.end) continue;
      ++spans_of[i];
      EXPECT_LE(parameter.offset + parameter.value.numel(), span.end) << parameter.name;
      EXPECT_EQ(parameter.shared, span.begin > 0) << parameter.name;
      if (parameter.shared) {
        EXPECT_EQ(span.size(), parameter.value.numel()) << parameter.name;
      }
    }
  }
  EXPECT_EQ(flat_.buckets, 1U) << "a small stage";
  EXPECT_EQ(flat_.spans.size(), 3U) << "the tables of both stacks by themselves";
  EXPECT_THAT(spans_of, ::testing::Each(1));
  EXPECT_TRUE(std::ranges::is_sorted(flat_.spans, {}, &FlatSpan::begin));
}

}  // namespace
}  // namespace penstock::worker
