#include "common/mesh/rank_places.h"

#include <gtest/gtest.h>

#include "tests/unit/verify/plan_fixture.h"

namespace penstock {
namespace {

v1::Mesh MeshOf(uint32_t pipeline, uint32_t data, uint32_t context, uint32_t tensor) {
  v1::Mesh mesh;
  mesh.set_pipeline(pipeline);
  mesh.set_data(data);
  mesh.set_context(context);
  mesh.set_tensor(tensor);
  return mesh;
}

TEST(RankPlaces, AreThoseOfTheTopology) {
  // The group of stage 0 is ranks 7, 6, 5, 4.
  const v1::Plan plan = core::MakeValidPlan({.pipeline = 2,
                                             .replicas = 1,
                                             .layout = v1::LAYOUT_PACKED,
                                             .context = 2,
                                             .tensor = 2,
                                             .rank_numbers = {7, 6, 5, 4, 3, 2, 1, 0}})
                            .plan();
  const std::vector<GroupPlace> places = PlacesOf(plan);
  ASSERT_EQ(places.size(), 8u);
  EXPECT_EQ(PlaceName(plan.mesh(), places[7]), "c0 t0");
  EXPECT_EQ(PlaceName(plan.mesh(), places[6]), "c0 t1");
  EXPECT_EQ(PlaceName(plan.mesh(), places[5]), "c1 t0");
  EXPECT_EQ(PlaceName(plan.mesh(), places[0]), "c1 t1");
}

TEST(RankPlaces, OfATopologyThatNamesRanksWhichAreNotThereAreLeftOut) {
  v1::Plan plan;
  plan.add_programs();
  plan.mutable_mesh()->set_tensor(2);
  v1::StageTopology& stage = *plan.mutable_topology()->add_replicas()->add_stages();
  for (const uint32_t rank : {9, 0}) stage.add_ranks(rank);
  ASSERT_EQ(PlacesOf(plan).size(), 1u);
  EXPECT_EQ(PlacesOf(plan)[0].tensor, 1u);
}

TEST(RankPlaces, NamesLeaveOutDegreesOfOne) {
  const GroupPlace place = {.context = 3, .tensor = 1};
  EXPECT_EQ(PlaceName(MeshOf(1, 1, 4, 2), place), "c3 t1");
  EXPECT_EQ(PlaceName(MeshOf(1, 1, 4, 0), place), "c3");
  EXPECT_EQ(PlaceName(MeshOf(1, 1, 0, 2), place), "t1");
  EXPECT_EQ(PlaceName(MeshOf(2, 2, 0, 0), place), "");
  EXPECT_EQ(MeshName(MeshOf(2, 4, 0, 0)), "pp 2 x dp 4");
  EXPECT_EQ(MeshName(MeshOf(2, 4, 8, 2)), "pp 2 x dp 4 x cp 8 x tp 2");
}

}  // namespace
}  // namespace penstock
