// What plans of stage groups of several ranks can have wrong beyond those of one: the mesh, who is where,
// spans, shares, joint passes and what they exchange.
#include "tests/unit/verify/plan_edits.h"
#include "tests/unit/verify/plan_sealing.h"
#include "tests/unit/verify/planted_damage.h"

namespace penstock::core {
namespace {

// Two context ranks of two tensor ranks each, two stage groups in each of two replicas: 16 ranks. The rows of
// a micro-batch are on both context ranks, on the second, on both, ...
class PlantedDamageInStageGroups : public PlantedDamage {
 protected:
  PlantedDamageInStageGroups() : PlantedDamage(Options()) {}

  static FixtureOptions Options() {
    FixtureOptions options;
    options.samples_per_micro_batch = 4;
    options.layout = v1::LAYOUT_PACKED;
    options.split_backward = true;
    options.context = 2;
    options.tensor = 2;
    return options;
  }

  void ExpectValid() { EXPECT_TRUE(CheckPlan(planned_.batch(), planned_.plan()).empty()); }
  // A row that is divided.
  int DividedRow(const v1::MicroBatch& micro_batch) {
    for (int row = 0; row < micro_batch.span_ranks_size(); ++row)
      if (micro_batch.span_ranks(row) > 1) return row;
    ADD_FAILURE() << "no row is divided";
    return 0;
  }
};

TEST_F(PlantedDamageInStageGroups, NoneIsValid) { ExpectValid(); }

// Rule 0: mesh, topology and groups.

TEST_F(PlantedDamageInStageGroups, ContextRanksThatAreNoPowerOfTwo) {
  plan().mutable_mesh()->set_context(3);
  ExpectViolation(0, "mesh.context is 3, which is no power of two");
}

TEST_F(PlantedDamageInStageGroups, MoreRanksThanPrograms) {
  plan().mutable_mesh()->set_context(4);
  ExpectViolation(0, "mesh of 2 x 2 groups of 8 ranks but 16 programs");
}

TEST_F(PlantedDamageInStageGroups, TensorRanksThatDivideNoHeads) {
  plan().mutable_mesh()->set_tensor(4);
  plan().mutable_mesh()->set_context(1);
  ExpectViolation(0, "mesh.tensor is 4, which does not divide 2 heads, 2 key-value heads and ffn of 64");
}

TEST_F(PlantedDamageInStageGroups, DegreesBeyondAllBounds) {
  plan().mutable_mesh()->set_tensor(128);
  ExpectViolation(0, "mesh.tensor is 128 and mesh.context 2, they are at most 64 and 1024");
}

TEST_F(PlantedDamageInStageGroups, RankTwiceInAStageGroup) {
  plan().mutable_topology()->mutable_replicas(0)->mutable_stages(1)->set_ranks(3, 6);
  ExpectViolation(0, "topology.replicas[0].stages[1] is on rank 6 twice");
}

TEST_F(PlantedDamageInStageGroups, RankInTwoStageGroups) {
  plan().mutable_topology()->mutable_replicas(0)->mutable_stages(1)->set_ranks(3, 0);
  ExpectViolation(0, "topology.replicas[0].stages[1] is on rank 0, which is in another stage group");
}

TEST_F(PlantedDamageInStageGroups, StageGroupWithoutARank) {
  plan().mutable_topology()->mutable_replicas(1)->mutable_stages(0)->mutable_ranks()->RemoveLast();
  ExpectViolation(0, "topology.replicas[1].stages[0] is on 3 ranks, not on 4");
}

TEST_F(PlantedDamageInStageGroups, GradientGroupInAnotherOrder) {
  plan().mutable_groups(1)->mutable_ranks()->SwapElements(0, 1);
  ExpectViolation(0, "group 1 has ranks [3, 1, 9, 11], the topology makes it [1, 3, 9, 11]");
}

TEST_F(PlantedDamageInStageGroups, StageGroupMissingAmongTheGroups) {
  plan().mutable_groups()->RemoveLast();
  ExpectViolation(0, "there are 9 groups, not 10");
}

TEST_F(PlantedDamageInStageGroups, PassWithoutItsGroup) {
  v1::Instruction& pass = Get(5, v1::OP_FORWARD, 1);
  pass.clear_collective();
  ExpectViolationAt(0, 5, pass, "collective is not set");
}

TEST_F(PlantedDamage, OwnTimeAndExchangeOfARankAlone) {
  v1::Instruction& pass = Get(0, v1::OP_FORWARD, 1);
  pass.set_own_duration_ns(3);
  pass.mutable_exchange();
  ExpectViolationAt(0, 0, pass, "own_duration_ns is set, which this op does not have");
  ExpectViolationAt(0, 0, pass, "exchange is set, which this op does not have");
}

// Rule 2: transfers between equal places.

TEST_F(PlantedDamageInStageGroups, TransferOfAnotherPlacesShare) {
  v1::Instruction& send = Get(3, v1::OP_SEND, 0);
  const uint32_t tokens = send.transfer().shape(0);
  send.mutable_transfer()->set_shape(0, tokens + 1);
  ExpectViolationAt(2, 3, send,
                    "its shape is [" + std::to_string(tokens + 1) + ", 16], the micro-batch needs [" +
                        std::to_string(tokens) + ", 16]");
}

TEST_F(PlantedDamageInStageGroups, TransferToAnotherPlace) {
  v1::Instruction& send = Get(3, v1::OP_SEND, 0);
  send.mutable_transfer()->set_peer(6);
  ExpectViolationAt(2, 3, send, "its peer is rank 6, but the stage at the other end is on rank 7");
}

TEST_F(PlantedDamageInStageGroups, TransfersOfOnePlaceInAnotherOrder) {
  for (const int rank : {3, 7}) {
    for (v1::Instruction& transfer : *plan().mutable_programs(rank)->mutable_instructions())
      if (transfer.has_transfer()) transfer.mutable_transfer()->set_order(2 * transfer.transfer().order());
  }
  ExpectViolationAt(2, 3, Get(3, v1::OP_SEND, 1),
                    "its order is 2, at the first place of its stage group it is 1");
}

// Rules 2 and 5: joint passes.

TEST_F(PlantedDamageInStageGroups, PassesInAnotherOrderOnOneRank) {
  v1::Program& program = *plan().mutable_programs(2);
  v1::Instruction& first = Get(2, v1::OP_BACKWARD_WEIGHT, 0);
  v1::Instruction& second = Get(2, v1::OP_BACKWARD_WEIGHT, 1);
  first.set_micro_batch(1);
  second.set_micro_batch(0);
  ExpectViolationAt(5, 2, first, "its op, stage, micro-batch or bytes differ from what rank 0 issues");
  ExpectViolationAt(5, 2, first, "deadlock: it waits for rank 0");
  EXPECT_EQ(program.rank(), 2u);
}

TEST_F(PlantedDamageInStageGroups, PassInTheGroupOfAnotherStage) {
  v1::Instruction& pass = Get(2, v1::OP_FORWARD, 0);
  pass.mutable_collective()->set_group(7);
  ExpectViolationAt(5, 2, pass, "its group is 7, that of its stage group is 6");
}

TEST_F(PlantedDamageInStageGroups, PassWithAnotherSequence) {
  v1::Instruction& pass = Get(2, v1::OP_FORWARD, 1);
  pass.mutable_collective()->set_sequence(7);
  ExpectViolationAt(5, 2, pass, "its sequence is 7, but it is number 1 of its group");
}

TEST_F(PlantedDamageInStageGroups, PassWithBytesOfItsOwn) {
  v1::Instruction& pass = Get(2, v1::OP_FORWARD, 1);
  pass.mutable_collective()->set_bytes(8);
  ExpectViolationAt(5, 2, pass, "its collective has 8 bytes; a pass has 0");
}

TEST_F(PlantedDamageInStageGroups, PassMissingOnOneRank) {
  Remove(plan(), 2, Get(2, v1::OP_BACKWARD_WEIGHT, 2).id());
  ExpectViolation(5, "rank 2: it issues 8 collectives in group 6, rank 0 issues 9");
}

TEST_F(PlantedDamageInStageGroups, ReduceInTheGroupOfAnotherTensorRank) {
  v1::Instruction& reduce = Get(2, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.mutable_collective()->set_group(1);
  ExpectViolationAt(5, 2, reduce, "its group is 1, that of its stage is 0");
}

TEST_F(PlantedDamageInStageGroups, WrongBytesOfAnExchange) {
  v1::Instruction& pass = Get(1, v1::OP_BACKWARD_INPUT, 1);
  const uint64_t tensor = pass.exchange().tensor_bytes(), sent = pass.exchange().context_sent_bytes();
  pass.mutable_exchange()->set_tensor_bytes(tensor + 1);
  pass.mutable_exchange()->set_context_sent_bytes(sent + 1);
  pass.mutable_exchange()->set_context_received_bytes(0);
  const auto text = [](const char* field, uint64_t found, uint64_t right) {
    return std::string("exchange.") + field + " is " + std::to_string(found) + ", expected " +
           std::to_string(right);
  };
  ExpectViolationAt(5, 1, pass, text("tensor_bytes", tensor + 1, tensor));
  ExpectViolationAt(5, 1, pass, text("context_sent_bytes", sent + 1, sent));
  ExpectViolationAt(5, 1, pass, text("context_received_bytes", 0, sent));
}

TEST_F(PlantedDamageInStageGroups, ExchangeOfNothing) {
  v1::Instruction& pass = Get(1, v1::OP_BACKWARD_WEIGHT, 1);
  pass.mutable_exchange();
  ExpectViolationAt(5, 1, pass, "exchange is set, but nothing is exchanged");
}

// Rule 6: what a rank loads is of its own tokens.

TEST_F(PlantedDamageInStageGroups, LoadOfAnotherContextRank) {
  v1::Instruction& load = Get(2, v1::OP_LOAD, 0);
  load.set_memory_acquired_bytes(load.memory_acquired_bytes() + 16);
  ExpectViolationAt(6, 2, load, "memory_acquired_bytes is");
}

// Rule 7: spans.

TEST_F(PlantedDamageInStageGroups, RowsWithoutSpans) {
  micro_batch(1, 2).clear_span_first();
  ExpectViolation(7, "replica 1, micro-batch 2: span_first has 0 and span_ranks 4 entries for 4 rows");
}

TEST_F(PlantedDamageInStageGroups, SpanBeyondTheGroup) {
  v1::MicroBatch& damaged = micro_batch(1, 2);
  damaged.set_span_first(1, 2);
  damaged.set_span_ranks(1, 1);
  ExpectViolation(7, "has the span of 1 context ranks from 2 on");
}

TEST_F(PlantedDamageInStageGroups, SpanThatIsNoPowerOfTwo) {
  micro_batch(0, 1).set_span_ranks(0, 3);
  ExpectViolation(7, "has the span of 3 context ranks from 0 on");
  micro_batch(0, 1).set_span_ranks(0, 0);
  ExpectViolation(7, "has the span of 0 context ranks from 0 on");
}

TEST_F(PlantedDamageInStageGroups, SpanThatBeginsBetween) {
  v1::MicroBatch& damaged = micro_batch(0, 1);
  damaged.set_span_first(DividedRow(damaged), 1);
  ExpectViolation(7, "has the span of 2 context ranks from 1 on");
}

TEST_F(PlantedDamageInStageGroups, SpanMovedToAnotherContextRank) {
  v1::MicroBatch& damaged = micro_batch(0, 1);
  const int row = DividedRow(damaged) == 0 ? 1 : 0;
  damaged.set_span_first(row, 1 - damaged.span_first(row));
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "its shape is");
}

TEST_F(PlantedDamage, SpansWithOneContextRank) {
  micro_batch(0, 1).add_span_first(0);
  ExpectViolation(7,
                  "replica 0, micro-batch 1: span_first or span_ranks is set, but there is one context rank");
}

TEST(ShortRows, AreNotDivided) {
  FixtureOptions options;
  options.layout = v1::LAYOUT_PADDED;
  options.context = 4;
  v1::PlannedBatch planned = MakeValidPlan(options);
  v1::MicroBatch& micro_batch = *planned.mutable_plan()->mutable_replicas(0)->mutable_micro_batches(0);
  micro_batch.set_target_length(7);
  micro_batch.set_span_first(0, 0);
  micro_batch.set_span_ranks(0, 4);
  EXPECT_THAT(
      CheckPlan(planned.batch(), planned.plan()),
      testing::Contains(testing::Field(
          &Violation::message, testing::HasSubstr("row 0 of 7 tokens has the span of 4 context ranks"))));
}

// Rule 8: a group takes as long as its slowest rank.

TEST_F(PlantedDamageInStageGroups, PassLongerThanOnItsSlowestRank) {
  for (const int rank : {0, 1, 2, 3}) {
    v1::Instruction& pass = Get(rank, v1::OP_FORWARD, 1);
    pass.set_own_duration_ns(pass.own_duration_ns() - 1);
  }
  ExpectViolationAt(8, 2, Get(2, v1::OP_FORWARD, 1),
                    "expected_duration_ns is 100, the longest own_duration_ns of its stage group is 99");
}

TEST_F(PlantedDamageInStageGroups, OwnTimeBeyondThePass) {
  v1::Instruction& pass = Get(1, v1::OP_FORWARD, 1);
  pass.set_own_duration_ns(101);
  ExpectViolationAt(8, 1, pass,
                    "own_duration_ns is 101, which is not between 0 and its expected_duration_ns, 100");
  pass.set_own_duration_ns(-1);
  ExpectViolationAt(8, 1, pass, "own_duration_ns is -1");
}

TEST_F(PlantedDamageInStageGroups, ExchangeLongerThanItsPass) {
  v1::Instruction& pass = Get(1, v1::OP_FORWARD, 1);
  pass.mutable_exchange()->set_tensor_ns(1000);
  ExpectViolationAt(8, 1, pass, "exchange takes 1000 ns over tensor ranks and");
}

TEST_F(PlantedDamageInStageGroups, MoreExposedThanThereIs) {
  v1::Instruction& pass = Get(1, v1::OP_FORWARD, 1);
  pass.mutable_exchange()->set_context_exposed_ns(pass.exchange().context_ns() + 1);
  ExpectViolationAt(8, 1, pass,
                    "over context ranks, and 0 ns of 0 with other ranks' experts, own_duration_ns is 93");
}

TEST_F(PlantedDamageInStageGroups, MoreExposedOfExpertsThanThereIs) {
  v1::Instruction& pass = Get(1, v1::OP_FORWARD, 1);
  pass.mutable_exchange()->set_expert_exposed_ns(1);
  ExpectViolationAt(8, 1, pass, "and 1 ns of 0 with other ranks' experts");
}

TEST_F(PlantedDamageInStageGroups, ProductsBesideExchangesThatAreNot) {
  for (const v1::Op op : {v1::OP_FORWARD, v1::OP_BACKWARD_INPUT}) {
    v1::Instruction& pass = Get(1, op, 1);
    const v1::Instruction right = pass;
    pass.mutable_exchange()->set_others_beside_arrival(true);
    ExpectViolationAt(5, 1, pass, "puts products of weights beside an exchange");
    pass = right;
  }
}

TEST_F(PlantedDamageInStageGroups, PassThatStartsBeforeItsGroup) {
  v1::Instruction& pass = Get(2, v1::OP_FORWARD, 2);
  pass.set_expected_start_ns(pass.expected_start_ns() - 1);
  ExpectViolationAt(8, 2, pass, "expected_start_ns is");
}

TEST_F(PlantedDamageInStageGroups, WaitForTheGroupLeftOut) {
  v1::Bubble& bubble = *plan().mutable_predicted()->mutable_ranks(1)->mutable_bubble();
  const std::string right = std::to_string(bubble.group_ns());
  bubble.set_group_ns(0);
  ExpectViolation(8, "rank 1: predicted group_ns is 0, expected " + right);
}

}  // namespace
}  // namespace penstock::core
