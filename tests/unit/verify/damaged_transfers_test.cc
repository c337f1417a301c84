// Rules 2 and 3, transfers and dependencies: every kind of damage is found by the rule it breaks, with a
// message that names the place.
#include "tests/unit/verify/plan_edits.h"
#include "tests/unit/verify/planted_damage.h"

namespace penstock::core {
namespace {

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

TEST_F(PlantedDamage, AnActivationThatMeetsAGradient) {
  Get(1, v1::OP_RECV, 1).set_part(1);
  ExpectViolationAt(2, 0, Get(0, v1::OP_SEND, 1), "deadlock: it waits for rank 1, which is at instruction");
  ExpectViolationAt(2, 1, Get(1, v1::OP_RECV, 1, 1),
                    "deadlock: it waits for rank 0, which is at instruction");
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

}  // namespace
}  // namespace penstock::core
