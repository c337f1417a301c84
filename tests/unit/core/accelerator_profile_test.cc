#include "planner/core/cost/accelerator_profile.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "planner/core/contract/model_experts.h"
#include "tests/support/status_matchers.h"

namespace penstock::core {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Qwen3 30B-A3B.
v1::ModelSpec Experts() {
  v1::ModelSpec model;
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(48);
  model.set_hidden(2048);
  model.set_heads(32);
  model.set_attention_inner(4096);
  model.set_key_value_heads(4);
  model.set_ffn(768);
  model.set_experts(128);
  model.set_experts_per_token(8);
  model.set_vocab(151936);
  model.set_max_sequence_length(131072);
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  model.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
  model.set_feed_forward_biases(v1::BIASES_NONE);
  model.set_attention_biases(v1::BIASES_NONE);
  model.set_norm(v1::NORM_RMS);
  model.set_position(v1::POSITION_ROTARY);
  return model;
}

// The first layer and the third are dense.
v1::ModelSpec SomeExperts() {
  v1::ModelSpec model = Experts();
  model.add_dense_layers(1);
  model.add_dense_layers(3);
  model.set_dense_ffn(6144);
  return model;
}

v1::ModelSpec Dense() {
  v1::ModelSpec model = Experts();
  model.set_experts(0);
  model.set_experts_per_token(0);
  model.clear_feed_forward_biases();
  model.set_feed_forward_biases(v1::BIASES_NONE);
  model.set_ffn(6144);
  return model;
}

const v1::LayerCost& LayerOf(const v1::ProfileFile& file, const std::string& name) {
  for (const v1::LayerCost& layer : file.profile().layers())
    if (layer.name() == name) return layer;
  ADD_FAILURE() << "no layer '" << name << "'";
  return v1::LayerCost::default_instance();
}

v1::ProfileFile ProfileOf(const v1::ModelSpec& model, const Accelerator& accelerator = {}) {
  const absl::StatusOr<v1::ProfileFile> file = AcceleratorProfile(model, accelerator);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.value_or(v1::ProfileFile());
}

TEST(AcceleratorProfile, ALayerTakesWhatItsMatricesAndItsAttentionTake) {
  const v1::ProfileFile file = ProfileOf(Experts());
  const v1::LayerCost& layer = LayerOf(file, "layer");
  // 18.9 million elements of attention, 128 experts of 4.7 million and a router; a token goes to 8 of them.
  const double attention = 2048.0 * (2 * 4096 + 2 * 512);
  const double expert = 3.0 * 2048 * 768;
  const double router = 2048.0 * 128;
  EXPECT_DOUBLE_EQ(layer.parameter_bytes(), 2 * (attention + 128 * expert + router));
  EXPECT_NEAR(layer.forward().target_token_ns(), 2 * (attention + 8 * expert + router) / 200e12 * 1e9, 1e-9);
  EXPECT_NEAR(layer.forward().target_square_ns(), 0.04096, 1e-9);
  EXPECT_EQ(layer.stored_none().target_token_bytes(), 137'216);
  EXPECT_EQ(layer.stored_selective().target_token_bytes(), 71'680);
  EXPECT_EQ(layer.stored_full().target_token_bytes(), 4096);
  EXPECT_GT(layer.peak().target_token_bytes(), layer.stored_none().target_token_bytes());
  EXPECT_NEAR(LayerOf(file, "head").forward().target_token_ns(), 3111.649, 1e-3);
  EXPECT_EQ(file.profile().embedding_parameter_bytes(), 622'329'856);
  EXPECT_EQ(file.profile().state_bytes_per_parameter_byte(), 8);
  EXPECT_EQ(file.profile().sharded_state_bytes_per_parameter_byte(), 6);
}

TEST(AcceleratorProfile, LayersWithoutExpertsCostWhatThoseOfADenseModelOfTheirWidthDo) {
  const v1::ProfileFile file = ProfileOf(SomeExperts());
  v1::LayerCost dense = LayerOf(file, "dense");
  const v1::ProfileFile all_dense = ProfileOf(Dense());
  dense.set_name("layer");
  EXPECT_TRUE(MessageDifferencer::Equals(dense, LayerOf(all_dense, "layer")))
      << dense.ShortDebugString() << "\n"
      << all_dense.ShortDebugString();
  // Those with experts are as where all layers have some.
  EXPECT_TRUE(MessageDifferencer::Equals(LayerOf(file, "layer"), LayerOf(ProfileOf(Experts()), "layer")));
  v1::JobSpec job;
  *job.mutable_model() = file.model();
  *job.mutable_profile() = file.profile();
  EXPECT_TRUE(CheckProfiledLayers(job).ok());
}

TEST(AcceleratorProfile, WithoutAWidthOfTheirOwnDenseLayersHaveThatOfAnExpert) {
  v1::ModelSpec model = SomeExperts();
  model.set_dense_ffn(0);
  v1::ModelSpec narrow = Dense();
  narrow.set_ffn(768);
  EXPECT_EQ(LayerOf(ProfileOf(model), "dense").forward().target_token_ns(),
            LayerOf(ProfileOf(narrow), "layer").forward().target_token_ns());
}

TEST(AcceleratorProfile, ASharedExpertIsPartOfLayersWithExpertsAlone) {
  v1::ModelSpec model = SomeExperts();
  model.set_shared_expert_ffn(1024);
  model.set_gated_shared_expert(true);
  const v1::ProfileFile file = ProfileOf(model);
  const v1::ProfileFile without = ProfileOf(SomeExperts());
  EXPECT_DOUBLE_EQ(LayerOf(file, "layer").parameter_bytes() - LayerOf(without, "layer").parameter_bytes(),
                   2.0 * (3 * 2048 * 1024 + 2048));
  EXPECT_TRUE(MessageDifferencer::Equals(LayerOf(file, "dense"), LayerOf(without, "dense")));
}

TEST(AcceleratorProfile, FiguresAreThoseOfTheAccelerator) {
  const v1::ProfileFile file = ProfileOf(
      SomeExperts(),
      {.flops = 400e12, .memory_bytes = 141'000'000'000, .gpus_per_node = 4, .copy_bytes_per_second = 2e12});
  const v1::ProfileFile other = ProfileOf(SomeExperts());
  for (const char* layer : {"layer", "dense", "head"})
    EXPECT_DOUBLE_EQ(2 * LayerOf(file, layer).forward().target_token_ns(),
                     LayerOf(other, layer).forward().target_token_ns());
  EXPECT_EQ(file.profile().cluster().memory_bytes(), 141'000'000'000);
  EXPECT_EQ(file.profile().cluster().gpus_per_node(), 4);
  EXPECT_EQ(file.profile().cluster().copy_bytes_per_second(), 2e12);
}

TEST(AcceleratorProfile, ModelsWithoutFormulasAreRefusedByName) {
  v1::ModelSpec model = Dense();
  model.set_architecture(v1::ARCHITECTURE_T5);
  EXPECT_THAT(AcceleratorProfile(model, {}).status(), Fails(kInvalid, "job.model.architecture"));
  model = Dense();
  model.mutable_adapters()->set_rank(8);
  EXPECT_THAT(AcceleratorProfile(model, {}).status(), Fails(kInvalid, "job.model.adapters"));
  model = Dense();
  model.set_key_value_heads(3);
  EXPECT_THAT(AcceleratorProfile(model, {}).status(), Fails(kInvalid, "job.model.key_value_heads"));
}

}  // namespace
}  // namespace penstock::core
