// Programs of ranks that hold their stages alone, as the planner sends them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/worker/program/valid_messages.h"
#include "worker/program/describe.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ProgramFromProto, RefusesStagesOfAnotherRank) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_program()->set_rank(0);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("program.stages are not those that the topology gives to rank 0"));
}

// A planner that is older than these losses does not say it.
TEST(ProgramFromProto, LossesOfRoutersNeedTheTokensOfTheBatch) {
  JobConfig job = *JobFromProto(JobOfExperts());
  job.topology = *TopologyFromProto(ValidTopology(), job);
  v1::StreamProgramsResponse message = ValidMessage();
  EXPECT_THAT(std::string(ProgramFromProto(message, job).status().message()),
              HasSubstr("real_tokens is 0, but losses of the model's routers are divided by it"));
  message.set_real_tokens(30);
  const absl::StatusOr<Program> program = ProgramFromProto(message, job);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->micro_batches[1].batch_tokens, 30);
  EXPECT_EQ(ProgramFromProto(message, Job())->micro_batches[1].batch_tokens, 0);
}

TEST(ProgramFromProto, ConvertsEveryPart) {
  const absl::StatusOr<Program> program = ProgramFromProto(ValidMessage(), Job());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->iteration, 5u);
  EXPECT_EQ(program->loss_tokens, 20u);
  EXPECT_THAT(program->micro_batches[0].sample_ids, ElementsAre(10, 12));
  EXPECT_THAT(program->micro_batches[0].input_tokens, ElementsAre(2, 0));
  EXPECT_EQ(program->micro_batches[0].recompute[0].full, 2);
  EXPECT_EQ(program->micro_batches[0].recompute[1].full, 1);
  EXPECT_EQ(program->micro_batches[0].target_length, 6);
  EXPECT_THAT(program->micro_batches[1].target_cu_seqlens, ElementsAre(0, 4));
  EXPECT_THAT(program->transfers[program->instructions[1].transfer].shape, ElementsAre(2, 6, 8));
  EXPECT_EQ(program->instructions[2].transfer, 1u);
  EXPECT_THAT(program->instructions[3].deps, ElementsAre(0, 2));
  EXPECT_EQ(program->instructions[3].expected_duration_ns, 1234);
  EXPECT_EQ(program->instructions[5].stream, Stream::kCollective);
  EXPECT_EQ(program->instructions[6].group, 1u);
}

// The message's passes that are forward, as its validation.
v1::StreamProgramsResponse MessageWithValidation() {
  v1::StreamProgramsResponse message = ValidMessage();
  v1::StreamProgramsResponse& validation = *message.mutable_validation();
  validation = ValidMessage();
  validation.set_loss_tokens(9);
  validation.mutable_program()->mutable_instructions()->DeleteSubrange(
      5, validation.program().instructions_size() - 5);
  return message;
}

TEST(ProgramFromProto, KnowsAValidation) {
  const auto program = ProgramFromProto(MessageWithValidation(), Job());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_FALSE(program->forward_only);
  ASSERT_NE(program->validation, nullptr);
  EXPECT_TRUE(program->validation->forward_only);
  EXPECT_EQ(program->validation->iteration, 5u);
  EXPECT_EQ(program->validation->loss_tokens, 9u);
  EXPECT_EQ(program->validation->instructions.size(), 5u);
  EXPECT_EQ(program->validation->validation, nullptr);
}

TEST(ProgramFromProto, RefusesAValidationThatLearnsOrIsOfAnotherIteration) {
  v1::StreamProgramsResponse message = MessageWithValidation();
  *message.mutable_validation()->mutable_program() = ValidMessage().program();
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("validation: instruction 5 learns, which a validation does not"));
  message = MessageWithValidation();
  message.mutable_validation()->set_iteration(6);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("validation: it is of iteration 6"));
}

TEST(ProgramFromProto, KnowsWhatInstructionsOfASimulatedJobTake) {
  v1::StreamProgramsResponse message = ValidMessage();
  EXPECT_EQ(ProgramFromProto(message, Job())->instructions[3].profile_duration_ns, -1);
  for (int i = 0; i < 7; ++i) message.add_profile_duration_ns(100 + i);
  const absl::StatusOr<Program> program = ProgramFromProto(message, Job());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->instructions[3].profile_duration_ns, 103);
}

TEST(ProgramFromProto, NamesAnOpThatItDoesNotKnow) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_program()->mutable_instructions(3)->set_op(v1::OP_ALL_TO_ALL_DISPATCH);
  const absl::Status status = ProgramFromProto(message, Job()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("iteration 5"), HasSubstr("instruction 3"),
                                                   HasSubstr("OP_ALL_TO_ALL_DISPATCH")));
}

TEST(ProgramFromProto, KnowsASplitBackwardPassAndSeveralStages) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_program()->add_stages(2);
  message.add_layers_per_stage(0);
  message.mutable_program()->mutable_instructions(3)->set_op(v1::OP_BACKWARD_INPUT);
  message.mutable_program()->mutable_instructions(4)->set_op(v1::OP_BACKWARD_WEIGHT);
  for (v1::MicroBatch& micro_batch : *message.mutable_micro_batches()) micro_batch.add_recompute();
  v1::Topology topology = ValidTopology();
  for (int replica = 0; replica < 2; ++replica)
    topology.mutable_replicas(replica)->add_stages()->add_ranks(2 * replica + 1);
  JobConfig job = Job();
  job.topology = *TopologyFromProto(topology, job);
  const absl::StatusOr<Program> program = ProgramFromProto(message, job);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->stages, ElementsAre(1, 2));
  EXPECT_EQ(program->instructions[3].op, Op::kBackwardInput);
  EXPECT_EQ(program->instructions[4].op, Op::kBackwardWeight);
}

TEST(ProgramFromProto, KnowsSelectiveRecompute) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_micro_batches(1)->mutable_recompute(0)->set_selective_layers(1);
  const absl::StatusOr<Program> program = ProgramFromProto(message, Job());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->micro_batches[1].recompute[0].selective, 1);
}

// Samples 0 and 1 (5 + 4 tokens) in one row of 10.
v1::StreamProgramsResponse ConcatenatedMessage() {
  v1::StreamProgramsResponse message = ValidMessage();
  v1::MicroBatch& micro_batch = *message.mutable_micro_batches(0);
  micro_batch.set_layout(v1::LAYOUT_CONCATENATED);
  micro_batch.set_samples(1, 1);
  micro_batch.set_rows(1);
  micro_batch.set_target_length(10);
  micro_batch.add_row_samples(0);
  micro_batch.add_row_samples(2);
  return message;
}

TEST(ProgramFromProto, KnowsConcatenatedRows) {
  const absl::StatusOr<Program> program = ProgramFromProto(ConcatenatedMessage(), Job());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->micro_batches[0].layout, Layout::kConcatenated);
  EXPECT_THAT(program->micro_batches[0].row_samples, ElementsAre(0, 2));
}

TEST(ProgramFromProto, RefusesRowsThatDoNotHoldTheirSamples) {
  v1::StreamProgramsResponse message = ConcatenatedMessage();
  message.mutable_micro_batches(0)->set_target_length(8);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("target_length is 8, but row 0 has 9 tokens"));
  message = ConcatenatedMessage();
  message.mutable_micro_batches(0)->set_row_samples(1, 1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()), HasSubstr("row_samples"));
}

TEST(ProgramFromProto, OfT5ChecksTheSourceToo) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->set_architecture(v1::ARCHITECTURE_T5);
  job.mutable_model()->clear_layers();
  job.mutable_model()->set_encoder_layers(2);
  job.mutable_model()->set_decoder_layers(2);
  v1::StreamProgramsResponse message = ValidMessage();
  v1::MicroBatch& packed = *message.mutable_micro_batches(1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job(job)).status().message()),
              HasSubstr("source_length is 0, but sample 10 has 2 tokens"));
  message.mutable_micro_batches(0)->set_source_length(2);
  packed.add_source_cu_seqlens(0);
  packed.add_source_cu_seqlens(1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job(job)).status().message()),
              HasSubstr("source_cu_seqlens[1] does not fit sample 11 of 0 tokens"));
  packed.set_source_cu_seqlens(1, 0);
  const absl::StatusOr<Program> program = ProgramFromProto(message, Job(job));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->micro_batches[1].source_cu_seqlens, ElementsAre(0, 0));
}

TEST(Describe, NamesOpPlaceAndPeer) {
  const Program program = *ProgramFromProto(ValidMessage(), Job());
  EXPECT_EQ(Describe(program, program.instructions[2]),
            "instruction 2 (WAIT for the RECV of the activation of micro-batch 0 on stage 1, from rank 0)");
  EXPECT_EQ(Describe(program, program.instructions[3]),
            "instruction 3 (FORWARD of micro-batch 0 on stage 1)");
  EXPECT_EQ(Describe(program, program.instructions[5]), "instruction 5 (REDUCE_GRADIENTS with ranks 1, 3)");
}

}  // namespace
}  // namespace penstock::worker
