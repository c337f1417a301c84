#include "planner/cli/job_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST(JobDetails, AJobOfWhichNothingIsKnownHasTheSameFields) {
  const auto json = ToJson(std::nullopt);
  for (const char* field : {"mesh", "strategies", "active_strategies", "active_from", "task_losses",
                            "router_losses", "dropped_expert_rows", "validation"})
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
