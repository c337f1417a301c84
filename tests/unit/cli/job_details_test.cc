#include "planner/cli/job_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

v1::GetJobResponse Response() {
  v1::GetJobResponse response;
  response.mutable_job()->mutable_mesh()->set_pipeline(2);
  response.mutable_job()->mutable_mesh()->set_data(3);
  response.mutable_job()->add_tasks("flan");
  response.mutable_job()->add_tasks("code");
  response.add_iterations()->set_iteration(7);
  response.add_iterations()->set_iteration(8);
  return response;
}

TEST(JobDetails, NothingIsSaidOfWhatAJobDoesNotHave) {
  const JobDetails details = DetailsOf(Response());
  EXPECT_EQ(LossesText("mix", details), "");
  EXPECT_EQ(MeshesText(details), "pp 2 x dp 3");
  EXPECT_EQ(RankCount(details), 6);
  const auto json = ToJson(details);
  EXPECT_EQ(json["mesh"]["data"], 3);
  EXPECT_TRUE(json["router_losses"].is_null());
  EXPECT_TRUE(json["dropped_expert_rows"].is_null());
  EXPECT_TRUE(json["layer_loads"].is_null());
  EXPECT_TRUE(json["validation"].is_null());
}

TEST(JobDetails, WeightsOfSharesStandBehindTheMesh) {
  v1::GetJobResponse response = Response();
  for (const uint32_t weight : {3, 1, 0, 2, 1, 1})
    response.mutable_job()->mutable_planning()->add_share_weights(weight);
  const JobDetails details = DetailsOf(response);
  EXPECT_EQ(MeshesText(details), "pp 2 x dp 3 (share weights 3,1,0,2,1,1)");
  EXPECT_EQ(ToJson(details)["share_weights"], nlohmann::ordered_json({3, 1, 0, 2, 1, 1}));
}

TEST(JobDetails, LossesAreThoseOfTheLastIterationAndOfTheLastValidation) {
  v1::GetJobResponse response = Response();
  v1::IterationSummary& before = *response.mutable_iterations(0);
  before.set_router_z_loss(9);
  before.mutable_validation()->set_loss(2.5);
  v1::IterationSummary& last = *response.mutable_iterations(1);
  last.set_router_balance_loss(0.0125);
  last.set_routed_expert_rows(8000);
  last.set_dropped_expert_rows(100);
  v1::TaskLoss& task = *last.add_tasks();
  task.set_task(1);
  task.set_loss(1.75);
  task.set_weight(3);
  // Of which the iteration had no sample.
  last.add_tasks()->set_task(0);
  const JobDetails details = DetailsOf(response);
  EXPECT_THAT(
      LossesText("mix", details),
      AllOf(HasSubstr("losses of job mix in its last iteration: code 1.7500\n"),
            HasSubstr("routers of job mix in its last iteration: balance loss 0.0125, z loss 0\n"),
            HasSubstr("experts of job mix had no room for 1.25 % of the rows in its last iteration\n"),
            HasSubstr("validation of job mix: loss 2.5000 after iteration 7\n")));
  const auto json = ToJson(details);
  EXPECT_EQ(json["task_losses"], nlohmann::ordered_json({{"code", 1.75}}));
  EXPECT_EQ(json["router_losses"]["balance"], 0.0125);
  EXPECT_EQ(json["dropped_expert_rows"], 0.0125);
  EXPECT_EQ(json["validation"]["iteration"], 7);
}

TEST(JobDetails, LayersWhoseExpertsAreFullestAreNamed) {
  v1::GetJobResponse response = Response();
  const std::vector<std::pair<double, double>> loads = {{1, 2}, {1.5, 2.5}, {1.25, 1.5}, {1.25, 4}};
  for (const auto& [rank, expert] : loads) {
    v1::ExpertLayerLoad* const load = response.mutable_iterations(1)->add_expert_layers();
    load->set_layer(static_cast<uint32_t>(2 * response.iterations(1).expert_layers_size()));
    load->set_fullest_rank(rank);
    load->set_fullest_expert(expert);
  }
  JobDetails details = DetailsOf(response);
  EXPECT_THAT(LossesText("mix", details),
              AllOf(HasSubstr("fullest ranks that divide experts of job mix in its last iteration, over the "
                              "mean: 1.25 in the mean of 4 layers, most in layer 4 (1.50), layer 6 (1.25) "
                              "and layer 8 (1.25)\n"),
                    HasSubstr("fullest experts of job mix in its last iteration, over the mean: 2.50 in the "
                              "mean of 4 layers, most in layer 8 (4.00), layer 4 (2.50) and layer 2 "
                              "(2.00)\n")));
  const auto json = ToJson(details)["layer_loads"];
  EXPECT_EQ(json["ranks"]["mean"], 1.25);
  EXPECT_EQ(json["experts"]["layers"].size(), 4);
  EXPECT_EQ(json["experts"]["layers"][0], nlohmann::ordered_json({{"layer", 8}, {"load", 4}}));

  for (v1::ExpertLayerLoad& load : *response.mutable_iterations(1)->mutable_expert_layers())
    load.clear_fullest_rank();
  details = DetailsOf(response);
  EXPECT_THAT(LossesText("mix", details), Not(HasSubstr("fullest ranks")));
  EXPECT_TRUE(ToJson(details)["layer_loads"]["ranks"].is_null());
}

TEST(JobDetails, AJobOfWhichNothingIsKnownHasTheSameFields) {
  const auto json = ToJson(std::nullopt);
  for (const char* field : {"mesh", "strategies", "active_strategies", "active_from", "task_losses",
                            "router_losses", "dropped_expert_rows", "layer_loads", "validation"})
    EXPECT_TRUE(json.contains(field) && json[field].is_null()) << field;
}

TEST(JobDetails, StrategiesAreNamedInPlaceOfAMesh) {
  v1::GetJobResponse response = Response();
  v1::StrategyMesh& mesh = *response.mutable_job()->add_strategies()->add_meshes();
  mesh.mutable_mesh()->set_pipeline(1);
  mesh.mutable_mesh()->set_data(4);
  const JobDetails details = DetailsOf(response);
  EXPECT_EQ(MeshesText(details), "pp 1 x dp 4");
  EXPECT_EQ(RankCount(details), 4);
  EXPECT_TRUE(ToJson(details)["active_strategies"].is_null()) << "nobody has told";
}

TEST(JobDetails, OfStrategiesThoseAreNamedThatHoldNow) {
  v1::GetJobResponse response = Response();
  for (const uint32_t replicas : {4, 2}) {
    v1::Mesh& mesh = *response.mutable_job()->add_strategies()->add_meshes()->mutable_mesh();
    mesh.set_pipeline(4 / replicas);
    mesh.set_data(replicas);
  }
  JobDetails details = DetailsOf(response);
  details.active = {.numbers = {1}, .strategies = {response.job().strategies(1)}, .from_iteration = 57};
  EXPECT_EQ(MeshesText(details), "pp 2 x dp 2");
  const auto json = ToJson(details);
  EXPECT_EQ(json["strategies"].size(), 2);
  EXPECT_EQ(json["active_strategies"], nlohmann::ordered_json({1}));
  EXPECT_EQ(json["active_from"], 57);
}

}  // namespace
}  // namespace penstock::cli
