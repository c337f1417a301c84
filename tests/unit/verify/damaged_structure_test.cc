// Rules 0 and 1, structure and coverage: every kind of damage is found by the rule it breaks, with a message
// that names the place.
#include "tests/unit/verify/plan_edits.h"
#include "tests/unit/verify/planted_damage.h"

namespace penstock::core {
namespace {

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

TEST_F(PlantedDamage, AdaptersThatNoModelHas) {
  plan().mutable_model()->mutable_adapters()->set_rank(2);
  ExpectViolation(0, "model.adapters has rank 2, alpha 0 and 0 targets");
  plan().mutable_model()->mutable_adapters()->add_targets(v1::LINEAR_LAYER_GATE);
  ExpectViolation(0, "model.adapters.targets has 5, which is unknown, there twice, or not in the model");
}

TEST_F(PlantedDamage, ReductionsOfMoreThanTheAdapters) {
  plan().mutable_model()->mutable_adapters()->set_rank(2);
  plan().mutable_model()->mutable_adapters()->add_targets(v1::LINEAR_LAYER_QUERY);
  ExpectViolation(5, "bytes; the adapters of its stage have");
}

TEST_F(PlantedDamage, PlanOfAnotherIteration) {
  plan().set_iteration(8);
  ExpectViolation(0, "iteration 8");
}

TEST_F(PlantedDamage, BucketsOfGradientsWithSharesOrTooLarge) {
  plan().mutable_options()->set_gradient_bucket_bytes((uint64_t{1} << 40) + 1);
  ExpectViolation(0, "options.gradient_bucket_bytes is 1099511627777, which is at most 1099511627776");
  plan().mutable_options()->set_parameter_shares(true);
  ExpectViolation(0, "options.gradient_bucket_bytes is set with options.parameter_shares");
}

TEST_F(PlantedDamage, LayersOfAnotherArchitecture) {
  plan().mutable_model()->set_decoder_layers(2);
  ExpectViolation(0, "model.encoder_layers or model.decoder_layers is set, which a GPT does not have");
}

TEST_F(PlantedDamage, LayersWithoutExpertsInAModelThatHasNone) {
  plan().mutable_model()->add_dense_layers(2);
  plan().mutable_model()->add_dense_layers(1);
  ExpectViolation(0, "model.dense_layers is set, which is of models with experts");
  ExpectViolation(0, "model.dense_layers has 1 behind 2, of 8 layers");
}

TEST_F(PlantedDamageInEncoderDecoder, LayersOfAnotherArchitecture) {
  plan().mutable_model()->set_layers(2);
  ExpectViolation(0, "model.layers is set, which a T5 does not have");
}

TEST_F(PlantedDamage, TypicalSamplesInThePlan) {
  plan().mutable_options()->add_typical_samples()->set_target_tokens(5);
  ExpectViolation(0, "options.typical_samples is set");
}

TEST_F(PlantedDamage, PlanningTimeBelowZero) {
  plan().set_planning_time_ns(-1);
  ExpectViolation(0, "planning_time_ns is -1");
}

TEST_F(PlantedDamage, ExpectedTimeBelowZero) {
  plan().mutable_predicted()->set_expected_ns(-1);
  ExpectViolation(0, "predicted.expected_ns is -1");
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

TEST(PlantedDamageInLoops, TopologyWithOtherStagesTogetherInOneReplica) {
  v1::PlannedBatch planned = MakeValidPlan({.pipeline = 2, .replicas = 2, .stages_per_rank = 2});
  v1::ReplicaTopology& replica = *planned.mutable_plan()->mutable_topology()->mutable_replicas(1);
  replica.mutable_stages(2)->set_ranks(0, 3);
  replica.mutable_stages(3)->set_ranks(0, 2);
  EXPECT_THAT(
      CheckPlan(planned.batch(), planned.plan()),
      testing::Contains(testing::Field(
          &Violation::message,
          "topology.replicas[1].stages[2] is not with the stages that it is with in topology.replicas[0]")));
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
  ExpectViolation(0, "there are 5 groups, not 4: for each stage");
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
  // Its ranks may have no room for any sample.
  v1::RankMemoryLimit* limit = plan().mutable_options()->add_rank_memory_limits();
  limit->set_rank(3);
  limit->set_bytes(1'000'000);
  for (const Violation& violation : CheckPlan(planned_.batch(), plan()))
    EXPECT_THAT(violation.message, testing::Not(testing::HasSubstr("has no micro-batch")));
}

TEST_F(PlantedDamage, EmptyMicroBatch) {
  micro_batch(0, 2).clear_samples();
  ExpectViolation(1, "replica 0, micro-batch 2 holds no sample");
}

}  // namespace
}  // namespace penstock::core
