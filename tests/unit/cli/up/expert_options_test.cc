#include "planner/cli/up/expert_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "planner/cli/up/up_options.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ExpertOptionsTest, AnExpertThatAllShareStandsBesideOthers) {
  UpOptions options;
  options.experts = 4;
  options.shared_expert_ffn = 96;
  options.gated_shared_expert = true;
  const v1::ModelSpec model = *ModelOfFlags(options, 64);
  EXPECT_EQ(model.shared_expert_ffn(), 96);
  EXPECT_TRUE(model.gated_shared_expert());
  options.shared_expert_ffn = 0;
  EXPECT_THAT(std::string(ModelOfFlags(options, 64).status().message()),
              HasSubstr("--gated-shared-expert: there is none; give --shared-expert-ffn"));
  options = UpOptions();
  options.shared_expert_ffn = 96;
  EXPECT_THAT(std::string(ModelOfFlags(options, 64).status().message()),
              HasSubstr("--shared-expert-ffn: stands beside other experts; give --experts"));
}

TEST(ExpertOptionsTest, LayersWithoutExpertsAreThoseThatFlagsName) {
  UpOptions options;
  options.experts = 4;
  options.layers = 4;
  options.dense_layers = {3, 1, 3};
  options.dense_ffn = 96;
  const v1::ModelSpec model = *ModelOfFlags(options, 64);
  EXPECT_THAT(model.dense_layers(), ElementsAre(1, 3));
  EXPECT_EQ(model.dense_ffn(), 96);
  const auto refusal = [](UpOptions changed) {
    return std::string(ModelOfFlags(changed, 64).status().message());
  };
  options.dense_layers = {0};
  EXPECT_THAT(refusal(options), HasSubstr("--dense-layers 0: use 1 to 4"));
  options.dense_layers = {2, 5};
  EXPECT_THAT(refusal(options), HasSubstr("--dense-layers 5: use 1 to 4"));
  options.dense_layers = {1, 2, 3, 4};
  EXPECT_THAT(refusal(options),
              HasSubstr("--dense-layers: no layer would have experts; leave out --experts"));
  options.dense_layers = {};
  EXPECT_THAT(refusal(options), HasSubstr("--dense-ffn: every layer has experts; give --dense-layers"));
  options.experts = 0;
  EXPECT_THAT(refusal(options), HasSubstr("--dense-ffn: without experts it is --ffn; give --experts"));
  options.dense_layers = {1};
  EXPECT_THAT(refusal(options), HasSubstr("--dense-layers: without experts all layers are dense; give"));
}

TEST(ExpertOptionsTest, LossesOfRoutersAreThoseOfTheFlagsOrTheModels) {
  UpOptions options;
  options.experts = 4;
  v1::ModelSpec model = *ModelOfFlags(options, 64);
  model.set_router_balance_loss(0.01);
  model.set_router_z_loss(0.02);
  options.router_z_loss = 0;
  const auto job = MakeJobSpec(options, model);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model().router_balance_loss(), 0.01);
  EXPECT_EQ(job->model().router_z_loss(), 0);
  options.router_z_loss = -1;
  EXPECT_THAT(std::string(MakeJobSpec(options, model).status().message()),
              HasSubstr("--router-z-loss -1: must be a number of at least 0"));
  options.router_z_loss = 0.1;
  EXPECT_THAT(std::string(MakeJobSpec(options, *ModelOfFlags(UpOptions(), 64)).status().message()),
              HasSubstr("--router-z-loss: the model has no experts"));
}

}  // namespace
}  // namespace penstock::cli
