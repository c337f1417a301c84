// Who is where, as the planner tells workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/worker/program/valid_messages.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TopologyFromProto, MakesTheGroupsOfTheRanksThatThePlannerNames) {
  v1::Topology topology = ValidTopology();
  // The second replica the other way round.
  topology.mutable_replicas(1)->mutable_stages(0)->set_ranks(0, 3);
  topology.mutable_replicas(1)->mutable_stages(1)->set_ranks(0, 2);
  const absl::StatusOr<Topology> converted = TopologyFromProto(topology, Job());
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_THAT(converted->GradientGroups(0), ElementsAre(ElementsAre(0, 3)));
  EXPECT_THAT(converted->GradientGroups(1), ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(converted->StagesOf(2), ElementsAre(1));
}

TEST(TopologyFromProto, NamesTheFieldThatIsWrong) {
  const auto error = [](const v1::Topology& topology) {
    return std::string(TopologyFromProto(topology, Job()).status().message());
  };
  v1::Topology topology = ValidTopology();
  topology.mutable_replicas()->RemoveLast();
  EXPECT_THAT(error(topology), HasSubstr("topology.replicas has 1 replicas, but the job has 2"));
  topology = ValidTopology();
  topology.mutable_replicas(1)->mutable_stages(0)->set_ranks(0, 1);
  EXPECT_THAT(error(topology),
              HasSubstr("topology.replicas[1].stages[0].ranks names rank 1, which is in replica 0"));
  topology = ValidTopology();
  topology.mutable_replicas(1)->mutable_stages(0)->set_ranks(0, 99999);
  EXPECT_THAT(error(topology), HasSubstr("names rank 99999, but the job has 4"));
  topology = ValidTopology();
  topology.mutable_replicas(0)->mutable_stages(1)->set_ranks(0, 0);
  EXPECT_THAT(error(topology), HasSubstr("topology: rank 1 holds no stage"));
  topology = ValidTopology();
  topology.mutable_replicas(0)->mutable_stages(1)->clear_ranks();
  EXPECT_THAT(error(topology), HasSubstr("topology.replicas[0].stages[1].ranks is empty"));
  topology = ValidTopology();
  topology.mutable_replicas(0)->mutable_stages(1)->add_ranks(0);
  EXPECT_THAT(error(topology), HasSubstr("ranks has 2 ranks, but a stage group of the job has 1"));
}

TEST(TopologyFromProto, KnowsStageGroups) {
  const Topology topology = ContextJob().topology;
  EXPECT_THAT(topology.StageGroupOf(3), ElementsAre(2, 3));
  EXPECT_EQ(topology.PlaceOf(3).context, 1);
  EXPECT_EQ(topology.PlaceOf(3).tensors, 1);
}

TEST(TopologyFromProto, RefusesStageGroupsThatShareSomeOfTheirRanks) {
  const auto error = [](const std::vector<uint32_t>& first, const std::vector<uint32_t>& second) {
    JobConfig job = ContextJob();
    v1::Topology topology;
    topology.add_replicas();
    for (const std::vector<uint32_t>& ranks : {first, second}) {
      topology.mutable_replicas(0)->add_stages()->mutable_ranks()->Add(ranks.begin(), ranks.end());
    }
    return std::string(TopologyFromProto(topology, job).status().message());
  };
  EXPECT_THAT(error({0, 1}, {1, 2}),
              HasSubstr("stages[1].ranks names rank 1, which is in another stage group"));
  EXPECT_THAT(error({0, 1}, {1, 0}), HasSubstr("names rank 1, which is in another stage group"))
      << "a rank has one place";
  EXPECT_THAT(error({0, 1}, {2, 2}), HasSubstr("names rank 2 twice"));
}

}  // namespace
}  // namespace penstock::worker
