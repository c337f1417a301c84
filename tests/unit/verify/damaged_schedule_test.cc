// Rules 4 and 5, lifecycle and collectives: every kind of damage is found by the rule it breaks, with a
// message that names the place.
#include "tests/unit/verify/plan_edits.h"
#include "tests/unit/verify/planted_damage.h"

namespace penstock::core {
namespace {

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

TEST_F(PlantedDamage, OptimizerStepWithoutTheTableThatFirstAndLastStageShare) {
  plan().mutable_model()->set_tied_head(true);
  plan().mutable_model()->set_vocab(100);
  ExpectViolationAt(5, 0, Get(0, v1::OP_OPTIMIZER_STEP, 0), "norm and shared parameters have 6408");
}

TEST_F(PlantedDamageInEncoderDecoder, OptimizerStepWithoutTheTableOfBothEmbeddings) {
  plan().mutable_model()->set_tied_embeddings(true);
  plan().mutable_model()->set_vocab(100);
  ExpectViolationAt(5, 0, Get(0, v1::OP_OPTIMIZER_STEP, 0), "norm and shared parameters have 6920");
}

TEST_F(PlantedDamage, WrongCollectiveSequence) {
  v1::Instruction& reduce = Get(2, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.mutable_collective()->set_sequence(1);
  ExpectViolationAt(5, 2, reduce, "its sequence is 1");
}

TEST_F(PlantedDamageInSharedRanks, OptimizerStepOfAHigherStage) {
  v1::Instruction& step = Get(0, v1::OP_OPTIMIZER_STEP, 0);
  step.set_stage(1);
  ExpectViolationAt(4, 0, step, "its stage is not the lowest of the rank, 0");
}

}  // namespace
}  // namespace penstock::core
