// Every kind of damage is found by the rule it breaks, with a message that names the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "planner/core/verify/check_plan.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock::core {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;

class PlantedDamage : public testing::Test {
 protected:
  explicit PlantedDamage(const FixtureOptions& options = {}) : planned_(MakeValidPlan(options)) {}

  v1::Plan& plan() { return *planned_.mutable_plan(); }
  v1::MicroBatch& micro_batch(int replica, int m) {
    return *plan().mutable_replicas(replica)->mutable_micro_batches(m);
  }
  v1::Instruction& Get(int rank, v1::Op op, uint32_t m, uint32_t part = 0) {
    return Find(plan(), rank, op, m, part);
  }

  void ExpectViolation(int rule, const std::string& text) {
    EXPECT_THAT(CheckPlan(planned_.batch(), planned_.plan()),
                Contains(AllOf(Field(&Violation::rule, rule), Field(&Violation::message, HasSubstr(text)))));
  }
  // The message names the rank and the instruction.
  void ExpectViolationAt(int rule, int rank, const v1::Instruction& instruction, const std::string& text) {
    const std::string place =
        "rank " + std::to_string(rank) + ", instruction " + std::to_string(instruction.id()) + " (";
    EXPECT_THAT(CheckPlan(planned_.batch(), planned_.plan()),
                Contains(AllOf(Field(&Violation::rule, rule), Field(&Violation::rank, rank),
                               Field(&Violation::instruction, instruction.id()),
                               Field(&Violation::message, AllOf(HasSubstr(place), HasSubstr(text))))));
  }

  v1::PlannedBatch planned_;
};

class PlantedDamageInPackedPlan : public PlantedDamage {
 protected:
  PlantedDamageInPackedPlan() : PlantedDamage({.layout = v1::LAYOUT_PACKED}) {}
};

// Two samples in the first row, one in the second.
class PlantedDamageInConcatenatedPlan : public PlantedDamage {
 protected:
  PlantedDamageInConcatenatedPlan()
      : PlantedDamage({.samples_per_micro_batch = 3, .layout = v1::LAYOUT_CONCATENATED}) {}
};

class PlantedDamageInSplitBackward : public PlantedDamage {
 protected:
  PlantedDamageInSplitBackward() : PlantedDamage({.split_backward = true}) {}
};

class PlantedDamageInEncoderDecoder : public PlantedDamage {
 protected:
  PlantedDamageInEncoderDecoder() : PlantedDamage({.pipeline = 4, .architecture = v1::ARCHITECTURE_T5}) {}
};

class PlantedDamageInSharedRanks : public PlantedDamage {
 protected:
  PlantedDamageInSharedRanks() : PlantedDamage({.pipeline = 1, .replicas = 2, .stages_per_rank = 2}) {}
};

// Rule 0: structure.

TEST_F(PlantedDamage, DuplicatedKey) {
  v1::Instruction& instruction = Get(0, v1::OP_LOAD, 1);
  instruction.set_micro_batch(0);
  ExpectViolationAt(0, 0, instruction, "same (op, stage, micro-batch, part)");
}

TEST_F(PlantedDamage, IdIsNotThePosition) {
  v1::Instruction& instruction = Get(1, v1::OP_FORWARD, 0);
  instruction.set_id(instruction.id() + 1);
  ExpectViolationAt(0, 1, instruction, "not its position");
}

TEST_F(PlantedDamage, ReservedOp) {
  v1::Instruction& instruction = Get(1, v1::OP_FORWARD, 0);
  instruction.set_op(v1::OP_ALL_TO_ALL_DISPATCH);
  ExpectViolationAt(0, 1, instruction, "no such op");
}

TEST_F(PlantedDamage, StageOfAnotherRank) {
  v1::Instruction& instruction = Get(1, v1::OP_FORWARD, 0);
  instruction.set_stage(0);
  ExpectViolationAt(0, 1, instruction, "not on this rank");
}

TEST_F(PlantedDamage, MicroBatchOutOfRange) {
  v1::Instruction& instruction = Get(1, v1::OP_FORWARD, 0);
  instruction.set_micro_batch(3);
  ExpectViolationAt(0, 1, instruction, "there are 3 micro-batches");
}

TEST_F(PlantedDamage, MissingProgram) {
  plan().mutable_programs()->RemoveLast();
  ExpectViolation(0, "3 programs");
}

TEST_F(PlantedDamage, LayersLost) {
  plan().set_layers_per_stage(0, 3);
  ExpectViolation(0, "adds up to 7");
}

TEST_F(PlantedDamage, PlanOfAnotherIteration) {
  plan().set_iteration(8);
  ExpectViolation(0, "iteration 8");
}

TEST_F(PlantedDamage, MoreLayersRecomputedThanTheStageHas) {
  micro_batch(1, 2).mutable_recompute(1)->set_full_layers(5);
  ExpectViolation(0, "replica 1, micro-batch 2: stage 1 recomputes more layers");
}

TEST_F(PlantedDamage, TopologyMissing) {
  plan().clear_topology();
  ExpectViolation(0, "topology.replicas has 0 replicas, the plan has 2");
}

TEST_F(PlantedDamage, TopologyWithAnotherSplitOfLayers) {
  plan().mutable_topology()->mutable_replicas(1)->mutable_stages(1)->set_decoder_layers(3);
  ExpectViolation(0, "topology.replicas[1].stages[1] has 0 and 3 layers, layers_per_stage gives it 0 and 4");
}

TEST_F(PlantedDamageInEncoderDecoder, TopologyWithEncoderLayersInTheDecoder) {
  v1::StageTopology& stage = *plan().mutable_topology()->mutable_replicas(0)->mutable_stages(2);
  stage.set_encoder_layers(2);
  stage.set_decoder_layers(0);
  ExpectViolation(0, "topology.replicas[0].stages[2] has 2 and 0 layers");
}

TEST_F(PlantedDamage, TopologyWithAStageOnARankOfAnotherReplica) {
  plan().mutable_topology()->mutable_replicas(1)->mutable_stages(0)->set_ranks(0, 1);
  ExpectViolation(0, "topology.replicas[1].stages[0] is on rank 1, which is in replica 0");
}

TEST_F(PlantedDamage, TopologyWithARankThatThereIsNot) {
  plan().mutable_topology()->mutable_replicas(1)->mutable_stages(0)->set_ranks(0, 99999);
  ExpectViolation(0, "topology.replicas[1].stages[0] is on rank 99999, but the plan has 4");
}

TEST_F(PlantedDamage, TopologyWithAStageOnTwoRanks) {
  plan().mutable_topology()->mutable_replicas(1)->mutable_stages(0)->add_ranks(3);
  ExpectViolation(0, "topology.replicas[1].stages[0] is on 2 ranks, not on one");
}

TEST_F(PlantedDamage, TopologyWithARankWithoutAStage) {
  plan().mutable_topology()->mutable_replicas(1)->mutable_stages(1)->set_ranks(0, 2);
  ExpectViolation(0, "topology.replicas[1] has 1 ranks, mesh.pipeline is 2");
}

TEST_F(PlantedDamage, ProgramOfAnotherReplica) {
  plan().mutable_programs(2)->set_replica(0);
  ExpectViolation(0, "rank 2: its program says replica 0, the topology 1");
}

TEST_F(PlantedDamage, ProgramWithStagesOfAnotherRank) {
  plan().mutable_programs(2)->set_stages(0, 1);
  ExpectViolation(0, "rank 2: its program has stages [1], the topology gives it [0]");
}

TEST_F(PlantedDamage, GroupThatNamesARankThatThereIsNot) {
  plan().mutable_groups(3)->add_ranks(99999);
  ExpectViolation(0, "group 3 has ranks [2, 3, 99999], the topology makes it [2, 3]");
}

TEST_F(PlantedDamage, GroupThatNobodyNeeds) {
  plan().add_groups()->add_ranks(0);
  ExpectViolation(0, "there are 5 groups, not one for each of 2 stages and 2 replicas");
}

TEST_F(PlantedDamage, CollectiveInTheGroupOfAnotherStage) {
  v1::Instruction& reduce = Get(0, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.mutable_collective()->set_group(1);
  ExpectViolationAt(5, 0, reduce, "its group is 1, that of its stage is 0");
}

TEST_F(PlantedDamage, ContentHashMissing) {
  plan().clear_content_hash();
  ExpectViolation(0, "content_hash is missing");
}

TEST_F(PlantedDamage, ContentHashOfAnotherPlan) {
  plan().set_profile_version(9);
  ExpectViolation(0, "content_hash is not that of the plan");
}

TEST_F(PlantedDamage, PlanningTimeIsNoContent) {
  plan().set_planning_time_ns(9);
  EXPECT_TRUE(CheckPlan(planned_.batch(), planned_.plan()).empty());
}

TEST_F(PlantedDamage, TransferOfAnInstructionThatMovesNothing) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  *forward.mutable_transfer() = Get(0, v1::OP_SEND, 1).transfer();
  ExpectViolationAt(0, 0, forward, "transfer is set, which this op does not have");
}

TEST_F(PlantedDamage, CollectiveOfAnInstructionThatHasNone) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  forward.mutable_collective()->set_bytes(1);
  ExpectViolationAt(0, 0, forward, "collective is set");
}

TEST_F(PlantedDamage, CollectiveMissing) {
  v1::Instruction& reduce = Get(0, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.clear_collective();
  ExpectViolationAt(0, 0, reduce, "collective is not set");
}

TEST_F(PlantedDamage, TransferIdOfAnInstructionThatDoesNotWait) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  forward.set_transfer_id(2);
  ExpectViolationAt(0, 0, forward, "transfer_id is set");
}

TEST_F(PlantedDamage, PartsOfAnInstructionThatHasNone) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  forward.set_parts(2);
  ExpectViolationAt(0, 0, forward, "parts is set");
}

TEST_F(PlantedDamage, ModelWithoutAWidth) {
  plan().mutable_model()->set_hidden(0);
  ExpectViolation(0, "model.hidden is 0");
}

TEST_F(PlantedDamage, StageWithoutLayers) {
  plan().set_layers_per_stage(0, 8);
  plan().set_layers_per_stage(1, 0);
  ExpectViolation(0, "layers_per_stage has a stage without layers");
}

// Rule 1: coverage.

TEST_F(PlantedDamage, LostSample) {
  micro_batch(0, 1).mutable_samples()->RemoveLast();
  ExpectViolation(1, "sample 3 is in no micro-batch");
}

TEST_F(PlantedDamage, DuplicatedSample) {
  micro_batch(1, 0).set_samples(0, 0);
  ExpectViolation(1, "holds sample 0 a second time");
}

TEST_F(PlantedDamage, SampleOutOfRange) {
  micro_batch(1, 0).set_samples(0, 12);
  ExpectViolation(1, "holds sample 12, but the batch has 12");
}

TEST_F(PlantedDamage, EmptyReplica) {
  plan().mutable_replicas(1)->clear_micro_batches();
  for (int rank : {2, 3}) {
    v1::Program& program = *plan().mutable_programs(rank);
    const uint32_t size = program.instructions_size();
    Rearrange(plan(), rank, {size - 2, size - 1});
  }
  ExpectViolation(1, "replica 1 has no micro-batch");
}

TEST_F(PlantedDamage, EmptyMicroBatch) {
  micro_batch(0, 2).clear_samples();
  ExpectViolation(1, "replica 0, micro-batch 2 holds no sample");
}

// Rule 2: transfers.

TEST_F(PlantedDamage, TwoSwappedTransfers) {
  MoveBefore(plan(), 1, Get(1, v1::OP_RECV, 1).id(), Get(1, v1::OP_RECV, 0).id());
  ExpectViolationAt(2, 1, Get(1, v1::OP_RECV, 1), "its sequence is 1, but it is number 0");
  ExpectViolationAt(2, 1, Get(1, v1::OP_RECV, 0), "is not above that of");
}

TEST_F(PlantedDamage, WrongShapeOnOneSide) {
  v1::Instruction& recv = Get(1, v1::OP_RECV, 1);
  recv.mutable_transfer()->set_shape(1, 99);
  ExpectViolationAt(2, 1, recv, "its shape differs from that of the SEND, rank 0");
}

TEST_F(PlantedDamage, WrongShapeOnBothSides) {
  for (v1::Instruction* end : {&Get(0, v1::OP_SEND, 1), &Get(1, v1::OP_RECV, 1)}) {
    end->mutable_transfer()->set_shape(1, 2 * end->transfer().shape(1));
    end->mutable_transfer()->set_bytes(2 * end->transfer().bytes());
  }
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "the micro-batch needs [2, ");
}

TEST_F(PlantedDamageInEncoderDecoder, DecoderBoundaryWithoutTheEncoderOutput) {
  const uint32_t target_elements = micro_batch(0, 1).rows() * micro_batch(0, 1).target_length() * 16;
  for (v1::Instruction* end : {&Get(2, v1::OP_SEND, 1), &Get(3, v1::OP_RECV, 1)}) {
    end->mutable_transfer()->set_shape(0, target_elements);
    end->mutable_transfer()->set_bytes(4 * target_elements);
  }
  ExpectViolationAt(2, 3, Get(3, v1::OP_RECV, 1), "its shape is [");
}

TEST_F(PlantedDamage, WrongDtypeOnBothSides) {
  for (v1::Instruction* end : {&Get(0, v1::OP_SEND, 1), &Get(1, v1::OP_RECV, 1)}) {
    end->mutable_transfer()->set_dtype(v1::DATA_TYPE_BFLOAT16);
    end->mutable_transfer()->set_bytes(end->transfer().bytes() / 2);
  }
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "its dtype is 3, the model's is 2");
}

TEST_F(PlantedDamage, WrongBytes) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 1);
  send.mutable_transfer()->set_bytes(17);
  ExpectViolationAt(2, 0, send, "its bytes are 17");
}

TEST_F(PlantedDamage, WrongPeer) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 1);
  send.mutable_transfer()->set_peer(3);
  ExpectViolationAt(2, 0, send, "its peer is rank 3");
}

TEST_F(PlantedDamage, WrongKind) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 1);
  send.mutable_transfer()->set_kind(v1::TRANSFER_KIND_GRADIENT);
  ExpectViolationAt(2, 0, send, "its kind");
}

TEST_F(PlantedDamage, WrongSequenceOnBothSides) {
  Get(0, v1::OP_SEND, 1).mutable_transfer()->set_sequence(5);
  Get(1, v1::OP_RECV, 1).mutable_transfer()->set_sequence(5);
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "its sequence is 5, but it is number 1");
}

TEST_F(PlantedDamage, GapInTheGlobalOrder) {
  v1::Instruction& send = Get(0, v1::OP_RECV, 2, 1);
  send.mutable_transfer()->set_order(40);
  Get(1, v1::OP_SEND, 2, 1).mutable_transfer()->set_order(40);
  ExpectViolation(2, "replica 0: no transfer, or more than one, has order 5");
}

TEST_F(PlantedDamage, MissingRecv) {
  Remove(plan(), 1, Get(1, v1::OP_RECV, 1).id());
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "rank 1 has no RECV for it");
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "deadlock: it waits for rank 1");
}

TEST_F(PlantedDamage, MissingSend) {
  Remove(plan(), 0, Get(0, v1::OP_SEND, 1).id());
  ExpectViolationAt(2, 1, Get(1, v1::OP_RECV, 1), "rank 0 has no SEND for it");
}

TEST_F(PlantedDamage, TransferMissingOnBothSides) {
  Remove(plan(), 0, Get(0, v1::OP_SEND, 1).id());
  Remove(plan(), 1, Get(1, v1::OP_RECV, 1).id());
  ExpectViolation(2, "the activation of micro-batch 1 is not sent to rank 1");
}

// Both ranks send first and receive then: fine with buffers, a deadlock without.
TEST_F(PlantedDamage, CyclicWaitOfBlockingSends) {
  // Rank 1 runs the backward pass of micro-batch 0, and sends its gradient, before it receives micro-batch 2.
  for (auto [op, part] : {std::pair{v1::OP_BACKWARD, 0u}, std::pair{v1::OP_SEND, 1u}})
    MoveBefore(plan(), 1, Get(1, op, 0, part).id(), Get(1, v1::OP_RECV, 2).id());
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 2), "deadlock: it waits for rank 1, which is at instruction");
  ExpectViolationAt(2, 1, Get(1, v1::OP_SEND, 0, 1),
                    "deadlock: it waits for rank 0, which is at instruction");
}

// Rule 3: dependencies.

TEST_F(PlantedDamage, WaitWithoutItsDep) {
  v1::Instruction& wait = Get(1, v1::OP_WAIT, 1);
  wait.clear_deps();
  ExpectViolationAt(3, 1, wait, "neither deps nor stream order put it after instruction");
}

TEST_F(PlantedDamage, SendWithoutItsDep) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 1);
  send.clear_deps();
  ExpectViolationAt(3, 0, send, "(FORWARD, micro-batch 1, stage 0)");
}

TEST_F(PlantedDamage, ReduceGradientsWithoutItsDep) {
  v1::Instruction& reduce = Get(0, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.clear_deps();
  ExpectViolationAt(3, 0, reduce, "(BACKWARD, micro-batch 2, stage 0)");
}

TEST_F(PlantedDamage, OptimizerStepWithoutItsDep) {
  v1::Instruction& step = Get(0, v1::OP_OPTIMIZER_STEP, 0);
  step.clear_deps();
  ExpectViolationAt(3, 0, step, "(REDUCE_GRADIENTS");
}

TEST_F(PlantedDamage, DepOnALaterInstruction) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 0);
  forward.add_deps(forward.id() + 3);
  ExpectViolationAt(3, 0, forward, "it depends on the later instruction");
}

TEST_F(PlantedDamage, CycleOfDeps) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 0);
  v1::Instruction& send = Get(0, v1::OP_SEND, 0);  // depends on the FORWARD
  forward.add_deps(send.id());
  ExpectViolationAt(3, 0, forward, "it depends on the later instruction");
}

TEST_F(PlantedDamage, DepOnItself) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 0);
  forward.add_deps(forward.id());
  ExpectViolationAt(3, 0, forward, "it depends on itself");
}

TEST_F(PlantedDamage, DepOutOfRange) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 0);
  forward.add_deps(100000);
  ExpectViolationAt(3, 0, forward, "it depends on instruction 100000");
}

TEST_F(PlantedDamage, MissingWait) {
  Remove(plan(), 1, Get(1, v1::OP_WAIT, 1).id());
  ExpectViolationAt(3, 1, Get(1, v1::OP_FORWARD, 1), "there is no WAIT for its data");
}

TEST_F(PlantedDamage, WaitForAnotherTransfer) {
  v1::Instruction& wait = Get(1, v1::OP_WAIT, 1);
  wait.set_transfer_id(Get(1, v1::OP_RECV, 0).id());
  ExpectViolationAt(3, 1, wait, "its transfer_id is");
}

TEST_F(PlantedDamage, WrongStream) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 1);
  send.set_stream(v1::STREAM_PREVIOUS);
  ExpectViolationAt(3, 0, send, "not on STREAM_NEXT");
}

TEST_F(PlantedDamage, FreeBeforeTheTransferHasEnded) {
  MoveBefore(plan(), 0, Get(0, v1::OP_FREE, 1).id(), Get(0, v1::OP_WAIT, 1, 2).id());
  ExpectViolationAt(3, 0, Get(0, v1::OP_FREE, 1), "sent activation");
}

TEST_F(PlantedDamage, MissingLoad) {
  Remove(plan(), 0, Get(0, v1::OP_LOAD, 1).id());
  ExpectViolationAt(3, 0, Get(0, v1::OP_FORWARD, 1), "there is no LOAD");
}

TEST_F(PlantedDamageInEncoderDecoder, MissingLoadOfTheTarget) {
  Remove(plan(), 2, Get(2, v1::OP_LOAD, 1).id());
  ExpectViolationAt(3, 2, Get(2, v1::OP_FORWARD, 1), "there is no LOAD");
}

TEST_F(PlantedDamageInEncoderDecoder, LoadWhereNoTokensAreNeeded) {
  v1::Instruction& wait = Get(1, v1::OP_WAIT, 1, 2);
  wait.set_op(v1::OP_LOAD);
  wait.set_part(0);
  wait.clear_deps();
  ExpectViolationAt(3, 1, wait, "neither embeds tokens nor has the loss");
}

TEST_F(PlantedDamageInEncoderDecoder, LossOfASampleWithoutInputMissesItsFirstToken) {
  // Every third sample has no input.
  micro_batch(0, 0).set_loss_tokens(micro_batch(0, 0).loss_tokens() - 1);
  plan().set_loss_tokens(plan().loss_tokens() - 1);
  ExpectViolation(7, "replica 0, micro-batch 0: loss_tokens is");
}

TEST_F(PlantedDamageInSplitBackward, WeightGradientBeforeInputGradient) {
  MoveBefore(plan(), 0, Get(0, v1::OP_BACKWARD_WEIGHT, 1).id(), Get(0, v1::OP_BACKWARD_INPUT, 1).id());
  ExpectViolationAt(3, 0, Get(0, v1::OP_BACKWARD_WEIGHT, 1), "(BACKWARD_INPUT, micro-batch 1");
  ExpectViolationAt(4, 0, Get(0, v1::OP_BACKWARD_WEIGHT, 1), "(BACKWARD_INPUT, micro-batch 1");
}

TEST_F(PlantedDamage, WaitForATransferThatThereIsNot) {
  v1::Instruction& wait = Get(0, v1::OP_WAIT, 1, 2);
  wait.set_part(0);
  ExpectViolationAt(3, 0, wait, "there is no RECV to wait for");
  ExpectViolationAt(3, 0, Get(0, v1::OP_SEND, 1), "there is no WAIT for its end");
}

// Rule 4: lifecycle.

TEST_F(PlantedDamage, ScheduleAuto) {
  plan().set_schedule(v1::SCHEDULE_AUTO);
  ExpectViolation(4, "schedule is SCHEDULE_AUTO, the programs are of SCHEDULE_ONE_FORWARD_ONE_BACKWARD or");
}

TEST_F(PlantedDamage, ScheduleThatThereIsNot) {
  plan().set_schedule(static_cast<v1::Schedule>(77));
  ExpectViolation(4, "schedule is 77");
}

TEST_F(PlantedDamage, ScheduleOfASplitBackwardWithoutOne) {
  plan().set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  ExpectViolation(4, "schedule is SCHEDULE_SPLIT_BACKWARD");
}

TEST_F(PlantedDamageInSplitBackward, ScheduleWithoutASplitBackward) {
  plan().set_schedule(v1::SCHEDULE_READY_FIRST);
  ExpectViolation(4, "the programs are of SCHEDULE_SPLIT_BACKWARD");
}

TEST_F(PlantedDamageInSharedRanks, ScheduleOfOneStageARank) {
  plan().set_schedule(v1::SCHEDULE_READY_FIRST);
  ExpectViolation(4, "the programs are of SCHEDULE_INTERLEAVED");
}

// The fixture runs all forward passes first: three micro-batches in flight on two stages.
TEST_F(PlantedDamage, MoreInFlightThanOneForwardOneBackwardHas) {
  plan().set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  ExpectViolationAt(4, 0, Get(0, v1::OP_FORWARD, 2),
                    "1F1B has at most 2 micro-batches in flight on this stage");
}

TEST_F(PlantedDamage, MicroBatchesOutOfOrder) {
  MoveBefore(plan(), 0, Get(0, v1::OP_FORWARD, 2).id(), Get(0, v1::OP_FORWARD, 1).id());
  ExpectViolationAt(4, 0, Get(0, v1::OP_FORWARD, 1),
                    "it is out of order: on the first stage micro-batch 2 has run");
}

TEST_F(PlantedDamage, MissingForward) {
  Remove(plan(), 1, Get(1, v1::OP_FORWARD, 2).id());
  ExpectViolation(4, "rank 1: micro-batch 2 on stage 1 has no FORWARD");
}

TEST_F(PlantedDamage, MissingBackward) {
  Remove(plan(), 1, Get(1, v1::OP_BACKWARD, 2).id());
  ExpectViolation(4, "rank 1: micro-batch 2 on stage 1 has neither BACKWARD");
}

TEST_F(PlantedDamageInSplitBackward, MissingWeightGradient) {
  Remove(plan(), 0, Get(0, v1::OP_BACKWARD_WEIGHT, 2).id());
  ExpectViolation(4, "rank 0: micro-batch 2 on stage 0 has neither BACKWARD");
}

TEST_F(PlantedDamage, BackwardBeforeForward) {
  MoveBefore(plan(), 1, Get(1, v1::OP_BACKWARD, 0).id(), Get(1, v1::OP_FORWARD, 0).id());
  ExpectViolationAt(4, 1, Get(1, v1::OP_BACKWARD, 0), "it comes before");
}

TEST_F(PlantedDamage, DoubleBackwardWithTheSameKey) {
  v1::Instruction& backward = Get(1, v1::OP_BACKWARD, 1);
  backward.set_micro_batch(0);
  ExpectViolationAt(4, 1, backward, "it repeats instruction");
}

TEST_F(PlantedDamageInSplitBackward, DoubleBackwardOfBothKinds) {
  v1::Instruction& backward = Get(1, v1::OP_BACKWARD_WEIGHT, 0);
  backward.set_op(v1::OP_BACKWARD);
  ExpectViolationAt(4, 1, backward, "beside it");
}

TEST_F(PlantedDamage, ComputeAfterReduceGradients) {
  MoveBefore(plan(), 0, Get(0, v1::OP_REDUCE_GRADIENTS, 0).id(), Get(0, v1::OP_BACKWARD, 2).id());
  ExpectViolationAt(4, 0, Get(0, v1::OP_BACKWARD, 2), "it comes after");
}

TEST_F(PlantedDamage, OptimizerStepNotLast) {
  MoveBefore(plan(), 0, Get(0, v1::OP_OPTIMIZER_STEP, 0).id(), Get(0, v1::OP_REDUCE_GRADIENTS, 0).id());
  ExpectViolationAt(4, 0, Get(0, v1::OP_OPTIMIZER_STEP, 0), "not the last");
}

TEST_F(PlantedDamage, MissingOptimizerStep) {
  Remove(plan(), 0, Get(0, v1::OP_OPTIMIZER_STEP, 0).id());
  ExpectViolation(4, "rank 0: it has 0 OPTIMIZER_STEP");
}

TEST_F(PlantedDamage, MissingReduceGradients) {
  Remove(plan(), 0, Get(0, v1::OP_REDUCE_GRADIENTS, 0).id());
  ExpectViolation(4, "rank 0: stage 0 has no REDUCE_GRADIENTS");
}

// Rule 5: collectives.

TEST_F(PlantedDamageInSharedRanks, CollectivesInDifferentOrder) {
  const v1::Instruction first = Find(plan(), 0, v1::OP_REDUCE_GRADIENTS, 0, 0, 0);
  const v1::Instruction second = Find(plan(), 0, v1::OP_REDUCE_GRADIENTS, 0, 0, 1);
  MoveBefore(plan(), 0, second.id(), first.id());
  ExpectViolationAt(5, 0, Find(plan(), 0, v1::OP_REDUCE_GRADIENTS, 0, 0, 1), "deadlock: it waits for rank 1");
}

TEST_F(PlantedDamage, GroupWithAnotherRank) {
  plan().mutable_groups(0)->set_ranks(1, 3);
  ExpectViolation(0, "group 0 has ranks [0, 3], the topology makes it [0, 2]");
}

TEST_F(PlantedDamage, GroupOutOfRange) {
  v1::Instruction& reduce = Get(0, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.mutable_collective()->set_group(9);
  ExpectViolationAt(5, 0, reduce, "its group is 9, but the plan has 4");
}

TEST_F(PlantedDamage, CollectiveOfOtherBytes) {
  v1::Instruction& reduce = Get(2, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.mutable_collective()->set_bytes(1);
  ExpectViolationAt(5, 2, reduce, "differ from what rank 0 issues");
}

TEST_F(PlantedDamageInEncoderDecoder, OptimizerStepWithoutTheSharedTables) {
  for (v1::Program& program : *plan().mutable_programs())
    program.mutable_instructions()->rbegin()->mutable_collective()->set_bytes(8);
  ExpectViolationAt(5, 0, Get(0, v1::OP_OPTIMIZER_STEP, 0), "norm and shared parameters have 520");
}

TEST_F(PlantedDamageInEncoderDecoder, OptimizerStepOfAModelWithFewerBuckets) {
  plan().mutable_model()->set_relative_position_buckets(16);
  ExpectViolationAt(5, 0, Get(0, v1::OP_OPTIMIZER_STEP, 0), "norm and shared parameters have 264");
}

TEST_F(PlantedDamage, WrongCollectiveSequence) {
  v1::Instruction& reduce = Get(2, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.mutable_collective()->set_sequence(1);
  ExpectViolationAt(5, 2, reduce, "its sequence is 1");
}

// Rule 6: memory.

TEST_F(PlantedDamage, MemoryOverTheLimit) {
  const v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  int64_t needed = plan().programs(0).static_memory_bytes() + forward.memory_acquired_bytes();
  for (uint32_t id = 0; id < forward.id(); ++id) {
    const v1::Instruction& before = plan().programs(0).instructions(static_cast<int>(id));
    needed += before.memory_acquired_bytes() - before.memory_released_bytes();
  }
  plan().mutable_programs(0)->set_memory_limit_bytes(needed - 1);
  ExpectViolationAt(6, 0, forward, "of " + std::to_string(needed - 1) + " are in use");
}

// As soon as its stream allows, a RECV takes its bytes while passes run that are listed before it.
class PlantedDamageInTightMemory : public PlantedDamage {
 protected:
  PlantedDamageInTightMemory() {
    for (v1::Program& program : *plan().mutable_programs()) program.set_memory_limit_bytes(PeakOf(program));
    Seal(&plan());
  }

  void ClearDepsOfRecvs(int rank) {
    for (v1::Instruction& instruction : *plan().mutable_programs(rank)->mutable_instructions())
      if (instruction.op() == v1::OP_RECV) instruction.clear_deps();
  }
};

TEST_F(PlantedDamageInTightMemory, IsValidBefore) {
  EXPECT_TRUE(CheckPlan(planned_.batch(), planned_.plan()).empty());
}

TEST_F(PlantedDamageInTightMemory, RecvsThatMayBePostedTooEarly) {
  ClearDepsOfRecvs(0);
  // The gradients come one after the other as soon as the last activation has gone.
  ExpectViolationAt(6, 0, Get(0, v1::OP_WAIT, 2, 2), "transfers that need not wait for it may take");
}

TEST_F(PlantedDamageInTightMemory, RecvThatWaitsForTooLittle) {
  v1::Instruction& recv = Get(0, v1::OP_RECV, 1, 1);
  recv.set_deps(0, Get(0, v1::OP_FORWARD, 0).id());
  ExpectViolationAt(6, 0, Get(0, v1::OP_WAIT, 0, 1), "transfers that need not wait for it may take");
}

TEST_F(PlantedDamageInTightMemory, EarlyRecvsDoNoHarmWhereThereIsRoom) {
  for (int rank = 0; rank < plan().programs_size(); ++rank) {
    ClearDepsOfRecvs(rank);
    plan().mutable_programs(rank)->set_memory_limit_bytes(1'000'000);
  }
  Seal(&plan());
  EXPECT_TRUE(CheckPlan(planned_.batch(), planned_.plan()).empty());
}

TEST_F(PlantedDamage, StaticMemoryOverTheLimit) {
  plan().mutable_programs(0)->set_memory_limit_bytes(4999);
  ExpectViolation(6, "rank 0: static_memory_bytes is 5000, the limit is 4999");
}

TEST_F(PlantedDamage, MissingFree) {
  Remove(plan(), 0, Get(0, v1::OP_FREE, 1).id());
  ExpectViolationAt(6, 0, Get(0, v1::OP_SEND, 1), "there is no FREE");
  ExpectViolation(6, "rank 0: micro-batch 1 on stage 0 never gives back");
}

TEST_F(PlantedDamage, MemoryNeverGivenBack) {
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(backward.memory_released_bytes() - 5);
  ExpectViolation(6, "rank 0: micro-batch 1 on stage 0 never gives back 5 bytes");
}

TEST_F(PlantedDamage, DoubleRelease) {
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(2 * backward.memory_released_bytes());
  ExpectViolationAt(6, 0, backward, "it gives back");
}

TEST_F(PlantedDamage, NegativeMemory) {
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_acquired_bytes(-1);
  ExpectViolationAt(6, 0, backward, "is negative");
}

TEST_F(PlantedDamage, ActivationOfNoBytes) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  v1::Instruction& backward = Get(0, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(backward.memory_released_bytes() - forward.memory_acquired_bytes());
  forward.set_memory_acquired_bytes(0);
  ExpectViolationAt(6, 0, forward, "memory_acquired_bytes is 0, expected at least the");
}

TEST_F(PlantedDamage, GradientOfNoBytes) {
  v1::Instruction& backward = Get(1, v1::OP_BACKWARD, 1);
  backward.set_memory_released_bytes(backward.memory_released_bytes() - backward.memory_acquired_bytes());
  backward.set_memory_acquired_bytes(0);
  ExpectViolationAt(6, 1, backward, "memory_acquired_bytes is 0, expected at least the");
}

TEST_F(PlantedDamage, ReceivedBytesThatAreNotThoseOfTheTransfer) {
  v1::Instruction& recv = Get(1, v1::OP_RECV, 1);
  recv.set_memory_acquired_bytes(recv.memory_acquired_bytes() - 4);
  ExpectViolationAt(6, 1, recv, "expected " + std::to_string(recv.transfer().bytes()));
}

TEST_F(PlantedDamage, FreedBytesThatAreNotThoseOfTheTransfer) {
  v1::Instruction& release = Get(0, v1::OP_FREE, 1);
  release.set_memory_released_bytes(release.memory_released_bytes() - 4);
  ExpectViolationAt(6, 0, release, "memory_released_bytes is");
}

TEST_F(PlantedDamage, LoadedBytesThatAreNotThoseOfTheTokens) {
  v1::Instruction& load = Get(0, v1::OP_LOAD, 1);
  load.set_memory_acquired_bytes(8);
  ExpectViolationAt(6, 0, load, "memory_acquired_bytes is 8, expected");
}

TEST_F(PlantedDamageInEncoderDecoder, LoadedBytesOfTheFirstDecoderStage) {
  v1::Instruction& load = Get(2, v1::OP_LOAD, 1);
  load.set_memory_acquired_bytes(0);
  ExpectViolationAt(6, 2, load, "memory_acquired_bytes is 0, expected");
}

TEST_F(PlantedDamage, WaitThatTakesMemory) {
  v1::Instruction& wait = Get(0, v1::OP_WAIT, 1, 2);
  wait.set_memory_acquired_bytes(8);
  ExpectViolationAt(6, 0, wait, "memory_acquired_bytes is 8, expected 0");
}

TEST_F(PlantedDamage, FreeOfWhatWasNotLent) {
  v1::Instruction& release = Get(0, v1::OP_FREE, 1);
  release.set_part(1);
  ExpectViolationAt(6, 0, release, "there is no SEND whose buffer it could give back");
}

// Rule 7: tokens.

TEST_F(PlantedDamage, WrongRealTokens) {
  micro_batch(0, 1).set_real_tokens(1);
  ExpectViolation(7, "replica 0, micro-batch 1: real_tokens is 1");
}

TEST_F(PlantedDamage, WrongComputedTokens) {
  micro_batch(0, 1).set_computed_tokens(1);
  ExpectViolation(7, "replica 0, micro-batch 1: computed_tokens is 1");
}

TEST_F(PlantedDamage, WrongLossTokens) {
  micro_batch(0, 1).set_loss_tokens(micro_batch(0, 1).loss_tokens() + 1);
  ExpectViolation(7, "replica 0, micro-batch 1: loss_tokens is");
}

TEST_F(PlantedDamage, WrongLossTokensOfThePlan) {
  plan().set_loss_tokens(plan().loss_tokens() - 1);
  ExpectViolation(7, "the plan's loss_tokens is");
}

TEST_F(PlantedDamageInPackedPlan, WrongCuSeqlens) {
  micro_batch(1, 1).set_target_cu_seqlens(1, 1);
  ExpectViolation(7, "replica 1, micro-batch 1: target_cu_seqlens");
}

TEST_F(PlantedDamage, SampleCut) {
  micro_batch(0, 1).set_target_length(micro_batch(0, 1).target_length() - 1);
  ExpectViolation(7, "cut sample");
}

TEST_F(PlantedDamage, WrongRows) {
  micro_batch(0, 1).set_rows(3);
  ExpectViolation(7, "replica 0, micro-batch 1: rows is 3");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowTooShort) {
  micro_batch(0, 1).set_target_length(micro_batch(0, 1).target_length() - 1);
  ExpectViolation(7, "replica 0, micro-batch 1: row 0 has 0 and");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowWithoutSamples) {
  micro_batch(0, 1).set_row_samples(1, 3);
  ExpectViolation(7, "replica 0, micro-batch 1: row 1 has no sample");
}

TEST_F(PlantedDamageInConcatenatedPlan, SampleInNoRow) {
  micro_batch(0, 1).set_row_samples(2, 2);
  ExpectViolation(7, "replica 0, micro-batch 1: row_samples are not");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowsThatAreNotListed) {
  micro_batch(0, 1).set_rows(3);
  ExpectViolation(7, "replica 0, micro-batch 1: row_samples are not");
  ExpectViolation(7, "computed_tokens");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowsInDisorder) {
  micro_batch(0, 1).set_row_samples(1, 7);
  ExpectViolation(7, "replica 0, micro-batch 1: row_samples are not");
}

TEST_F(PlantedDamage, UnknownLayout) {
  micro_batch(0, 1).set_layout(v1::LAYOUT_UNSPECIFIED);
  ExpectViolation(7, "replica 0, micro-batch 1: its layout is 0");
}

// Rule 8: predictions.

TEST_F(PlantedDamage, NegativeDuration) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  forward.set_expected_duration_ns(-1);
  ExpectViolationAt(8, 0, forward, "expected_duration_ns -1: both must be between 0 and");
}

TEST_F(PlantedDamage, StartBeforeTheIteration) {
  v1::Instruction& load = Get(0, v1::OP_LOAD, 0);
  load.set_expected_start_ns(-5);
  ExpectViolationAt(8, 0, load, "expected_start_ns is -5");
}

TEST_F(PlantedDamage, StartBeforeAnEarlierInstructionOfTheStreamHasEnded) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  const int64_t start = forward.expected_start_ns();
  forward.set_expected_start_ns(start - 1);
  ExpectViolationAt(
      8, 0, forward,
      "expected_start_ns is " + std::to_string(start - 1) + ", expected " + std::to_string(start));
}

TEST_F(PlantedDamage, StartBeforeADepHasEnded) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 0);
  const int64_t start = send.expected_start_ns();
  send.set_expected_start_ns(start - 1);
  Get(1, v1::OP_RECV, 0).set_expected_start_ns(start - 1);
  ExpectViolationAt(8, 0, send, ", expected " + std::to_string(start));
  ExpectViolationAt(8, 1, Get(1, v1::OP_RECV, 0), ", expected " + std::to_string(start));
}

TEST_F(PlantedDamage, StartLaterThanNeedBe) {
  v1::Instruction& step = Get(3, v1::OP_OPTIMIZER_STEP, 0);
  const int64_t start = step.expected_start_ns();
  step.set_expected_start_ns(start + 7);
  ExpectViolationAt(8, 3, step, ", expected " + std::to_string(start));
}

TEST_F(PlantedDamage, EndsOfATransferAtDifferentTimes) {
  v1::Instruction& recv = Get(1, v1::OP_RECV, 1);
  recv.set_expected_duration_ns(recv.expected_duration_ns() + 1);
  ExpectViolationAt(8, 1, recv, "expected_duration_ns is 31, expected 30");
}

TEST_F(PlantedDamage, ReductionThatTakesOneRankLonger) {
  v1::Instruction& reduce = Get(2, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.set_expected_duration_ns(reduce.expected_duration_ns() + 1);
  ExpectViolationAt(8, 2, reduce, "expected_duration_ns is 51, expected 50");
}

TEST_F(PlantedDamage, WaitThatTakesTime) {
  v1::Instruction& wait = Get(0, v1::OP_WAIT, 1, 2);
  wait.set_expected_duration_ns(5);
  ExpectViolationAt(8, 0, wait, "expected_duration_ns is 5, expected 0");
}

TEST_F(PlantedDamage, WrongMakespan) {
  v1::Prediction& predicted = *plan().mutable_predicted();
  predicted.set_makespan_ns(predicted.makespan_ns() - 1);
  ExpectViolation(8, "predicted.makespan_ns is " + std::to_string(predicted.makespan_ns()) + ", expected " +
                         std::to_string(predicted.makespan_ns() + 1));
}

TEST_F(PlantedDamage, WrongLastBackward) {
  plan().mutable_predicted()->set_last_backward_ns(1);
  ExpectViolation(8, "predicted.last_backward_ns is 1, expected");
}

TEST_F(PlantedDamage, BoundAboveTheMakespan) {
  plan().set_lower_bound_ns(plan().predicted().makespan_ns() + 1);
  ExpectViolation(8, "which is not between 0 and the makespan");
  plan().set_lower_bound_ns(-1);
  ExpectViolation(8, "lower_bound_ns is -1");
}

TEST_F(PlantedDamage, PredictionOfARankMissing) {
  plan().mutable_predicted()->mutable_ranks()->RemoveLast();
  ExpectViolation(8, "predicted.ranks has 3 entries, the plan 4 ranks");
}

TEST_F(PlantedDamage, WrongPredictionOfARank) {
  using Field = void (v1::Bubble::*)(int64_t);
  const std::pair<const char*, Field> fields[] = {{"fill_ns", &v1::Bubble::set_fill_ns},
                                                  {"drain_ns", &v1::Bubble::set_drain_ns},
                                                  {"dependency_ns", &v1::Bubble::set_dependency_ns},
                                                  {"transfer_ns", &v1::Bubble::set_transfer_ns},
                                                  {"imbalance_ns", &v1::Bubble::set_imbalance_ns},
                                                  {"memory_ns", &v1::Bubble::set_memory_ns}};
  for (const auto& [name, set] : fields) {
    (plan().mutable_predicted()->mutable_ranks(2)->mutable_bubble()->*set)(987654321);
    ExpectViolation(8, std::string("rank 2: predicted ") + name + " is 987654321, expected");
  }
  plan().mutable_predicted()->mutable_ranks(2)->set_busy_ns(1);
  ExpectViolation(8, "rank 2: predicted busy_ns is 1, expected");
}

TEST_F(PlantedDamage, WrongPeak) {
  v1::RankPrediction& rank = *plan().mutable_predicted()->mutable_ranks(1);
  const int64_t peak = PeakOf(plan().programs(1));
  rank.set_peak_memory_bytes(peak - 1);
  ExpectViolation(8, "rank 1: predicted peak_memory_bytes is " + std::to_string(peak - 1) + ", expected " +
                         std::to_string(peak));
  rank.set_peak_instruction(rank.peak_instruction() + 1);
  ExpectViolation(8, "rank 1: predicted peak_instruction is");
}

// One wrong duration is found by the instructions that wait for it, and by nothing that follows from those.
TEST_F(PlantedDamage, WrongTimesAreNamedWhereTheyAre) {
  v1::Instruction& backward = Get(1, v1::OP_BACKWARD, 0);
  backward.set_expected_duration_ns(backward.expected_duration_ns() + 1);
  int wrong_starts = 0;
  for (const Violation& violation : CheckPlan(planned_.batch(), planned_.plan()))
    if (violation.rule == 8 && violation.message.find("expected_start_ns") != std::string::npos)
      ++wrong_starts;
  EXPECT_GT(wrong_starts, 0);
  EXPECT_LE(wrong_starts, 6);
}

}  // namespace
}  // namespace penstock::core
