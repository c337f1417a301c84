#include "worker/runtime/holder_rings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Ranks replica by replica, in each stage by stage, in each context rank by context rank.
JobConfig JobOf(const MeshConfig& mesh) {
  JobConfig job = {.job_id = "job",
                   .model = {},
                   .pipeline = mesh.pipeline,
                   .replicas = mesh.replicas,
                   .context = mesh.context,
                   .tensor = mesh.tensor,
                   .expert = mesh.expert};
  uint32_t rank = 0;
  for (uint32_t replica = 0; replica < mesh.replicas; ++replica) {
    ReplicaTopology& made = job.topology.replicas.emplace_back();
    made.tensor = mesh.tensor;
    made.expert = mesh.expert;
    for (uint32_t stage = 0; stage < mesh.pipeline; ++stage) {
      StageTopology& group = made.stages.emplace_back();
      for (uint32_t i = 0; i < mesh.context * mesh.tensor; ++i) group.ranks.push_back(rank++);
    }
  }
  return job;
}

// A share of what the ranks of a group hold: the group, and whose share it is.
using Share = std::pair<RankGroup, size_t>;

// Those that a rank writes, from the groups that gradients are summed over: who sums the gradients of a
// parameter has it.
std::set<Share> SharesWrittenBy(const Topology& topology, uint32_t rank, bool next_too) {
  std::set<RankGroup> groups;
  for (const RankGroup& group : topology.GradientGroups(rank)) groups.insert(group);
  for (const uint32_t stage : topology.StagesOf(rank)) {
    if (topology.replicas.front().expert > 1) groups.insert(topology.ExpertHolders(rank, stage));
  }
  std::set<Share> shares;
  for (const RankGroup& group : groups) {
    for (size_t i = 0; i < group.size(); ++i) {
      if (group[i] != rank) continue;
      shares.insert({group, i});
      if (next_too) shares.insert({group, (i + 1) % group.size()});
    }
  }
  return shares;
}

TEST(HolderRingsTest, ReplicasOfAStageHoldTheSame) {
  EXPECT_THAT(HolderRings(JobOf({.pipeline = 2, .replicas = 3})),
              UnorderedElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5)));
}

TEST(HolderRingsTest, ContextRanksHoldTheSameAndTensorRanksDoNot) {
  EXPECT_THAT(HolderRings(JobOf({.replicas = 2, .context = 2, .tensor = 2})),
              UnorderedElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST(HolderRingsTest, ThereAreNoneWhereARankHasSomethingAlone) {
  EXPECT_THAT(HolderRings(JobOf({.pipeline = 4})), IsEmpty());
  EXPECT_THAT(HolderRings(JobOf({.tensor = 4})), IsEmpty());
  // Both ranks have all that is not of experts, and experts of their own.
  EXPECT_THAT(HolderRings(JobOf({.context = 2, .expert = 2})), IsEmpty());
  JobConfig divided = JobOf({.replicas = 2});
  divided.shard_optimizer_state = true;
  EXPECT_THAT(HolderRings(divided), IsEmpty());
  JobConfig shares = JobOf({.replicas = 2});
  shares.parameter_shares = true;
  EXPECT_THAT(HolderRings(shares), IsEmpty());
}

TEST(HolderRingsTest, ThereAreNoneWhereTheStagesOfARankHaveDifferentHolders) {
  JobConfig job = {.job_id = "job", .model = {}, .replicas = 2};
  // Rank 2 holds both stages of the second replica.
  job.topology = {{{{{{0}}, {{1}}}}, {{{{2}}, {{2}}}}}};
  EXPECT_THAT(HolderRings(job), IsEmpty());
}

TEST(HolderRingsTest, StagesThatFoldBackOntoTheirRanksMakeOneRing) {
  JobConfig job = {.job_id = "job", .model = {}, .replicas = 2};
  job.topology = {{{{{{0}}, {{1}}, {{1}}, {{0}}}}, {{{{2}}, {{3}}, {{3}}, {{2}}}}}};
  EXPECT_THAT(HolderRings(job), UnorderedElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(HolderRingsTest, AnyRanksThatDoNotFollowEachOtherMayBeLost) {
  const std::vector<RankGroup> rings = HolderRings(JobOf({.replicas = 4}));
  const auto both = WrittenShares::kOwnAndNext;
  EXPECT_TRUE(CoverAll(rings, {{0, both}, {2, both}}));
  EXPECT_TRUE(CoverAll(rings, {{1, both}, {3, both}}));
  EXPECT_FALSE(CoverAll(rings, {{0, both}, {3, both}}));
  EXPECT_FALSE(CoverAll(rings, {}));
  // Ordinary parts count for themselves.
  const auto own = WrittenShares::kOwn;
  EXPECT_TRUE(CoverAll(rings, {{0, both}, {2, own}, {3, own}}));
  EXPECT_FALSE(CoverAll(rings, {{0, own}, {2, both}}));
}

TEST(HolderRingsTest, WithoutRingsNothingIsCovered) {
  EXPECT_FALSE(CoverAll({}, {{0, WrittenShares::kOwn}}));
}

// Every way in which the ranks of a job can be lost, have written an ordinary part, or are left, against the
// shares themselves.
class EveryLossTest : public ::testing::TestWithParam<MeshConfig> {};

TEST_P(EveryLossTest, IsCoveredWhereEveryShareIsWritten) {
  const JobConfig job = JobOf(GetParam());
  const std::vector<RankGroup> rings = HolderRings(job);
  ASSERT_FALSE(rings.empty());
  const uint32_t ranks = job.topology.ranks();
  std::set<Share> all;
  std::vector<std::set<Share>> own(ranks), both(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    own[rank] = SharesWrittenBy(job.topology, rank, /*next_too=*/false);
    both[rank] = SharesWrittenBy(job.topology, rank, /*next_too=*/true);
    all.insert(own[rank].begin(), own[rank].end());
  }
  uint64_t ways = 1;
  for (uint32_t rank = 0; rank < ranks; ++rank) ways *= 3;
  uint64_t covered = 0;
  for (uint64_t way = 0; way < ways; ++way) {
    std::set<Share> written;
    std::map<uint32_t, WrittenShares> parts;
    uint64_t rest = way;
    for (uint32_t rank = 0; rank < ranks; ++rank, rest /= 3) {
      if (rest % 3 == 0) continue;
      parts[rank] = rest % 3 == 1 ? WrittenShares::kOwn : WrittenShares::kOwnAndNext;
      const std::set<Share>& shares = rest % 3 == 1 ? own[rank] : both[rank];
      written.insert(shares.begin(), shares.end());
    }
    ASSERT_EQ(CoverAll(rings, parts), written == all) << "way " << way;
    covered += written == all ? 1 : 0;
  }
  EXPECT_GT(covered, 0u);
  EXPECT_LT(covered, ways);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EveryLossTest,
    ::testing::Values(MeshConfig{.replicas = 2}, MeshConfig{.replicas = 5},
                      MeshConfig{.pipeline = 2, .replicas = 4}, MeshConfig{.pipeline = 4, .replicas = 2},
                      MeshConfig{.context = 4}, MeshConfig{.replicas = 2, .context = 2, .tensor = 2},
                      MeshConfig{.replicas = 2, .context = 4, .expert = 2},
                      MeshConfig{.replicas = 2, .context = 2, .tensor = 2, .expert = 4},
                      MeshConfig{.pipeline = 2, .replicas = 2, .context = 2, .expert = 2}),
    [](const auto& info) {
      const MeshConfig& mesh = info.param;
      return absl::StrCat("Pp", mesh.pipeline, "Dp", mesh.replicas, "Cp", mesh.context, "Tp", mesh.tensor,
                          "Ep", mesh.expert);
    });

}  // namespace
}  // namespace penstock::worker
