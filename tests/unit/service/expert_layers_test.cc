#include "planner/service/state/expert_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"

namespace penstock {
namespace {

using Rows = std::vector<uint64_t>;

v1::JobSpec ExpertJob(const v1::Mesh& mesh, uint32_t layers, const std::vector<uint32_t>& dense) {
  v1::JobSpec job;
  *job.mutable_mesh() = mesh;
  job.mutable_model()->set_layers(layers);
  job.mutable_model()->set_experts(8);
  job.mutable_model()->mutable_dense_layers()->Assign(dense.begin(), dense.end());
  return job;
}

// Stage `s` is on the group of ranks at position s % pipeline.
void AddReplica(const v1::Mesh& mesh, uint32_t first_rank, const std::vector<uint32_t>& layers,
                v1::Topology& topology) {
  v1::ReplicaTopology& replica = *topology.add_replicas();
  const auto group = static_cast<uint32_t>(GroupRanks(mesh));
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    v1::StageTopology& made = *replica.add_stages();
    made.set_decoder_layers(layers[stage]);
    const uint32_t first = first_rank + group * static_cast<uint32_t>(stage % mesh.pipeline());
    for (uint32_t place = 0; place < group; ++place) made.add_ranks(first + place);
  }
}

v1::Topology ExpertTopology(const v1::Mesh& mesh, const std::vector<uint32_t>& layers) {
  v1::Topology topology;
  for (uint32_t replica = 0; replica < mesh.data(); ++replica)
    AddReplica(mesh, replica * static_cast<uint32_t>(PipelineRanks(mesh)), layers, topology);
  return topology;
}

// By rank.
std::vector<store::v1::IterationReported> RowReports(const std::vector<Rows>& rows,
                                                     const std::vector<Rows>& fullest) {
  std::vector<store::v1::IterationReported> reports(rows.size());
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    reports[rank].set_rank(static_cast<uint32_t>(rank));
    reports[rank].mutable_expert_rows()->Assign(rows[rank].begin(), rows[rank].end());
    reports[rank].mutable_fullest_expert_rows()->Assign(fullest[rank].begin(), fullest[rank].end());
  }
  return reports;
}

// "layer: fullest rank, fullest expert" of each.
std::string Said(const std::vector<v1::ExpertLayerLoad>& loads) {
  return absl::StrJoin(loads, "; ", [](std::string* out, const v1::ExpertLayerLoad& load) {
    absl::StrAppendFormat(out, "%d: %g, %g", load.layer(), load.fullest_rank(), load.fullest_expert());
  });
}

TEST(ExpertLayers, OfRanksThatDivideExpertsTheFullestOfEachLayerIsFound) {
  // Two stages of two ranks; layer 2 has no experts.
  const v1::Mesh mesh = MakeMesh(2, 1, 1, 2, 2);
  const v1::JobSpec job = ExpertJob(mesh, 4, {2});
  const auto reports = RowReports({{60}, {20}, {50, 10}, {50, 70}}, {{40}, {10}, {20, 5}, {20, 60}});
  EXPECT_EQ(Said(ExpertLayersOf(job, ExpertTopology(mesh, {2, 2}), 0, reports)),
            "1: 1.5, 4; 3: 1, 1.6; 4: 1.75, 6");
}

TEST(ExpertLayers, OfSeveralGroupsItIsWhatRanksWaitedFor) {
  // Two replicas of one group each: 30 rows of 40 and 45 of 80.
  const v1::Mesh mesh = MakeMesh(1, 2, 1, 2, 2);
  const auto reports = RowReports({{30}, {10}, {35}, {45}}, {{15}, {5}, {10}, {30}});
  EXPECT_EQ(Said(ExpertLayersOf(ExpertJob(mesh, 1, {}), ExpertTopology(mesh, {1}), 0, reports)),
            "1: 1.25, 3");
}

TEST(ExpertLayers, ARankHasTheLayersOfItsStagesFromTheLowestUp) {
  // Stages 0 and 2 are on the ranks 0 and 1, stages 1 and 3 on the ranks 2 and 3.
  const v1::Mesh mesh = MakeMesh(2, 1, 1, 2, 2);
  const auto reports = RowReports({{1, 3}, {1, 1}, {2, 4}, {2, 0}}, {{1, 3}, {1, 1}, {2, 4}, {2, 0}});
  EXPECT_EQ(Said(ExpertLayersOf(ExpertJob(mesh, 4, {}), ExpertTopology(mesh, {1, 1, 1, 1}), 0, reports)),
            "1: 1, 4; 2: 1, 4; 3: 1.5, 6; 4: 2, 8");
}

TEST(ExpertLayers, WhereNoRanksDivideExpertsOnlyTheseAreTold) {
  const v1::Mesh mesh = MakeMesh(1, 2, 1, 1);
  const auto reports = RowReports({{80, 8}, {80, 0}}, {{20, 8}, {40, 0}});
  EXPECT_EQ(Said(ExpertLayersOf(ExpertJob(mesh, 2, {}), ExpertTopology(mesh, {2}), 0, reports)),
            "1: 0, 3; 2: 0, 8");
}

TEST(ExpertLayers, WorkersThatDoNotCountTheFullestExpertTellOfRanksAlone) {
  const v1::Mesh mesh = MakeMesh(1, 1, 1, 2, 2);
  EXPECT_EQ(Said(ExpertLayersOf(ExpertJob(mesh, 1, {}), ExpertTopology(mesh, {1}), 0,
                                RowReports({{3}, {1}}, {{2}, {}}))),
            "1: 1.5, 0");
}

TEST(ExpertLayers, RowsThatAreNotThoseOfTheLayersSayNothing) {
  const v1::Mesh mesh = MakeMesh(1, 1, 1, 2, 2);
  const v1::Topology topology = ExpertTopology(mesh, {2});
  const v1::JobSpec job = ExpertJob(mesh, 2, {});
  const auto said = [&](const std::vector<Rows>& rows) {
    return Said(ExpertLayersOf(job, topology, 0, RowReports(rows, {{}, {}})));
  };
  EXPECT_EQ(said({{1, 1}, {1, 1}}), "1: 1, 0; 2: 1, 0");
  EXPECT_EQ(said({{}, {}}), "") << "of workers, or of a store, of an earlier version";
  EXPECT_EQ(said({{1, 1}, {1}}), "");
  EXPECT_EQ(said({{1, 1, 1}, {1, 1, 1}}), "");
  EXPECT_EQ(said({{1, 0}, {1, 0}}), "1: 1, 0") << "a layer without rows";
  v1::JobSpec dense = job;
  dense.mutable_model()->set_experts(0);
  EXPECT_EQ(Said(ExpertLayersOf(dense, topology, 0, RowReports({{1, 1}, {1, 1}}, {{}, {}}))), "");
}

TEST(ExpertLayers, EachStrategyHasItsOwnMeshesSideBySide) {
  v1::JobSpec job = ExpertJob(MakeMesh(1, 1, 1, 1), 1, {});
  const v1::Mesh divided = MakeMesh(1, 1, 1, 2, 2);
  const v1::Mesh alone = MakeMesh(1, 2, 1, 1);
  *job.add_strategies()->add_meshes()->mutable_mesh() = MakeMesh(1, 4, 1, 1);
  v1::Strategy& strategy = *job.add_strategies();
  *strategy.add_meshes()->mutable_mesh() = divided;
  *strategy.add_meshes()->mutable_mesh() = alone;
  v1::Topology topology;
  AddReplica(divided, 0, {1}, topology);
  AddReplica(alone, 2, {1}, topology);
  AddReplica(alone, 3, {1}, topology);
  const auto reports = RowReports({{30}, {10}, {20}, {20}}, {{10}, {5}, {5}, {10}});
  EXPECT_EQ(Said(ExpertLayersOf(job, topology, 1, reports)), "1: 1.5, 2.5") << "ranks of the first alone";
  EXPECT_EQ(Said(ExpertLayersOf(job, topology, 2, reports)), "") << "no such strategy";
}

}  // namespace
}  // namespace penstock
