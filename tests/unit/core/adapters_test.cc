// What adapters alone that learn do to a job: its checks, its bytes, its profile.
#include "planner/core/contract/adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/adapted_profile.h"
#include "planner/core/cost/cost_model.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;

v1::ModelSpec Llama() {
  v1::ModelSpec model;
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(2);
  model.set_hidden(16);
  model.set_heads(4);
  model.set_key_value_heads(2);
  model.set_ffn(40);
  model.set_vocab(50);
  model.set_max_sequence_length(64);
  model.set_dtype(v1::DATA_TYPE_FLOAT32);
  model.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
  return model;
}

v1::Adapters AdaptersAt(uint32_t rank, const std::vector<v1::LinearLayer>& layers) {
  v1::Adapters adapters;
  adapters.set_rank(rank);
  for (const v1::LinearLayer layer : layers) adapters.add_targets(layer);
  return adapters;
}

const std::vector<v1::LinearLayer>& AllOfALlama() {
  static const std::vector<v1::LinearLayer> layers = {
      v1::LINEAR_LAYER_QUERY, v1::LINEAR_LAYER_KEY, v1::LINEAR_LAYER_VALUE, v1::LINEAR_LAYER_OUTPUT,
      v1::LINEAR_LAYER_GATE,  v1::LINEAR_LAYER_UP,  v1::LINEAR_LAYER_DOWN};
  return layers;
}

TEST(AdapterElementsTest, AreCountedByHand) {
  v1::ModelSpec model = Llama();
  *model.mutable_adapters() = AdaptersAt(3, AllOfALlama());
  // q and o 16 + 16, k and v 16 + 8, gate, up and down 16 + 40.
  EXPECT_EQ(AdapterElements(model, false, 1), 3 * (2 * 32 + 2 * 24 + 3 * 56));
  // Two ranks: q and o 16 + 8, k and v 16 + 4, the others 16 + 20.
  EXPECT_EQ(AdapterElements(model, false, 2), 3 * (2 * 24 + 2 * 20 + 3 * 36));
  // Four: each has a whole head of keys.
  EXPECT_EQ(AdapterElements(model, false, 4), 3 * (2 * 20 + 2 * 20 + 3 * 26));
  // A decoder of a T5 has two attentions.
  EXPECT_EQ(AdapterElements(model, true, 1), 3 * (4 * 32 + 4 * 24 + 3 * 56));
}

TEST(AdapterChecksOfAJob, NameTheField) {
  const auto refusal = [](v1::Adapters adapters, v1::ModelSpec model = Llama()) {
    *model.mutable_adapters() = std::move(adapters);
    return std::string(CheckAdapters(model).message());
  };
  EXPECT_EQ(refusal(AdaptersAt(8, AllOfALlama())), "");
  EXPECT_THAT(refusal(AdaptersAt(0, AllOfALlama())), HasSubstr("job.model.adapters.rank: 0"));
  EXPECT_THAT(refusal(AdaptersAt(5000, AllOfALlama())), HasSubstr("job.model.adapters.rank: 5000"));
  EXPECT_THAT(refusal(AdaptersAt(8, {})), HasSubstr("job.model.adapters.targets: there are none"));
  EXPECT_THAT(refusal(AdaptersAt(8, {v1::LINEAR_LAYER_UP, v1::LINEAR_LAYER_UP})),
              HasSubstr("UP is there twice"));
  v1::ModelSpec plain = Llama();
  plain.set_feed_forward(v1::FEED_FORWARD_GELU);
  EXPECT_THAT(refusal(AdaptersAt(8, AllOfALlama()), plain), HasSubstr("has no gate"));
  v1::ModelSpec experts = Llama();
  experts.set_experts(4);
  EXPECT_THAT(refusal(AdaptersAt(8, AllOfALlama()), experts), HasSubstr("a model with experts has none"));
  v1::Adapters negative = AdaptersAt(8, AllOfALlama());
  negative.set_alpha(-1);
  EXPECT_THAT(refusal(negative), HasSubstr("job.model.adapters.alpha: -1"));
}

class AdaptedJob : public ::testing::Test {
 protected:
  AdaptedJob() {
    *spec_.mutable_model()->mutable_adapters() =
        AdaptersAt(4, {v1::LINEAR_LAYER_QUERY, v1::LINEAR_LAYER_VALUE, v1::LINEAR_LAYER_DOWN});
  }
  v1::JobSpec spec_ = GptJob(2, 2, v1::POLICY_PACKED);
};

TEST_F(AdaptedJob, HoldsFrozenWeightsOnceAndStateOfItsAdapters) {
  v1::JobSpec whole = spec_;
  whole.mutable_model()->clear_adapters();
  const CostModel adapted = ModelOf(spec_);
  const CostModel full = ModelOf(whole);
  const double state = spec_.profile().state_bytes_per_parameter_byte();
  for (int stage = 0; stage < adapted.stages(); ++stage) {
    const int64_t layers = adapted.stage(stage).decoder_layers;
    const int64_t own =
        layers * AdapterElements(spec_.model(), false, 1) * spec_.profile().bytes_per_element();
    EXPECT_EQ(adapted.ParameterBytes(stage), own);
    EXPECT_NEAR(static_cast<double>(adapted.StaticBytes(stage)),
                static_cast<double>(full.StaticBytes(stage)) / state + state * static_cast<double>(own), 1);
    EXPECT_LT(adapted.LeastReduceNs(stage), full.LeastReduceNs(stage) + 1);
  }
}

TEST_F(AdaptedJob, SharesNoParametersOfStages) {
  spec_.mutable_model()->set_tied_head(true);
  EXPECT_EQ(ModelOf(spec_).StepBytes(), 8);
}

TEST_F(AdaptedJob, RefusesParameterShares) {
  spec_.mutable_planning()->set_parameter_shares(true);
  EXPECT_THAT(std::string(JobFromProto(spec_).status().message()),
              HasSubstr("job.planning.parameter_shares"));
}

v1::ProfileFile FileOf(const v1::JobSpec& job) {
  v1::ProfileFile file;
  *file.mutable_model() = job.model();
  *file.mutable_profile() = job.profile();
  return file;
}

TEST_F(AdaptedJob, HasAProfileWithoutProductsForFrozenWeights) {
  v1::JobSpec whole = spec_;
  whole.mutable_model()->clear_adapters();
  v1::ProfileFile file = FileOf(whole);
  const v1::LayerCost before = file.profile().layers(0);
  ASSERT_TRUE(AdaptProfile(spec_.model().adapters(), &file).ok());
  const v1::LayerCost& after = file.profile().layers(0);
  const double phi = static_cast<double>(AdapterElements(spec_.model(), false, 1)) /
                     static_cast<double>(LinearElements(spec_.model(), false));
  EXPECT_DOUBLE_EQ(after.forward().target_token_ns(), before.forward().target_token_ns() * (1 + phi));
  EXPECT_DOUBLE_EQ(after.forward().target_square_ns(), before.forward().target_square_ns());
  const double forward = 1 + phi;
  const double input = before.backward_ratio_none() * before.backward_input_share();
  EXPECT_NEAR(after.backward_ratio_none() * forward, input + 3 * phi, 1e-12);
  EXPECT_NEAR(after.backward_ratio_none() * forward * (1 - after.backward_input_share()), 2 * phi, 1e-12);
  EXPECT_LT(after.backward_ratio_none(), before.backward_ratio_none());
  // Again it stays; others are refused.
  const std::string same = file.SerializeAsString();
  EXPECT_TRUE(AdaptProfile(spec_.model().adapters(), &file).ok());
  EXPECT_EQ(file.SerializeAsString(), same);
  EXPECT_FALSE(AdaptProfile(AdaptersAt(9, {v1::LINEAR_LAYER_UP}), &file).ok());
}

TEST_F(AdaptedJob, HasBackwardFormsWithoutProductsForFrozenWeights) {
  v1::JobSpec whole = spec_;
  whole.mutable_model()->clear_adapters();
  v1::LayerCost& layer = *whole.mutable_profile()->mutable_layers(0);
  // As the ratios say: of two forward passes one for inputs, one for weights.
  *layer.mutable_backward_input() = *layer.mutable_backward_weight() = layer.forward();
  v1::ProfileFile file = FileOf(whole);
  ASSERT_TRUE(AdaptProfile(spec_.model().adapters(), &file).ok());
  const v1::LayerCost& after = file.profile().layers(0);
  const double token = layer.forward().target_token_ns();
  const double phi = static_cast<double>(AdapterElements(spec_.model(), false, 1)) /
                     static_cast<double>(LinearElements(spec_.model(), false));
  EXPECT_DOUBLE_EQ(after.backward_input().target_token_ns(), token * (1 + phi));
  EXPECT_DOUBLE_EQ(after.backward_input().target_square_ns(), layer.forward().target_square_ns());
  EXPECT_DOUBLE_EQ(after.backward_weight().target_token_ns(), 2 * phi * token);
  EXPECT_EQ(after.backward_weight().target_square_ns(), 0);
  EXPECT_EQ(after.backward_weight().fixed_ns(), 0);
}

}  // namespace
}  // namespace penstock::core
