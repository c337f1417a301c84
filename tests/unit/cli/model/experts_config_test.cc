// What configurations say of experts.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <vector>

#include "planner/cli/model/hugging_face_config.h"
#include "tests/unit/cli/model/family_configs.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HuggingFaceConfigTest, ReadsAQwen3WithExperts) {
  v1::ModelSpec model = SpecOf(Qwen3Moe());
  EXPECT_TRUE(model.head_norms());
  EXPECT_EQ(model.experts(), 128);
  EXPECT_EQ(model.experts_per_token(), 8);
  EXPECT_TRUE(model.normalised_experts());
  EXPECT_EQ(model.ffn(), 768);
  EXPECT_EQ(model.attention_inner(), 32 * 128);
  EXPECT_EQ(FamilyOf(model), kQwen3Moe);
  // As transformers 5.23 writes it.
  Json renamed = Qwen3Moe();
  renamed["num_local_experts"] = renamed["num_experts"];
  renamed.erase("num_experts");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, SpecOf(renamed)));
}

TEST(HuggingFaceConfigTest, LayersWithoutExpertsAreThoseThatAreNamedAndThoseBetweenSteps) {
  const auto with = [](const Json& fields) {
    Json config = Qwen3Moe();
    config["num_hidden_layers"] = 6U;
    config.update(fields);
    return config;
  };
  const auto dense = [&](const Json& fields) {
    const v1::ModelSpec model = SpecOf(with(fields));
    return std::vector<uint32_t>(model.dense_layers().begin(), model.dense_layers().end());
  };
  EXPECT_THAT(dense(Json::object()), ElementsAre());
  EXPECT_THAT(dense({{"decoder_sparse_step", 2U}}), ElementsAre(1, 3, 5));
  EXPECT_THAT(dense({{"mlp_only_layers", {4, 0, 17}}}), ElementsAre(1, 5)) << "there is no layer 17";
  EXPECT_THAT(dense({{"decoder_sparse_step", 3U}, {"mlp_only_layers", {2}}}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(dense({{"mlp_only_layers", nullptr}}), ElementsAre());
  const v1::ModelSpec model = SpecOf(with({{"decoder_sparse_step", 2U}}));
  EXPECT_EQ(model.ffn(), 768);
  EXPECT_EQ(model.dense_ffn(), 6144);
  EXPECT_EQ(SpecOf(with({{"decoder_sparse_step", 2U}, {"intermediate_size", 768U}})).dense_ffn(), 0);
  EXPECT_EQ(SpecOf(Qwen3Moe()).dense_ffn(), 0) << "it means nothing where all layers have experts";
  EXPECT_THAT(RefusalOf(with(Json::object()), "decoder_sparse_step", 7U),
              HasSubstr("leave no layer with experts"));
  EXPECT_THAT(RefusalOf(with(Json::object()), "mlp_only_layers", Json::array({-1})),
              HasSubstr("mlp_only_layers: -1 among them; must be numbers of layers"));
}

TEST(HuggingFaceConfigTest, ABalanceLossIsAMeanOverLayersWithRouters) {
  Json config = Qwen3Moe();
  config["output_router_logits"] = true;
  EXPECT_DOUBLE_EQ(SpecOf(config).router_balance_loss(), 0.001 * 8 / 48);
  config["decoder_sparse_step"] = 2U;
  EXPECT_DOUBLE_EQ(SpecOf(config).router_balance_loss(), 0.001 * 8 / 24);
}

}  // namespace
}  // namespace penstock::cli
