// Costs of a rank of a stage group against values worked out by hand (execution.md, sections 7, 8 and 10).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/model/share.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

void SetGroup(uint32_t context, uint32_t tensor, double efficiency, v1::JobSpec* job) {
  job->mutable_mesh()->set_context(context);
  job->mutable_mesh()->set_tensor(tensor);
  for (v1::LayerCost& layer : *job->mutable_profile()->mutable_layers()) {
    v1::TensorCost* cost = layer.add_tensor();
    cost->set_degree(tensor);
    cost->set_efficiency(efficiency);
  }
}

// A GPT of 8 layers on one position; a half of n tokens over two tensor ranks sends 8 n bytes in 100 + 8 n
// ns.
v1::JobSpec GroupGpt(uint32_t context, uint32_t tensor, double efficiency = 1) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  if (tensor > 1) {
    SetGroup(context, tensor, efficiency, &job);
  } else {
    job.mutable_mesh()->set_context(context);
  }
  job.mutable_profile()->mutable_cluster()->set_attention_hides_exchange(true);
  return job;
}

LayerCosts CostsOf(const CostModel& costs, const Share& share) {
  LayerCosts layers;
  EXPECT_TRUE(costs.Layers(share, &layers));
  return layers;
}

// One micro-batch, packed.
std::vector<Share> Divide(const CostModel& costs, const std::vector<SampleTokens>& tokens,
                          const std::vector<Span>& spans) {
  std::vector<uint32_t> samples;
  for (uint32_t i = 0; i < tokens.size(); ++i) samples.push_back(i);
  std::vector<Share> shares;
  SharesOf(RowsOf(samples, tokens, Layout::kPacked, {}), tokens, spans, costs.nodes(), costs.group().context,
           &shares);
  return shares;
}

Share Whole(const std::vector<SampleTokens>& tokens) {
  TokenSums sums;
  for (const SampleTokens& sample : tokens) AddPacked(sample, &sums);
  return WholeShare(sums);
}

constexpr StageRecompute kKeepEverything = {};

TEST(TensorCostTest, AGptGathersAndSumsFourTimesForwardAndSixTimesBackward) {
  const CostModel costs = ModelOf(GroupGpt(1, 2));
  const LayerCosts layers = CostsOf(costs, Whole({{0, 100, 40}}));
  // A layer of 2100 ns and a head of 1000 ns, divided by 2. A half takes 900 ns; the embedding has one in
  // either direction, the head two forward.
  EXPECT_EQ(costs.ForwardExchange(0, layers).tensor_ns, (8 * 4 + 1 + 2) * 900);
  EXPECT_EQ(costs.ForwardExchange(0, layers).tensor_bytes, (8 * 4 + 1 + 2) * 800);
  EXPECT_EQ(costs.ForwardNs(0, layers), 8 * 1050 + 500 + (8 * 4 + 1 + 2) * 900);
  EXPECT_EQ(costs.BackwardExchange(0, layers, kKeepEverything).tensor_ns, (8 * 6 + 1) * 900);
  EXPECT_EQ(costs.BackwardNs(0, layers, kKeepEverything), 8 * 2100 + 1000 + (8 * 6 + 1) * 900);
  // A layer that is run again gathers and sums again.
  EXPECT_EQ(costs.BackwardNs(0, layers, {0, 8}), 8 * 3150 + 1000 + (8 * 10 + 1) * 900);
  EXPECT_EQ(costs.BackwardNs(0, layers, {0, 3}), 3 * 3150 + 5 * 2100 + 1000 + (3 * 10 + 5 * 6 + 1) * 900);
  // No part of the exchange is in the weight gradient.
  EXPECT_EQ(costs.WeightNs(0, layers), 8 * 1050);
  EXPECT_EQ(costs.ForwardExchange(0, layers).context_ns, 0);
}

TEST(TensorCostTest, AttentionThatIsRunAgainGathersNothingMore) {
  v1::JobSpec job = GroupGpt(1, 2);
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  layer.set_backward_ratio_selective(2.5);
  *layer.mutable_stored_selective() = layer.stored_none();
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Whole({{0, 100, 40}}));
  EXPECT_EQ(costs.BackwardExchange(0, layers, {8, 0}).tensor_ns, (8 * 6 + 1) * 900);
  EXPECT_EQ(costs.BackwardNs(0, layers, {8, 0}), 8 * 2625 + 1000 + (8 * 6 + 1) * 900);
}

TEST(TensorCostTest, MoreRanksSendMoreAndComputeLess) {
  v1::JobSpec job = GroupGpt(1, 4, 0.5);
  job.mutable_model()->set_heads(4);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Whole({{0, 100, 40}}));
  // 4 ranks at half of their speed: 1050 ns again. Three quarters of 1600 bytes go out.
  EXPECT_EQ(costs.ForwardNs(0, layers), 8 * 1050 + 500 + (8 * 4 + 1 + 2) * 1300);
  EXPECT_EQ(costs.ForwardExchange(0, layers).tensor_bytes, (8 * 4 + 1 + 2) * 1200);
}

TEST(TensorCostTest, AMeasuredPartTakesWhatItsFormSays) {
  v1::JobSpec job = GroupGpt(1, 2);
  v1::LayerTime* form = job.mutable_profile()->mutable_layers(0)->mutable_tensor(0)->mutable_forward();
  form->set_fixed_ns(700);
  form->set_target_token_ns(6);
  form->set_target_square_ns(0.006);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Whole({{0, 100, 40}}));
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 700 + 600 + 60);
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepAll], 2 * 1360);
  EXPECT_DOUBLE_EQ(layers.forward[kHead], 500);
}

TEST(TensorCostTest, TheSlowestLinkOfTheTensorRanksCounts) {
  v1::JobSpec job = GroupGpt(1, 2);
  job.mutable_profile()->mutable_cluster()->set_gpus_per_node(1);
  const CostModel far = ModelOf(job);
  EXPECT_EQ(CostsOf(far, Whole({{0, 100, 40}})).exchange.target.ns, 500 + 4000);
  job.mutable_profile()->mutable_cluster()->set_gpus_per_node(2);
  job.mutable_profile()->mutable_cluster()->set_intra_node_collective_bytes_per_second(5e8);
  job.mutable_profile()->mutable_cluster()->set_intra_node_collective_latency_ns(70);
  const CostModel near = ModelOf(job);
  EXPECT_EQ(CostsOf(near, Whole({{0, 100, 40}})).exchange.target.ns, 70 + 1600);
}

TEST(TensorCostTest, CollectivesInsideANodeHaveTheSpeedOfTheirNumberOfRanks) {
  v1::JobSpec job = GroupGpt(1, 2);
  v1::Cluster* const cluster = job.mutable_profile()->mutable_cluster();
  cluster->set_intra_node_collective_bytes_per_second(5e8);
  cluster->set_intra_node_collective_latency_ns(70);
  v1::CollectiveSpeed* const speed = cluster->add_collective_speeds();
  speed->set_ranks(4);
  speed->set_bytes_per_second(2e8);
  speed->set_latency_ns(30);
  cluster->set_gpus_per_node(2);
  EXPECT_EQ(CostsOf(ModelOf(job), Whole({{0, 100, 40}})).exchange.target.ns, 70 + 1600);
  speed->set_ranks(2);
  const CostModel costs = ModelOf(job);
  EXPECT_EQ(CostsOf(costs, Whole({{0, 100, 40}})).exchange.target.ns, 30 + 4000);
  EXPECT_EQ(costs.exchange_model().HalfLatencyNs(), 30);
  cluster->set_gpus_per_node(1);
  EXPECT_EQ(CostsOf(ModelOf(job), Whole({{0, 100, 40}})).exchange.target.ns, 500 + 4000);
}

TEST(TensorCostTest, AT5ExchangesBothSides) {
  v1::JobSpec job = T5Job(1, 1, v1::POLICY_DYNAMIC);
  SetGroup(1, 2, 1, &job);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Whole({{50, 30, 30}}));
  // Encoder layer 1525 ns, decoder layer 1699 ns, head 650 ns; halves of 500 ns and 340 ns.
  constexpr int kEmbeddings = 500 + 340;
  EXPECT_EQ(costs.ForwardNs(0, layers),
            (4 * 1525 + 4 * 1699 + 650) / 2 + 4 * (4 * 500) + 4 * (6 * 340 + 500) + kEmbeddings + 2 * 340);
  EXPECT_EQ(costs.BackwardNs(0, layers, kKeepEverything),
            4 * 1525 + 4 * 1699 + 650 + 4 * (6 * 500) + 4 * (9 * 340 + 2 * 500) + kEmbeddings);
  EXPECT_EQ(costs.BackwardNs(0, layers, {0, 8}),
            3 * (4 * 1525 + 4 * 1699) / 2 + 650 + 4 * (10 * 500) + 4 * (15 * 340 + 3 * 500) + kEmbeddings);
  // The encoder's layers are run again first.
  EXPECT_EQ(costs.BackwardExchange(0, layers, {0, 4}).tensor_ns,
            4 * (10 * 500) + 4 * (9 * 340 + 2 * 500) + kEmbeddings);
}

TEST(TensorCostTest, AnEmptyShareStillTakesPartInEveryCollective) {
  const CostModel costs = ModelOf(GroupGpt(2, 2));
  const std::vector<Share> shares = Divide(costs, {{0, 100, 40}}, {{0, 1}});
  const LayerCosts layers = CostsOf(costs, shares[1]);
  EXPECT_EQ(costs.ForwardExchange(0, layers).tensor_ns, (8 * 4 + 1 + 2) * 100);
  EXPECT_EQ(costs.ForwardExchange(0, layers).tensor_bytes, 0);
  EXPECT_EQ(costs.ForwardNs(0, layers), 8 * 500 + 250 + (8 * 4 + 1 + 2) * 100);
}

// Two chunks of 25 tokens each: rank 0 sends its first to rank 1, and needs the two in the middle.
TEST(ContextCostTest, KeysAndValuesAreExposedBeyondAttention) {
  const CostModel costs = ModelOf(GroupGpt(2, 1));
  const std::vector<Share> shares = Divide(costs, {{0, 100, 40}}, {{0, 2}});
  const LayerCosts layers = CostsOf(costs, shares[0]);
  const PassExchange forward = costs.ForwardExchange(0, layers);
  // 32 bytes a token: 100 + 50 * 32 ns a layer, of which attention to 5000 squared tokens hides 50.
  EXPECT_EQ(forward.context_sent_bytes, 8 * 25 * 32);
  EXPECT_EQ(forward.context_received_bytes, 8 * 50 * 32);
  EXPECT_EQ(forward.context_ns, 8 * 1700);
  EXPECT_EQ(forward.context_exposed_ns, 8 * 1650);
  EXPECT_EQ(costs.ForwardNs(0, layers), 8 * 1550 + 750 + 8 * 1650);
  const PassExchange backward = costs.BackwardExchange(0, layers, kKeepEverything);
  EXPECT_EQ(backward.context_sent_bytes, 8 * 75 * 32);
  EXPECT_EQ(backward.context_received_bytes, 8 * 75 * 32);
  EXPECT_EQ(backward.context_ns, 8 * 3400);
  EXPECT_EQ(backward.context_exposed_ns, 8 * 3300);
  EXPECT_EQ(costs.BackwardNs(0, layers, kKeepEverything), 8 * 3100 + 1500 + 8 * 3300);
  EXPECT_EQ(costs.BackwardNs(0, layers, {0, 8}), 8 * 4650 + 1500 + 8 * 3250);
  EXPECT_EQ(costs.BackwardExchange(0, layers, {0, 3}).context_exposed_ns, 3 * 3250 + 5 * 3300);
  // Loss positions 59 to 98: 24 of them in the last chunk.
  EXPECT_EQ(shares[0].sums.loss, 24);
  EXPECT_EQ(shares[1].sums.loss, 16);
}

TEST(ContextCostTest, NothingHidesWherePassesWait) {
  v1::JobSpec job = GroupGpt(2, 1);
  job.mutable_profile()->mutable_cluster()->set_attention_hides_exchange(false);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Divide(costs, {{0, 100, 40}}, {{0, 2}})[0]);
  EXPECT_EQ(costs.ForwardExchange(0, layers).context_exposed_ns, 8 * 1700);
  EXPECT_EQ(costs.BackwardExchange(0, layers, {0, 3}).context_exposed_ns, 8 * 3400);
}

TEST(ContextCostTest, AttentionIsSlowerWhereTokensAreFew) {
  v1::JobSpec job = GroupGpt(2, 1);
  job.mutable_profile()->mutable_layers(0)->mutable_forward()->set_half_efficiency_tokens(100);
  const CostModel costs = ModelOf(job);
  const std::vector<Share> shares = Divide(costs, {{0, 100, 40}}, {{0, 2}});
  const LayerCosts layers = CostsOf(costs, shares[0]);
  EXPECT_EQ(layers.exchange.exposed_forward_ns, 1700 - 150);
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 1000 + 3 * 550);
}

TEST(ContextCostTest, FastLinksHideBehindAttention) {
  v1::JobSpec job = GroupGpt(2, 1);
  job.mutable_profile()->mutable_cluster()->set_intra_node_collective_bytes_per_second(1e12);
  job.mutable_profile()->mutable_cluster()->set_intra_node_collective_latency_ns(10);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Divide(costs, {{0, 100, 40}}, {{0, 2}})[0]);
  EXPECT_EQ(costs.ForwardExchange(0, layers).context_ns, 8 * 12);
  EXPECT_EQ(costs.ForwardExchange(0, layers).context_exposed_ns, 0);
  EXPECT_EQ(costs.ForwardNs(0, layers), 8 * 1550 + 750);
}

// Nodes of two ranks; rows of 80 tokens over all four ranks, of 40 over the first two, of 20 on the last.
TEST(ContextCostTest, EveryKindOfLinkIsWaitedForInTurn) {
  v1::JobSpec job = GroupGpt(4, 1);
  job.mutable_profile()->mutable_cluster()->set_gpus_per_node(2);
  const CostModel costs = ModelOf(job);
  const std::vector<Share> shares =
      Divide(costs, {{0, 80, 0}, {0, 40, 0}, {0, 20, 0}}, {{0, 4}, {0, 2}, {3, 1}});
  const ExchangeCosts second = CostsOf(costs, shares[1]).exchange;
  // Of the long row 40 tokens out and 50 in, of the other 20 out and 10 in.
  EXPECT_EQ(second.context_ns, (500 + 50 * 32 * 5) + (100 + 20 * 32));
  EXPECT_EQ(second.sent_bytes, 60 * 32);
  EXPECT_EQ(second.received_bytes, 60 * 32);
  EXPECT_EQ(second.exposed_forward_ns, second.context_ns - 24);
  const ExchangeCosts last = CostsOf(costs, shares[3]).exchange;
  EXPECT_EQ(last.context_ns, 500 + 60 * 32 * 5);
  // The whole row's attention hides nothing.
  EXPECT_EQ(last.exposed_forward_ns, last.context_ns - 16);
  EXPECT_EQ(shares[3].sums.target_square, 1600 + 400);
  EXPECT_EQ(costs.Memory(0, shares[1]).keys_values, 120 * 32);
  EXPECT_EQ(costs.Memory(0, shares[3]).keys_values, 80 * 32);
}

TEST(ContextCostTest, DividedRowsTakeTimeInBothPasses) {
  v1::JobSpec job = GroupGpt(2, 1);
  job.mutable_profile()->mutable_layers(0)->mutable_forward()->set_divided_row_ns(300);
  const CostModel costs = ModelOf(job);
  // One row on both ranks, and one that the first has whole.
  const std::vector<Share> shares = Divide(costs, {{0, 100, 40}, {0, 60, 20}}, {{0, 2}, {0, 1}});
  const LayerCosts first = CostsOf(costs, shares[0]), second = CostsOf(costs, shares[1]);
  const double first_ns = 1000 + 10 * (50 + 60) + 0.01 * (5000 + 3600) + 300;
  EXPECT_DOUBLE_EQ(first.forward[kDecoder], first_ns);
  EXPECT_DOUBLE_EQ(second.forward[kDecoder], 1000 + 10 * 50 + 0.01 * 5000 + 300);
  EXPECT_DOUBLE_EQ(first.backward[kDecoder][kKeepAll], 2 * first_ns);
  // Of tensor ranks each has its heads of all keys.
  const CostModel tensor = ModelOf([&] {
    SetGroup(2, 2, 1, &job);
    return job;
  }());
  EXPECT_DOUBLE_EQ(CostsOf(tensor, shares[0]).forward[kDecoder], first_ns / 2);
}

TEST(ContextCostTest, DividedRowsTakeWhatEachFormOfABackwardPassSays) {
  v1::JobSpec job = GroupGpt(2, 1);
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  layer.mutable_backward_input()->set_target_token_ns(20);
  layer.mutable_backward_input()->set_divided_row_ns(5);
  layer.mutable_backward_weight()->set_target_token_ns(9);
  const CostModel costs = ModelOf(job);
  const LayerCosts layers = CostsOf(costs, Divide(costs, {{0, 100, 40}}, {{0, 2}})[0]);
  EXPECT_DOUBLE_EQ(layers.forward[kDecoder], 1000 + 500 + 50);
  EXPECT_DOUBLE_EQ(layers.backward[kDecoder][kKeepAll], 20 * 50 + 5 + 9 * 50);
  EXPECT_DOUBLE_EQ(layers.weight[kDecoder], 9 * 50);
}

TEST(ContextCostTest, AnEmptyShareTakesWhatAnEmptyMicroBatchTakes) {
  const CostModel costs = ModelOf(GroupGpt(2, 1));
  const Share empty = Divide(costs, {{0, 100, 40}}, {{0, 1}})[1];
  const LayerCosts layers = CostsOf(costs, empty);
  EXPECT_EQ(costs.ForwardNs(0, layers), 8 * 1000 + 500);
  EXPECT_EQ(costs.ForwardExchange(0, layers).ns(), 0);
  const StageMemory memory = costs.Memory(0, empty);
  EXPECT_EQ(
      costs.StoredBytes(0, memory, kKeepEverything) + memory.peak + memory.tokens + memory.forward_peak(), 0);
}

TEST(GroupMemoryTest, TensorRanksDivideWhatIsStoredAndGatherTheRest) {
  const CostModel costs = ModelOf(GroupGpt(2, 2));
  const std::vector<Share> shares = Divide(costs, {{0, 101, 40}}, {{0, 2}});
  // Chunks of 25, 25, 25 and 26 tokens.
  EXPECT_EQ(shares[0].sums.target, 51);
  const StageMemory memory = costs.Memory(0, shares[0]);
  EXPECT_EQ(memory.stored_layer[kDecoder][kKeepAll], 2550);
  EXPECT_EQ(memory.stored_layer[kDecoder][kKeepInput], 255);
  EXPECT_EQ(memory.peak, 1275);
  EXPECT_EQ(memory.gathered, 2 * 51 * 16);
  // One of the two heads: 16 bytes for each of the row's tokens.
  EXPECT_EQ(memory.keys_values, 101 * 16);
  // The head's input and its gradient, and both of a chunk.
  EXPECT_EQ(memory.forward_peak(), 4 * 51 * 16);
  // While it attends: of the layer, and keys and values with their gradients.
  EXPECT_EQ(memory.backward_peak(), 1275 + 2 * 101 * 16);
  const std::vector<Share> undivided = Divide(costs, {{0, 101, 40}}, {{0, 1}});
  EXPECT_EQ(costs.Memory(0, undivided[0]).backward_peak(), 2525 / 2 + 2 * 101 * 16);
  // All tensor ranks load all tokens.
  EXPECT_EQ(memory.tokens, 16 * (51 + static_cast<int64_t>(shares[0].sums.loss)));
}

// 30 bytes of a hidden state and two of logits of 60: two thirds of these, over two tensor ranks, and four
// times all hidden states of 16 bytes.
TEST(GroupMemoryTest, TensorRanksHaveLogitsOnceLess) {
  v1::JobSpec job = GroupGpt(1, 2);
  v1::LayerCost* const head = job.mutable_profile()->mutable_layers(1);
  head->mutable_stored_none()->set_target_token_bytes(30);
  head->mutable_peak()->set_target_token_bytes(210);
  const CostModel costs = ModelOf(job);
  const StageMemory memory = costs.Memory(0, Whole({{0, 50, 40}}));
  EXPECT_EQ(memory.forward_peak(), 50 * 40 + 4 * 50 * 16);
  EXPECT_EQ(memory.peak_head, 50 * 105);
}

// Input and output gradient of attention and of the feed-forward network, of the 26 tokens that the other
// tensor rank has; own rows are part of what a layer keeps.
TEST(GroupMemoryTest, SplitBackwardPassesPutGatheredOperandsAside) {
  const CostModel costs = ModelOf(GroupGpt(2, 2));
  const StageMemory memory = costs.Memory(0, Divide(costs, {{0, 101, 40}}, {{0, 2}})[0]);
  EXPECT_EQ(costs.PutAsideBytes(0, memory), 8 * 2550 + 8 * 4 * 26 * 16);
  const CostModel whole = ModelOf(GroupGpt(1, 1));
  EXPECT_EQ(whole.PutAsideBytes(0, whole.Memory(0, Whole({{0, 51, 40}}))), 8 * 5100);
}

TEST(GroupMemoryTest, SharedKeyValueHeadsAreRepeated) {
  v1::JobSpec job = GroupGpt(2, 2);
  job.mutable_model()->set_key_value_heads(1);
  EXPECT_EQ(ModelOf(job).exchange_model().key_value_bytes(), 2 * 1 * 2 * 4);
  EXPECT_EQ(ModelOf(GroupGpt(2, 2)).exchange_model().key_value_bytes(), 2 * 1 * 2 * 4);
  EXPECT_EQ(ModelOf(GroupGpt(2, 1)).exchange_model().key_value_bytes(), 2 * 2 * 2 * 4);
}

v1::JobSpec TwoPositions(uint32_t data, bool shard) {
  v1::JobSpec job = GptJob(2, data, v1::POLICY_DYNAMIC);
  SetGroup(2, 2, 1, &job);
  job.mutable_planning()->set_shard_optimizer_state(shard);
  return job;
}

TEST(GroupMemoryTest, BoundariesAreDividedOverTensorRanks) {
  const CostModel costs = ModelOf(TwoPositions(1, false));
  const Share share = Divide(costs, {{0, 101, 40}}, {{0, 2}})[0];
  EXPECT_EQ(costs.BoundaryElements(0, share.sums, 0), 25 * 4);
  EXPECT_EQ(costs.BoundaryElements(0, share.sums, 1), 26 * 4);
  EXPECT_EQ(costs.Memory(0, share).output, 26 * 4 * 4);
  EXPECT_EQ(costs.Memory(1, share).input, 26 * 4 * 4);
}

// Each of two stages: 4 layers of 1000 bytes, and an embedding or a head of 2000; half of that on a rank.
TEST(GroupReduceTest, ContextRanksAreReplicasOfTheParameters) {
  const CostModel near = ModelOf(TwoPositions(1, false));
  EXPECT_EQ(near.ParameterBytes(0), 3000);
  EXPECT_EQ(near.StaticBytes(0), 12000);
  // Ranks 0 and 2: one step of 1500 bytes inside the node, there and back.
  EXPECT_EQ(near.ReduceNs(0, 0), 2 * (100 + 1500));
  EXPECT_EQ(near.OptimizerNs(0, 0), 1500);
  // Ranks 0, 2, 8, 10: three steps of 750 bytes, some between nodes.
  const CostModel far = ModelOf(TwoPositions(2, false));
  EXPECT_EQ(far.ReduceNs(0, 0), 2 * 3 * (500 + 750 * 5));
  EXPECT_EQ(far.ReduceNs(1, 1), 2 * 3 * (500 + 750 * 5));
}

TEST(GroupReduceTest, ADividedOptimizerStateIsDividedOverContextRanksToo) {
  const CostModel costs = ModelOf(TwoPositions(2, true));
  EXPECT_EQ(costs.StaticBytes(0), 7500);
  EXPECT_EQ(costs.ReduceNs(0, 0), 3 * (500 + 750 * 5));
  EXPECT_EQ(costs.OptimizerNs(0, 0), 375 + 3 * (500 + 750 * 5));
}

}  // namespace
}  // namespace penstock::core
