#include "planner/cli/up/available_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/mesh/mesh_ranks.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::Strategy Alone(const v1::Mesh& mesh) {
  v1::Strategy strategy;
  *strategy.add_meshes()->mutable_mesh() = mesh;
  return strategy;
}

TEST(AvailableRanksTest, MeshesSideBySideAreAStrategyOfTheRun) {
  UpOptions full;
  full.pipeline = 4;
  full.data = 2;
  full.planning.shard_optimizer_state = true;
  AvailableRanks available(full);
  available.Lose(full, 2);
  v1::Strategy strategy = Alone(MakeMesh(4, 1, 1, 1));
  *strategy.add_meshes()->mutable_mesh() = MakeMesh(3, 1, 1, 1);
  const UpOptions fewer = available.With(strategy);
  EXPECT_EQ(WorkerCount(fewer), 7);
  EXPECT_EQ(fewer.strategies.size(), 1);
  EXPECT_EQ(fewer.pipeline, 4);
  EXPECT_EQ(fewer.data, 1);
  EXPECT_TRUE(fewer.planning.parameter_shares);
  EXPECT_FALSE(fewer.planning.shard_optimizer_state);
}

TEST(AvailableRanksTest, StagesThatWereGivenAreThoseOfOneMeshOfTheirDepth) {
  UpOptions full;
  full.pipeline = 2;
  full.data = 2;
  full.planning.layers_per_stage = {1, 1, 1, 1};
  full.planning.rank_of_stage = {0, 1, 0, 1};
  const AvailableRanks available(full);
  EXPECT_THAT(available.With(Alone(MakeMesh(2, 1, 1, 1))).planning.rank_of_stage, ElementsAre(0, 1, 0, 1));
  v1::Strategy side_by_side = Alone(MakeMesh(2, 1, 1, 1));
  *side_by_side.add_meshes()->mutable_mesh() = MakeMesh(1, 1, 1, 1);
  for (const v1::Strategy& strategy : {side_by_side, Alone(MakeMesh(3, 1, 1, 1))}) {
    const UpOptions fewer = available.With(strategy);
    EXPECT_THAT(fewer.planning.layers_per_stage, IsEmpty());
    EXPECT_THAT(fewer.planning.rank_of_stage, IsEmpty());
  }
}

TEST(AvailableRanksTest, OfThisMachineAreFewerByEachThatIsLost) {
  UpOptions full;
  full.data = 4;
  AvailableRanks available(full);
  EXPECT_EQ(*available.Count(), 4);
  EXPECT_EQ(available.Lose(full, 2), "a worker of this machine");
  EXPECT_EQ(*available.Count(), 3);
  const UpOptions fewer = available.With(Alone(MakeMesh(1, 3, 1, 1)));
  EXPECT_EQ(WorkerCount(fewer), 3);
  for (int i = 0; i < 9; ++i) available.Lose(full, 0);
  EXPECT_EQ(*available.Count(), 0);
}

TEST(AvailableRanksTest, WeightsOfSharesAreThoseOfAllRanks) {
  UpOptions full;
  full.data = 4;
  full.planning.parameter_shares = true;
  full.planning.share_weights.weights = {3, 1, 0, 2};
  AvailableRanks available(full);
  EXPECT_THAT(available.With(Alone(MakeMesh(1, 3, 1, 1))).planning.share_weights.weights, IsEmpty());
  EXPECT_THAT(available.With(Alone(MakeMesh(2, 2, 1, 1))).planning.share_weights.weights,
              ElementsAre(3, 1, 0, 2));
  full.planning.share_weights = {.weights = {}, .choose = true};
  EXPECT_TRUE(AvailableRanks(full).With(Alone(MakeMesh(1, 3, 1, 1))).planning.share_weights.choose);
}

TEST(AvailableRanksTest, RanksWithOtherNumbersPlanWithTheLeastMemory) {
  UpOptions full;
  full.data = 4;
  full.planning.rank_memory.limits = {{.rank = 1, .bytes = 3000}, {.rank = 3, .bytes = 9000}};
  const AvailableRanks available(full);
  v1::JobSpec job;
  job.mutable_planning()->set_memory_limit_bytes(5000);
  full.planning.rank_memory.AddTo(job.mutable_planning());
  available.With(Alone(MakeMesh(2, 2, 1, 1))).planning.rank_memory.UseLeastOf(&job);
  EXPECT_THAT(job.planning().rank_memory_limits(), SizeIs(2));
  available.With(Alone(MakeMesh(1, 3, 1, 1))).planning.rank_memory.UseLeastOf(&job);
  EXPECT_THAT(job.planning().rank_memory_limits(), IsEmpty());
  EXPECT_EQ(job.planning().memory_limit_bytes(), 3000);
}

TEST(AvailableRanksTest, AHostTakesAllItsPlacesWithItAndBringsThemBack) {
  const TemporaryFolder folder;
  UpOptions full;
  full.data = 4;
  full.hosts_file = folder.Write("hosts", "a slots=2\nb slots=2\nc slots=1\n");
  full.hosts = {"a", "a", "b", "b"};
  AvailableRanks available(full);
  EXPECT_EQ(*available.Count(), 4) << "no more than were asked for";
  EXPECT_EQ(available.Lose(full, 1), "host a");
  EXPECT_EQ(*available.Count(), 3) << "c has a place that was free";
  UpOptions fewer = available.With(Alone(MakeMesh(1, 3, 1, 1)));
  fewer.planner.address = "planner:7070";
  ASSERT_TRUE(FindHosts(&fewer).ok());
  EXPECT_THAT(fewer.hosts, ElementsAre("b", "b", "c"));
  available.Return({"a"});
  EXPECT_EQ(*available.Count(), 4);
}

TEST(AvailableRanksTest, AGpuIsLostByItsNumber) {
  UpOptions full;
  full.data = 4;
  full.device = *ParseDevices("cuda");
  ASSERT_TRUE(FindGpus(&full).ok());
  AvailableRanks available(full);
  EXPECT_EQ(available.Lose(full, 1), "GPU 1");
  EXPECT_EQ(*available.Count(), 3);
  EXPECT_THAT(available.With(Alone(MakeMesh(1, 3, 1, 1))).device.gpus, ElementsAre(0, 2, 3));
  EXPECT_THAT(available.With(Alone(MakeMesh(1, 2, 1, 1))).device.gpus, ElementsAre(0, 2));
}

}  // namespace
}  // namespace penstock::cli
