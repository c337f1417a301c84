// Parameters and gradients between shares and the stages of meshes of many shapes, ranks as threads over
// Gloo.
#include "worker/shares/resharding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/comm_testing.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/model/transformer_stage.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kSeed = 7;
// Of a round: more rounds than one, where ranks have the layers.
constexpr int64_t kSmallRound = 20'000;

std::vector<ModelConfig> Models() {
  std::vector<ModelConfig> models;
  for (const DividedModel& model : DividedModels()) models.push_back(model.config(DataType::kFloat64));
  return models;
}

// A mesh of the ranks, in the order in which they come; stages go round the positions of a pipeline, once or
// twice.
void AddMesh(const ModelConfig& model, const std::vector<uint32_t>& ranks, std::mt19937& random,
             Topology* topology) {
  const auto pick = [&](std::vector<uint32_t> values) { return values[random() % values.size()]; };
  auto left = static_cast<uint32_t>(ranks.size());
  const auto degree = [&](const std::vector<uint32_t>& values) {
    std::vector<uint32_t> possible;
    for (const uint32_t value : values) {
      if (left % value == 0) possible.push_back(value);
    }
    const uint32_t chosen = pick(possible);
    left /= chosen;
    return chosen;
  };
  const uint32_t tensors = degree({1, 2, 4});
  const uint32_t contexts = degree({1, 2, 4});
  const uint32_t positions = degree({1, 2});
  uint32_t experts = 1;
  if (model.experts > 0 && random() % 2 == 0) experts = tensors * (contexts % 2 == 0 && tensors < 4 ? 2 : 1);
  const uint32_t stages = positions * pick({1, 2});
  std::vector<uint32_t> layers(stages, 1);
  for (uint32_t layer = stages; layer < model.layers; ++layer) ++layers[random() % stages];
  auto next = ranks.begin();
  for (uint32_t replica = 0; replica < left; ++replica) {
    ReplicaTopology& made = topology->replicas.emplace_back();
    made.tensor = tensors;
    made.expert = experts;
    for (uint32_t stage = 0; stage < stages; ++stage) {
      if (stage >= positions) {
        made.stages.push_back({made.stages[stage - positions].ranks, layers[stage]});
        continue;
      }
      made.stages.push_back({{next, next + contexts * tensors}, layers[stage]});
      next += contexts * tensors;
    }
  }
}

// Of so many ranks, which are in any order: one mesh, or two side by side.
Topology RandomTopology(const ModelConfig& model, uint32_t ranks, std::mt19937& random) {
  std::vector<uint32_t> order(ranks);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), random);
  const uint32_t of_first = random() % 2 == 0 ? ranks : 1 + static_cast<uint32_t>(random() % ranks);
  Topology topology;
  AddMesh(model, {order.begin(), order.begin() + of_first}, random, &topology);
  if (of_first < ranks) AddMesh(model, {order.begin() + of_first, order.end()}, random, &topology);
  return topology;
}

// A stage for all layers on each stage group.
Topology OneStage(const ModelConfig& model, Topology topology) {
  for (ReplicaTopology& replica : topology.replicas)
    replica.stages.front().layers = static_cast<uint32_t>(model.layers);
  return topology;
}

using Weights = std::vector<uint32_t>;

// Of shares: all alike, or some of 0 to 4, now and then of one rank alone.
Weights RandomWeights(uint32_t ranks, std::mt19937& random) {
  Weights weights(ranks, 1);
  if (random() % 3 == 0) return weights;
  for (uint32_t& weight : weights) weight = random() % 4 == 0 ? 0 : static_cast<uint32_t>(random() % 5);
  weights[random() % ranks] = 3;
  return weights;
}

// All of a rank: its share, its stages on one topology, and what goes between them.
class ReshardingRank {
 public:
  ReshardingRank(const ModelConfig& model, const Topology& topology, uint32_t rank,
                 Communicator* communicator, int64_t round_bytes = kRoundBytes, Weights weights = {})
      : specs_([&model](const StageRange& range, const GroupPlace& place) {
          return StageParameterSpecs(model, range, place);
        }),
        layout_(model.layers, weights.empty() ? Weights(topology.ranks(), 1) : weights, specs_),
        share_(MakeFlatParameters(layout_.SpecsOf(rank), kSeed, at::kDouble, at::kCPU)),
        group_(topology.PlaceOf(rank), nullptr, nullptr, nullptr) {
    ReshardEnds ends = {
        .rank = rank, .layout = &layout_, .specs = specs_, .topology = &topology, .share = &share_};
    ReshardingParts parts = {
        .rank = rank, .share = &share_, .communicator = communicator, .world = topology.WorldGroup()};
    for (const uint32_t number : topology.StagesOf(rank)) {
      stages_[number] = *MakeTransformerStage(model, StageRangeOf(topology.LayersPerStageOf(rank), number),
                                              /*seed=*/std::nullopt, at::kCPU, group_);
      ends.stages[number] = &stages_[number]->flat_parameters();
      parts.stages[number] = stages_[number].get();
    }
    routes_ = std::make_shared<const ReshardRoutes>(
        MakeReshardRoutes(ends, share_.values.element_size(), round_bytes));
    resharding_ = std::make_unique<Resharding>(parts, routes_);
  }

  Resharding& resharding() { return *resharding_; }
  const ReshardRoutes& routes() const { return *routes_; }
  const ShareLayout& layout() const { return layout_; }
  const FlatParameters& share() const { return share_; }
  const std::map<uint32_t, std::unique_ptr<Stage>>& stages() const { return stages_; }

 private:
  const StageSpecs specs_;
  const ShareLayout layout_;
  const FlatParameters share_;
  ThreadStageGroup group_;
  std::map<uint32_t, std::unique_ptr<Stage>> stages_;
  std::shared_ptr<const ReshardRoutes> routes_;
  std::unique_ptr<Resharding> resharding_;
};

// Calls `visit(own, whole)` for each block that a parameter has of the whole one.
template <typename Visit>
void ForEachBlockOf(const NamedParameter& parameter, const at::Tensor& own, const at::Tensor& whole,
                    Visit visit) {
  int64_t begin = 0;
  for (const OwnBlock& held : parameter.part.blocks) {
    const Block& block = held.block;
    visit(own.flatten().narrow(0, begin, block.elements()).view({block.rows(), block.columns()}),
          BlockOfWhole(block, whole));
    begin += block.elements();
  }
}

class ReshardingTest : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ReshardingTest, ::testing::Values(1, 2, 3, 4, 6, 8));

TEST_P(ReshardingTest, BringsEveryStageItsPartOfTheWholeParameters) {
  std::mt19937 random(GetParam());
  for (const ModelConfig& model : Models()) {
    const Topology topology = RandomTopology(model, GetParam(), random);
    const FlatParameters whole = MakeFlatParameters(
        StageParameterSpecs(model, {.first_layer = 0, .layers = model.layers, .first = true, .last = true}),
        kSeed, at::kDouble, at::kCPU);
    const Weights weights = RandomWeights(GetParam(), random);
    std::map<std::string, at::Tensor> values;
    for (const NamedParameter& parameter : whole.parameters) values[parameter.name] = parameter.value;
    RunRanks(GetParam(), [&](uint32_t rank, Communicator& communicator) {
      ReshardingRank self(model, topology, rank, &communicator, kSmallRound, weights);
      const absl::Status brought = self.resharding().BringParameters();
      ASSERT_TRUE(brought.ok()) << brought;
      for (const auto& [number, stage] : self.stages()) {
        for (const NamedParameter& parameter : stage->parameters()) {
          ForEachBlockOf(parameter, parameter.value, values.at(parameter.name),
                         [&](const at::Tensor& own, const at::Tensor& expected) {
                           EXPECT_TRUE(own.equal(expected)) << parameter.name << " of stage " << number;
                         });
        }
      }
    });
  }
}

// Whole numbers, so that sums are exact in any order.
void FillGradients(const Stage& stage, uint32_t rank, uint32_t number) {
  for (const NamedParameter& parameter : stage.parameters()) {
    const at::Tensor index = at::arange(parameter.gradient.numel(), at::kDouble);
    parameter.gradient.copy_((index.remainder(13 + number) + rank).view(parameter.gradient.sizes()));
  }
}

TEST_P(ReshardingTest, TakesTheSumOfAllGradientsToTheShares) {
  std::mt19937 random(100 + GetParam());
  for (const ModelConfig& model : Models()) {
    const Topology topology = RandomTopology(model, GetParam(), random);
    const Weights weights = RandomWeights(GetParam(), random);
    std::map<std::string, at::Tensor> sums;
    for (const ParameterSpec& spec :
         StageParameterSpecs(model, {.first_layer = 0, .layers = model.layers, .first = true, .last = true}))
      sums[spec.name] = at::zeros(spec.shape, at::kDouble);
    for (uint32_t rank = 0; rank < GetParam(); ++rank) {
      const ReshardingRank self(model, topology, rank, nullptr);
      for (const auto& [number, stage] : self.stages()) {
        FillGradients(*stage, rank, number);
        for (const NamedParameter& parameter : stage->parameters()) {
          ForEachBlockOf(parameter, parameter.gradient, sums.at(parameter.name),
                         [](const at::Tensor& own, at::Tensor sum) { sum.add_(own); });
        }
      }
    }
    RunRanks(GetParam(), [&](uint32_t rank, Communicator& communicator) {
      ReshardingRank self(model, topology, rank, &communicator, kSmallRound, weights);
      // What was there counts for nothing.
      self.share().gradients.fill_(1e9);
      for (const auto& [number, stage] : self.stages()) FillGradients(*stage, rank, number);
      const absl::Status taken = self.resharding().TakeGradients();
      ASSERT_TRUE(taken.ok()) << taken;
      for (const NamedParameter& parameter : self.share().parameters) {
        ForEachBlockOf(parameter, parameter.gradient, sums.at(parameter.name),
                       [&](const at::Tensor& own, const at::Tensor& expected) {
                         EXPECT_TRUE(own.equal(expected)) << parameter.name;
                       });
      }
      for (const auto& [number, stage] : self.stages())
        EXPECT_TRUE(stage->flat_parameters().gradients.eq(0).all().item<bool>());
    });
  }
}

int64_t ElementsOf(const std::vector<BufferBlock>& message) {
  int64_t elements = 0;
  for (const BufferBlock& block : message) elements += block.elements();
  return elements;
}

int64_t ElementsOf(const std::vector<StageBlock>& message) {
  int64_t elements = 0;
  for (const StageBlock& placed : message) elements += placed.block.elements();
  return elements;
}

TEST(ReshardRoutes, HaveEqualMessagesAtBothEnds) {
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {
    const ModelConfig model = Models()[static_cast<size_t>(i) % Models().size()];
    const uint32_t ranks = 1 + random() % 12;
    const Topology topology = RandomTopology(model, ranks, random);
    const Weights weights = RandomWeights(ranks, random);
    std::vector<std::unique_ptr<ReshardingRank>> all;
    for (uint32_t rank = 0; rank < ranks; ++rank)
      all.push_back(std::make_unique<ReshardingRank>(model, topology, rank, nullptr, kSmallRound, weights));
    for (uint32_t owner = 0; owner < ranks; ++owner) {
      const ReshardRoutes& routes = all[owner]->routes();
      for (uint32_t holder = 0; holder < ranks; ++holder) {
        const ReshardRoutes& others = all[holder]->routes();
        ASSERT_EQ(routes.rounds.size(), others.rounds.size());
        for (size_t round = 0; round < others.rounds.size(); ++round) {
          EXPECT_EQ(ElementsOf(routes.rounds[round].of_share[routes.share_message[holder]]),
                    ElementsOf(others.rounds[round].of_stages[owner]))
              << owner << " to " << holder << " of " << ranks << ", round " << round;
        }
      }
    }
  }
}

TEST(ReshardRoutes, HaveAsManyRoundsAsHaveTheBytesAndALayerOfEachRank) {
  const ModelConfig model = WithFourHeads(SmallConfig(DataType::kFloat64));
  const Topology topology = OneStage(model, TopologyOf(2, 1, 1, 1));
  const auto rounds = [&](const Topology& of, int64_t bytes) {
    return ReshardingRank(model, of, 0, nullptr, bytes).routes().rounds.size();
  };
  EXPECT_EQ(rounds(topology, kRoundBytes), 1U);
  EXPECT_EQ(rounds(topology, 1), static_cast<size_t>(model.layers)) << "a layer at least";
  const ReshardingRank whole(model, topology, 0, nullptr);
  const int64_t sent = 8 *
                       (ElementsOf(whole.routes().rounds.front().of_stages[0]) +
                        ElementsOf(whole.routes().rounds.front().of_stages[1])) /
                       2;
  EXPECT_EQ(rounds(topology, sent / 2), 2U);
  EXPECT_EQ(rounds(topology, sent / 2 + 1), 1U);
  Topology uneven = TopologyOf(1, 2, 1, 1);
  uneven.replicas.front().stages[0].layers = 1;
  uneven.replicas.front().stages[1].layers = static_cast<uint32_t>(model.layers) - 1;
  EXPECT_EQ(rounds(uneven, 1), 1U) << "the first stage has one layer";
}

// By the rank that sends or receives most.
TEST(ReshardRoutes, HaveMoreRoundsWhereOneRankHasMoreOfTheShares) {
  const ModelConfig model = WithFourHeads(SmallConfig(DataType::kFloat64));
  const Topology topology = OneStage(model, TopologyOf(2, 1, 1, 1));
  const ReshardingRank equal(model, topology, 0, nullptr);
  const int64_t bytes = 8 * ElementsOf(equal.routes().rounds.front().of_stages[0]);
  const auto rounds = [&](const Weights& weights) {
    return ReshardingRank(model, topology, 0, nullptr, bytes, weights).routes().rounds.size();
  };
  EXPECT_EQ(rounds({1, 1}), 1U);
  EXPECT_EQ(rounds({3, 1}), 1U);
  EXPECT_EQ(rounds({0, 1}), 2U);
  EXPECT_EQ(rounds({1, 0}), 2U);
}

// As backward passes make gradients: whoever has more than one stage has the upper one's first.
TEST(ReshardRoutes, GoFromTheUppermostLayerOfEachRankDown) {
  const ModelConfig model = WithFourHeads(SmallConfig(DataType::kFloat64));
  ASSERT_GE(model.layers, 4);
  Topology topology = TopologyOf(1, 2, 1, 1);
  std::vector<StageTopology>& stages = topology.replicas.front().stages;
  stages = {{{0}, 1}, {{1}, 1}, {{0}, static_cast<uint32_t>(model.layers) - 3}, {{1}, 1}};
  const ReshardingRank self(model, topology, 1, nullptr, /*round_bytes=*/1);
  ASSERT_EQ(self.routes().rounds.size(), 2U);
  const ReshardRound& first = self.routes().rounds[0];
  const ReshardRound& last = self.routes().rounds[1];
  EXPECT_TRUE(first.begins.contains(3));
  EXPECT_FALSE(first.begins.contains(1));
  EXPECT_TRUE(last.begins.contains(1));
  EXPECT_FALSE(last.begins.contains(3));
  for (const ReshardRound& round : self.routes().rounds)
    for (const auto& message : round.of_stages) EXPECT_GT(ElementsOf(message), 0) << "all send in each round";
}

// Two tensor ranks: the rows of a parameter that is divided by columns are the only blocks that are not one
// run.
TEST(ReshardRoutes, MoveWhatLiesEndToEndAsOneRun) {
  const ModelConfig model = WithFourHeads(SmallConfig(DataType::kFloat64));
  const Topology alone = OneStage(model, TopologyOf(1, 1, 1, 1));
  const ReshardingRank sole(model, alone, 0, nullptr);
  for (const BufferBlock& block : sole.routes().rounds.front().of_share.front()) EXPECT_EQ(block.rows, 1);
  const Topology replicas = OneStage(model, TopologyOf(3, 1, 1, 1));
  const ReshardingRank replica(model, replicas, 1, nullptr);
  EXPECT_EQ(replica.routes().rounds.front().of_share.size(), 1U);
  EXPECT_LE(replica.routes().rounds.front().of_share.front().size(), replica.share().parameters.size());
  const Topology tensors = OneStage(model, TopologyOf(1, 1, 1, 2));
  const ReshardingRank tensor(model, tensors, 0, nullptr);
  EXPECT_EQ(tensor.routes().rounds.front().of_share.size(), 2U);
  EXPECT_TRUE(std::ranges::any_of(tensor.routes().rounds.front().of_share.front(),
                                  [](const BufferBlock& block) { return block.rows > 1; }));
}

// Rounds that go while others are made: the same bits as all at once.
TEST(Resharding, TakesRoundsBeforeTheOthersAreMade) {
  const ModelConfig model = WithFourHeads(SmallConfig(DataType::kFloat64));
  const Topology topology = OneStage(model, TopologyOf(3, 1, 1, 1));
  RunRanks(3, [&](uint32_t rank, Communicator& communicator) {
    ReshardingRank self(model, topology, rank, &communicator, /*round_bytes=*/1);
    Resharding& resharding = self.resharding();
    ASSERT_GT(resharding.rounds(), 2U);
    const at::Tensor& gradients = self.stages().at(0)->flat_parameters().gradients;
    const at::Tensor made = at::arange(gradients.numel(), at::kDouble).add_(rank).sin_();
    gradients.copy_(made);
    ASSERT_TRUE(resharding.TakeGradients().ok());
    const at::Tensor at_once = self.share().gradients.clone();
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (size_t round = 0; round + 1 < resharding.rounds(); ++round) {
        const int64_t begin = resharding.BeginsOf(round).at(0);
        gradients.narrow(0, begin, gradients.numel() - begin)
            .copy_(made.narrow(0, begin, gradients.numel() - begin));
        ASSERT_TRUE(resharding.TakeRounds(round + 1).ok());
      }
      gradients.copy_(made);
      ASSERT_TRUE(resharding.TakeGradients().ok());
      EXPECT_TRUE(self.share().gradients.equal(at_once));
    }
  });
}

TEST(Resharding, FailsWhereAPeerIsGone) {
  const ModelConfig model = WithFourHeads(SmallConfig(DataType::kFloat64));
  const Topology topology = OneStage(model, TopologyOf(2, 1, 1, 1));
  RunRanks(2, [&](uint32_t rank, Communicator& communicator) {
    if (rank == 1) return communicator.Abort("it leaves");
    ReshardingRank self(model, topology, rank, &communicator);
    const absl::Status status = self.resharding().BringParameters();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  });
}

}  // namespace
}  // namespace penstock::worker
