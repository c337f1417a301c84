#include "worker/program/from_proto.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <functional>

#include "worker/program/describe.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec ValidJob() {
  v1::JobSpec job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(R"pb(
                                                                      job_id: "job"
                                                                      model {
                                                                        architecture: ARCHITECTURE_GPT
                                                                        layers: 4
                                                                        hidden: 8
                                                                        heads: 2
                                                                        ffn: 16
                                                                        vocab: 32
                                                                        max_sequence_length: 64
                                                                        dtype: DATA_TYPE_FLOAT64
                                                                      }
                                                                      mesh { pipeline: 2 data: 2 }
                                                                      training {
                                                                        seed: 7
                                                                        learning_rate { peak: 0.1 }
                                                                        beta1: 0.8
                                                                        iterations: 3
                                                                      }
                                                                    )pb",
                                                                    &job);
  EXPECT_TRUE(parsed);
  return job;
}

// Rank 1 of two stages: one padded and one packed micro-batch, one of each kind of instruction.
v1::StreamProgramsResponse ValidMessage() {
  v1::StreamProgramsResponse message;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      R"pb(
        iteration: 5
        loss_tokens: 20
        layers_per_stage: 2
        layers_per_stage: 2
        groups { ranks: 1 ranks: 3 }
        groups { ranks: 0 ranks: 1 }
        samples { sample_id: 10 input_tokens: 2 target_tokens: 3 }
        samples { sample_id: 11 target_tokens: 4 }
        samples { sample_id: 12 target_tokens: 6 }
        micro_batches {
          samples: 0
          samples: 2
          layout: LAYOUT_PADDED
          rows: 2
          target_length: 6
          computed_tokens: 12
          recompute { full_layers: 2 }
          recompute { full_layers: 1 }
        }
        micro_batches {
          samples: 1
          layout: LAYOUT_PACKED
          target_cu_seqlens: 0
          target_cu_seqlens: 4
          recompute {}
          recompute {}
        }
        program {
          rank: 1
          replica: 0
          stages: 1
          instructions { id: 0 op: OP_LOAD stream: STREAM_COMPUTE stage: 1 }
          instructions {
            id: 1
            op: OP_RECV
            stream: STREAM_PREVIOUS
            stage: 1
            transfer {
              peer: 0
              kind: TRANSFER_KIND_ACTIVATION
              shape: 2
              shape: 6
              shape: 8
              dtype: DATA_TYPE_FLOAT64
              bytes: 768
            }
          }
          instructions { id: 2 op: OP_WAIT stream: STREAM_COMPUTE stage: 1 transfer_id: 1 deps: 1 }
          instructions {
            id: 3
            op: OP_FORWARD
            stream: STREAM_COMPUTE
            stage: 1
            deps: 0
            deps: 2
            expected_duration_ns: 1234
          }
          instructions { id: 4 op: OP_FREE stream: STREAM_COMPUTE stage: 1 part: 2 }
          instructions {
            id: 5
            op: OP_REDUCE_GRADIENTS
            stream: STREAM_COLLECTIVE
            stage: 1
            collective { group: 0 }
          }
          instructions {
            id: 6
            op: OP_OPTIMIZER_STEP
            stream: STREAM_COMPUTE
            collective { group: 1 }
          }
        }
      )pb",
      &message);
  EXPECT_TRUE(parsed);
  return message;
}

// Two stages in each of two replicas.
v1::Topology ValidTopology() {
  v1::Topology topology;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    if (rank % 2 == 0) topology.add_replicas();
    topology.mutable_replicas(static_cast<int>(rank / 2))->add_stages()->add_ranks(rank);
  }
  return topology;
}

JobConfig Job(const v1::JobSpec& spec = ValidJob()) {
  JobConfig job = *JobFromProto(spec);
  job.topology = *TopologyFromProto(ValidTopology(), job);
  return job;
}

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

// One replica of two stages, each on two context ranks.
JobConfig ContextJob(const std::vector<uint32_t>& first = {0, 1},
                     const std::vector<uint32_t>& second = {2, 3}) {
  v1::JobSpec spec = ValidJob();
  spec.mutable_mesh()->set_data(1);
  spec.mutable_mesh()->set_context(2);
  JobConfig job = *JobFromProto(spec);
  v1::Topology topology;
  topology.add_replicas();
  for (const std::vector<uint32_t>& ranks : {first, second}) {
    topology.mutable_replicas(0)->add_stages()->mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  const absl::StatusOr<Topology> converted = TopologyFromProto(topology, job);
  if (converted.ok()) job.topology = *converted;
  EXPECT_EQ(converted.ok(), job.topology.ranks() == 4) << converted.status();
  return job;
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

TEST(ProgramFromProto, RefusesStagesOfAnotherRank) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_program()->set_rank(0);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("program.stages are not those that the topology gives to rank 0"));
}

TEST(JobFromProto, FillsInDefaults) {
  const absl::StatusOr<JobConfig> job = JobFromProto(ValidJob());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->model.attention_inner, 8);
  EXPECT_EQ(job->training.beta1, 0.8);
  EXPECT_EQ(job->training.beta2, 0.95);
  EXPECT_EQ(job->training.epsilon, 1e-8);
  EXPECT_EQ(job->world_size(), 4u);
}

TEST(JobFromProto, RefusesWhatItCannotRun) {
  const auto error = [](const v1::JobSpec& job) { return std::string(JobFromProto(job).status().message()); };
  v1::JobSpec job = ValidJob();
  job.mutable_mesh()->set_tensor(4);
  EXPECT_THAT(error(job), HasSubstr("mesh.tensor is 4, which does not divide model.heads, 2"));
  job.mutable_model()->set_heads(4);
  job.mutable_model()->set_ffn(18);
  EXPECT_THAT(error(job), HasSubstr("mesh.tensor is 4, which does not divide model.ffn, 18"));
  job = ValidJob();
  job.mutable_mesh()->set_context(6);
  EXPECT_THAT(error(job), HasSubstr("mesh.context is 6, expected a power of two"));
  job.mutable_mesh()->set_context(1024);
  job.mutable_mesh()->set_tensor(64);
  EXPECT_THAT(error(job), HasSubstr("mesh of 2 x 2 stage groups of 65536 ranks is more than 65536 ranks"));
}

TEST(JobFromProto, KnowsTheDegreesOfTheMesh) {
  v1::JobSpec spec = ValidJob();
  spec.mutable_mesh()->set_tensor(2);
  spec.mutable_mesh()->set_context(4);
  const absl::StatusOr<JobConfig> job = JobFromProto(spec);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->tensor, 2u);
  EXPECT_EQ(job->context, 4u);
  EXPECT_EQ(job->world_size(), 32u);
  // One key-value head is repeated on two tensor ranks.
  spec.mutable_model()->set_position(v1::POSITION_ROTARY);
  spec.mutable_model()->set_key_value_heads(1);
  EXPECT_TRUE(JobFromProto(spec).ok()) << JobFromProto(spec).status();
}

TEST(JobFromProto, KnowsT5) {
  v1::JobSpec job = ValidJob();
  v1::ModelSpec& model = *job.mutable_model();
  model.set_architecture(v1::ARCHITECTURE_T5);
  model.clear_layers();
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.encoder_layers"));
  model.set_encoder_layers(3);
  model.set_decoder_layers(2);
  model.set_decoder_start_token(5);
  absl::StatusOr<JobConfig> config = JobFromProto(job);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.architecture, Architecture::kT5);
  EXPECT_EQ(config->model.layers, 5);
  EXPECT_EQ(config->model.encoder_layers, 3);
  EXPECT_EQ(config->model.decoder_start_token, 5);
  EXPECT_EQ(config->model.feed_forward, FeedForward::kRelu);
  EXPECT_EQ(config->model.relative_position_buckets, 32);
  EXPECT_EQ(config->model.relative_position_max_distance, 128);
  model.set_feed_forward(v1::FEED_FORWARD_GATED_GELU);
  EXPECT_EQ(JobFromProto(job)->model.feed_forward, FeedForward::kGatedGelu);
  model.set_decoder_start_token(model.vocab());
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.decoder_start_token"));
}

TEST(JobFromProto, LeavesThePartsOfAModelToItsArchitecture) {
  const ModelConfig model = JobFromProto(ValidJob())->model;
  EXPECT_FALSE(model.position.has_value());
  EXPECT_FALSE(model.norm.has_value());
  EXPECT_FALSE(model.attention_biases.has_value());
  EXPECT_FALSE(model.feed_forward_biases.has_value());
  EXPECT_EQ(model.norm_epsilon, 0);
  EXPECT_EQ(model.key_value_heads, 0);
  EXPECT_FALSE(model.tied_head);
}

TEST(JobFromProto, KnowsTheParts) {
  v1::JobSpec job = ValidJob();
  v1::ModelSpec& spec = *job.mutable_model();
  spec.set_position(v1::POSITION_ROTARY);
  spec.mutable_rotary()->set_theta(500000);
  spec.mutable_rotary()->set_scaling(v1::ROTARY_SCALING_LLAMA3);
  spec.mutable_rotary()->set_factor(8);
  spec.mutable_rotary()->set_low_frequency_factor(1);
  spec.mutable_rotary()->set_high_frequency_factor(4);
  spec.mutable_rotary()->set_original_max_sequence_length(8192);
  spec.set_norm(v1::NORM_RMS);
  spec.set_norm_epsilon(1e-5);
  spec.set_key_value_heads(1);
  spec.set_attention_biases(v1::BIASES_QUERY_KEY_VALUE);
  spec.set_feed_forward_biases(v1::BIASES_NONE);
  spec.set_feed_forward(v1::FEED_FORWARD_GATED_SILU);
  spec.set_tied_head(true);
  const absl::StatusOr<JobConfig> config = JobFromProto(job);
  ASSERT_TRUE(config.ok()) << config.status();
  const ModelConfig& model = config->model;
  EXPECT_EQ(model.position, Position::kRotary);
  EXPECT_EQ(model.rotary.theta, 500000);
  EXPECT_EQ(model.rotary.scaling, RotaryScaling::kLlama3);
  EXPECT_EQ(model.rotary.factor, 8);
  EXPECT_EQ(model.rotary.low_frequency_factor, 1);
  EXPECT_EQ(model.rotary.high_frequency_factor, 4);
  EXPECT_EQ(model.rotary.original_max_sequence_length, 8192);
  EXPECT_EQ(model.norm, Norm::kRms);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.key_value_heads, 1);
  EXPECT_EQ(model.attention_biases, Biases::kQueryKeyValue);
  EXPECT_EQ(model.feed_forward_biases, Biases::kNone);
  EXPECT_EQ(model.feed_forward, FeedForward::kGatedSilu);
  EXPECT_TRUE(model.tied_head);
  spec.mutable_rotary()->set_scaling(static_cast<v1::RotaryScaling>(9));
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.rotary.scaling"));
}

// With a shared expert and losses of its router.
v1::JobSpec JobOfExperts() {
  v1::JobSpec job = ValidJob();
  v1::ModelSpec& spec = *job.mutable_model();
  spec.set_experts(4);
  spec.set_experts_per_token(2);
  spec.set_feed_forward_biases(v1::BIASES_NONE);
  spec.set_shared_expert_ffn(12);
  spec.set_gated_shared_expert(true);
  spec.set_query_key_value_clip(8);
  spec.set_router_balance_loss(0.01);
  spec.set_router_z_loss(0.001);
  spec.set_expert_capacity_factor(1.25);
  return job;
}

TEST(JobFromProto, KnowsWhatStandsBesideExperts) {
  const absl::StatusOr<JobConfig> config = JobFromProto(JobOfExperts());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.shared_expert_ffn, 12);
  EXPECT_TRUE(config->model.gated_shared_expert);
  EXPECT_EQ(config->model.query_key_value_clip, 8);
  EXPECT_EQ(config->model.router_balance_loss, 0.01);
  EXPECT_EQ(config->model.router_z_loss, 0.001);
  EXPECT_EQ(config->model.expert_capacity_factor, 1.25);
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

TEST(JobFromProto, NamesTheFieldThatIsWrong) {
  v1::JobSpec job = ValidJob();
  job.mutable_model()->set_heads(3);
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("model.heads"));
  job = ValidJob();
  job.mutable_mesh()->set_data(0);
  EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr("mesh.data"));
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

// The same of context rank 1 of the second stage of ContextJob, of which sample 2's row is divided.
v1::StreamProgramsResponse ContextMessage() {
  v1::StreamProgramsResponse message = ValidMessage();
  message.clear_groups();
  for (const std::vector<uint32_t>& ranks : std::vector<std::vector<uint32_t>>{{2, 3}, {0, 1, 2, 3}}) {
    message.add_groups()->mutable_ranks()->Add(ranks.begin(), ranks.end());
  }
  for (const uint32_t first : {1, 0}) message.mutable_micro_batches(0)->add_span_first(first);
  for (const uint32_t ranks : {1, 2}) message.mutable_micro_batches(0)->add_span_ranks(ranks);
  message.mutable_micro_batches(1)->add_span_first(0);
  message.mutable_micro_batches(1)->add_span_ranks(1);
  message.mutable_program()->set_rank(3);
  v1::Instruction& pass = *message.mutable_program()->mutable_instructions(3);
  pass.mutable_collective()->set_group(0);
  pass.set_own_duration_ns(1000);
  pass.mutable_exchange()->set_context_ns(10);
  return message;
}

TEST(ProgramFromProto, KnowsJointPassesAndSpans) {
  const absl::StatusOr<Program> program = ProgramFromProto(ContextMessage(), ContextJob());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->instructions[3].joint);
  EXPECT_EQ(program->instructions[3].group, 0u);
  EXPECT_EQ(program->instructions[3].own_duration_ns, 1000);
  EXPECT_FALSE(program->instructions[6].joint);
  ASSERT_EQ(program->micro_batches[0].spans.size(), 2u);
  EXPECT_EQ(program->micro_batches[0].spans[0].first, 1u);
  EXPECT_EQ(program->micro_batches[0].spans[1].ranks, 2u);
}

// Of a job whose context ranks divide the experts.
JobConfig ExpertJob() {
  JobConfig job = ContextJob();
  job.expert = 2;
  job.model.experts = 4;
  return job;
}

TEST(ProgramFromProto, KnowsThePartsOfMicroBatches) {
  v1::StreamProgramsResponse message = ContextMessage();
  for (const uint32_t end : {0, 1, 2}) message.mutable_micro_batches(0)->add_part_rows(end);
  const absl::StatusOr<Program> program = ProgramFromProto(message, ExpertJob());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->micro_batches[0].part_rows, ElementsAre(0, 1, 2));
  EXPECT_THAT(program->micro_batches[1].part_rows, ElementsAre());
}

TEST(ProgramFromProto, NamesWhatIsWrongWithPartsOfMicroBatches) {
  const auto error = [](const std::vector<uint32_t>& part_rows, const JobConfig& job, bool beside = false) {
    v1::StreamProgramsResponse message = ContextMessage();
    message.mutable_micro_batches(0)->mutable_part_rows()->Add(part_rows.begin(), part_rows.end());
    v1::Instruction& pass = *message.mutable_program()->mutable_instructions(3);
    if (beside) {
      pass.set_op(v1::OP_BACKWARD);
      pass.mutable_exchange()->set_others_beside_arrival(true);
    }
    return std::string(ProgramFromProto(message, job).status().message());
  };
  EXPECT_THAT(
      error({0, 1, 2}, ContextJob()),
      AllOf(HasSubstr("micro-batch 0"), HasSubstr("part_rows is 0, 1, 2: there are no parts where ranks "
                                                  "do not divide experts")));
  JobConfig tensors = ExpertJob();
  tensors.tensor = 2;
  EXPECT_THAT(error({0, 1, 2}, tensors), HasSubstr("no parts where 2 tensor ranks"));
  for (const std::vector<uint32_t>& wrong :
       {std::vector<uint32_t>{0}, {2}, {1, 2}, {0, 1}, {0, 0, 2}, {0, 2, 1}, {0, 1, 3}}) {
    EXPECT_THAT(error(wrong, ExpertJob()), HasSubstr("expected values that rise from 0 to 2"));
  }
  EXPECT_EQ(error({}, ExpertJob(), /*beside=*/true), "");
  EXPECT_THAT(error({0, 2}, ExpertJob(), /*beside=*/true),
              AllOf(HasSubstr("instruction 3"), HasSubstr("beside exchanges of a micro-batch in parts")));
}

TEST(ProgramFromProto, NamesWhatIsWrongWithJointPassesAndSpans) {
  const auto error = [](void (*change)(v1::StreamProgramsResponse&)) {
    v1::StreamProgramsResponse message = ContextMessage();
    change(message);
    return std::string(ProgramFromProto(message, ContextJob()).status().message());
  };
  EXPECT_THAT(
      error([](auto& message) { message.mutable_program()->mutable_instructions(3)->clear_collective(); }),
      AllOf(HasSubstr("instruction 3"), HasSubstr("collective is not set")));
  EXPECT_THAT(error([](auto& message) {
                message.mutable_program()->mutable_instructions(3)->mutable_collective()->set_group(1);
              }),
              HasSubstr("collective.group 1 is not the stage group of rank 3"));
  EXPECT_THAT(error([](auto& message) {
                message.mutable_program()->mutable_instructions(3)->set_own_duration_ns(1235);
              }),
              HasSubstr("own_duration_ns is 1235, expected 0 to 1234"));
  EXPECT_THAT(error([](auto& message) {
                message.mutable_program()->mutable_instructions(3)->mutable_exchange()->set_tensor_ns(-1);
              }),
              HasSubstr("exchange has a time of -1"));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->clear_span_first(); }),
              AllOf(HasSubstr("micro-batch 0"), HasSubstr("span_first has 0 values, span_ranks 2")));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->set_span_ranks(1, 4); }),
              HasSubstr("span of row 1: 4 context ranks from 0 on, expected an aligned run"));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->set_span_first(1, 1); }),
              HasSubstr("span of row 1: 2 context ranks from 1 on"));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->set_span_first(0, 2); }),
              HasSubstr("span of row 0: 1 context ranks from 2 on"));
  EXPECT_THAT(
      error([](auto& message) {
        message.mutable_samples(1)->set_target_tokens(3);
        message.mutable_micro_batches(1)->set_target_cu_seqlens(1, 3);
        message.mutable_micro_batches(1)->set_span_ranks(0, 2);
      }),
      AllOf(HasSubstr("micro-batch 1"), HasSubstr("span of row 0"), HasSubstr("the row has 3 tokens")));
}

TEST(ProgramFromProto, WhatIsForStageGroupsIsRefusedWhereAStageIsOnOneRank) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_program()->mutable_instructions(3)->set_own_duration_ns(1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("are for stage groups of several ranks"));
  message = ValidMessage();
  message.mutable_micro_batches(0)->add_span_first(0);
  message.mutable_micro_batches(0)->add_span_ranks(1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("span_first has 1 values, but the job has one context rank"));
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

struct Damage {
  const char* name;
  std::function<void(v1::StreamProgramsResponse&)> apply;
  const char* message;
};

v1::Instruction& At(v1::StreamProgramsResponse& message, int id) {
  return *message.mutable_program()->mutable_instructions(id);
}

class ProgramFromProtoDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(ProgramFromProtoDamage, IsRefused) {
  v1::StreamProgramsResponse message = ValidMessage();
  GetParam().apply(message);
  const absl::Status status = ProgramFromProto(message, Job()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    EveryField, ProgramFromProtoDamage,
    ::testing::Values(
        Damage{"IdOutOfOrder", [](auto& m) { At(m, 3).set_id(9); }, "id is 9"},
        Damage{"OpNotSet", [](auto& m) { At(m, 0).clear_op(); }, "op is not set"},
        Damage{"StreamNotSet", [](auto& m) { At(m, 0).clear_stream(); }, "stream is not set"},
        Damage{"ForeignStage", [](auto& m) { At(m, 3).set_stage(0); }, "stage 0 is not on this rank"},
        Damage{"NoSuchMicroBatch", [](auto& m) { At(m, 3).set_micro_batch(2); }, "micro_batch is 2"},
        Damage{"NegativeDuration", [](auto& m) { At(m, 3).set_expected_duration_ns(-1); },
               "expected_duration_ns is -1"},
        Damage{"TooFewDurationsOfTheProfile", [](auto& m) { m.add_profile_duration_ns(7); },
               "profile_duration_ns has 1 values for 7 instructions"},
        Damage{"NegativeDurationOfTheProfile",
               [](auto& m) {
                 for (int i = 0; i < 7; ++i) m.add_profile_duration_ns(i == 5 ? -1 : 1);
               },
               "profile_duration_ns has a time of -1"},
        Damage{"LaterDep", [](auto& m) { At(m, 3).set_deps(0, 4); }, "deps names 4"},
        Damage{"NoSuchPeer", [](auto& m) { At(m, 1).mutable_transfer()->set_peer(4); }, "transfer.peer is 4"},
        Damage{"PeerIsItself", [](auto& m) { At(m, 1).mutable_transfer()->set_peer(1); }, "the rank itself"},
        Damage{"OtherType", [](auto& m) { At(m, 1).mutable_transfer()->set_dtype(v1::DATA_TYPE_FLOAT32); },
               "transfer.dtype"},
        Damage{"WaitForLater", [](auto& m) { At(m, 2).set_transfer_id(2); }, "transfer_id is 2"},
        Damage{"WaitForNoTransfer", [](auto& m) { At(m, 2).set_transfer_id(0); },
               "neither a SEND nor a RECV"},
        Damage{"NoCollective", [](auto& m) { At(m, 5).clear_collective(); }, "collective is not set"},
        Damage{"NoSuchGroup", [](auto& m) { At(m, 5).mutable_collective()->set_group(2); },
               "collective.group is 2"},
        Damage{"GroupWithoutThisRank", [](auto& m) { m.mutable_groups(0)->set_ranks(0, 2); },
               "does not hold rank 1"},
        Damage{"NoSuchSample", [](auto& m) { m.mutable_micro_batches(0)->set_samples(0, 3); }, "sample 3"},
        Damage{"EmptyMicroBatch", [](auto& m) { m.mutable_micro_batches(0)->clear_samples(); },
               "samples is empty"},
        Damage{"WrongRows", [](auto& m) { m.mutable_micro_batches(0)->set_rows(3); }, "rows is 3"},
        Damage{"ShortRectangle", [](auto& m) { m.mutable_micro_batches(0)->set_target_length(5); },
               "target_length is 5"},
        Damage{"WrongCuSeqlens", [](auto& m) { m.mutable_micro_batches(1)->set_target_cu_seqlens(1, 5); },
               "target_cu_seqlens[1]"},
        Damage{"MissingRecompute",
               [](auto& m) { m.mutable_micro_batches(1)->mutable_recompute()->RemoveLast(); },
               "recompute has 1 entries"},
        Damage{"TooManyRecomputed",
               [](auto& m) { m.mutable_micro_batches(1)->mutable_recompute(0)->set_full_layers(3); },
               "recompute of stage 0 names 3 full_layers"},
        Damage{"WrongLayers", [](auto& m) { m.set_layers_per_stage(0, 3); }, "layers_per_stage sums to 5"}),
    [](const auto& info) { return info.param.name; });

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
