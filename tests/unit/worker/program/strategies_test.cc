// Jobs whose iterations run on one of several strategies, as the planner tells them.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "worker/program/describe.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ranks: two replicas, or two tensor ranks of one.
v1::JobSpec JobWithStrategies() {
  v1::JobSpec job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(job_id: "demo"
           model {
             architecture: ARCHITECTURE_GPT
             layers: 3
             hidden: 8
             heads: 2
             ffn: 16
             vocab: 10
             max_sequence_length: 32
             dtype: DATA_TYPE_FLOAT64
           }
           mesh { pipeline: 1 data: 2 }
           planning { parameter_shares: true }
           strategies { meshes { mesh { pipeline: 1 data: 2 } } }
           strategies { meshes { mesh { pipeline: 1 data: 1 tensor: 2 } } }
      )pb",
      &job));
  return job;
}

v1::RegisterWorkerResponse AnswerWithStrategies() {
  v1::RegisterWorkerResponse response;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(topology {
             replicas { stages { decoder_layers: 3 ranks: 0 } }
             replicas { stages { decoder_layers: 3 ranks: 1 } }
           }
           strategies {
             replicas { stages { decoder_layers: 3 ranks: 0 } }
             replicas { stages { decoder_layers: 3 ranks: 1 } }
           }
           strategies { replicas { stages { decoder_layers: 3 ranks: 0 ranks: 1 } } }
      )pb",
      &response));
  return response;
}

JobConfig RegisteredJob(const v1::JobSpec& spec = JobWithStrategies()) {
  JobConfig job = *JobFromProto(spec);
  job.topology = *TopologyFromProto(AnswerWithStrategies().topology(), job);
  const absl::Status added = AddStrategyTopologies(AnswerWithStrategies(), job);
  EXPECT_TRUE(added.ok()) << added;
  return job;
}

// Of rank 1, on the second strategy.
v1::StreamProgramsResponse SharesMessage() {
  v1::StreamProgramsResponse message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(iteration: 3
           strategy: 1
           layers_per_stage: 3
           loss_tokens: 4
           groups { ranks: 0 ranks: 1 }
           groups { ranks: 0 ranks: 1 }
           samples { sample_id: 7 target_tokens: 4 }
           micro_batches {
             samples: 0
             layout: LAYOUT_PACKED
             target_cu_seqlens: 0
             target_cu_seqlens: 4
             recompute {}
           }
           program {
             rank: 1
             stages: 0
             instructions {
               id: 0
               op: OP_RESHARD
               stream: STREAM_COLLECTIVE
               expected_duration_ns: 10
               collective { group: 0 bytes: 8 }
             }
             instructions { id: 1 op: OP_LOAD stream: STREAM_COMPUTE }
             instructions {
               id: 2
               op: OP_FORWARD
               stream: STREAM_COMPUTE
               deps: 0
               deps: 1
               collective { group: 1 }
             }
             instructions {
               id: 3
               op: OP_BACKWARD
               stream: STREAM_COMPUTE
               collective { group: 1 sequence: 1 }
             }
             instructions {
               id: 4
               op: OP_RESHARD
               stream: STREAM_COLLECTIVE
               part: 1
               deps: 3
               collective { group: 0 sequence: 1 bytes: 8 }
             }
             instructions {
               id: 5
               op: OP_OPTIMIZER_STEP
               stream: STREAM_COMPUTE
               deps: 4
               collective { group: 0 sequence: 2 bytes: 8 }
             }
           }
      )pb",
      &message));
  return message;
}

v1::Instruction& InstructionOf(v1::StreamProgramsResponse& message, int id) {
  return *message.mutable_program()->mutable_instructions(id);
}

TEST(Strategies, OfAJobHaveDegreesAndTopologiesOfTheirOwn) {
  const JobConfig job = RegisteredJob();
  EXPECT_TRUE(job.parameter_shares);
  ASSERT_EQ(job.strategy_count(), 2U);
  EXPECT_EQ(job.Of(0, 0).topology, job.topology);
  const JobConfig second = job.Of(1, 0);
  EXPECT_EQ(second.replicas, 1U);
  EXPECT_EQ(second.tensor, 2U);
  EXPECT_EQ(second.world_size(), 2U);
  EXPECT_EQ(second.topology.PlaceOf(1).tensor, 1);
  EXPECT_EQ(second.strategy_count(), 1U);
}

TEST(Strategies, AreNoneWhereTheJobHasItsMeshAlone) {
  v1::JobSpec spec = JobWithStrategies();
  spec.clear_strategies();
  JobConfig job = *JobFromProto(spec);
  EXPECT_TRUE(job.parameter_shares);
  EXPECT_EQ(job.strategy_count(), 1U);
  job.topology = *TopologyFromProto(AnswerWithStrategies().topology(), job);
  EXPECT_EQ(job.Of(0, 0).topology, job.topology);
}

TEST(Strategies, AProgramIsOfTheOneThatItNames) {
  const absl::StatusOr<Program> program = ProgramFromProto(SharesMessage(), RegisteredJob());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->strategy, 1U);
  EXPECT_TRUE(program->instructions[2].joint);
  EXPECT_EQ(program->instructions[0].op, Op::kReshard);
  EXPECT_EQ(Describe(*program, program->instructions[0]),
            "instruction 0 (RESHARD of the parameters with ranks 0, 1)");
  EXPECT_EQ(Describe(*program, program->instructions[4]),
            "instruction 4 (RESHARD of the gradients with ranks 0, 1)");
}

// What a worker knows that registered before the job got its second strategy.
JobConfig BeforeTheSecond() {
  JobConfig job = RegisteredJob();
  job.strategies.resize(1);
  return job;
}

TEST(Strategies, ThatAJobGetsLaterComeWithTheirPrograms) {
  JobConfig job = BeforeTheSecond();
  EXPECT_FALSE(job.Knows(1));
  EXPECT_EQ(ProgramFromProto(SharesMessage(), job).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status added =
      AddStrategy(1, JobWithStrategies().strategies(1), AnswerWithStrategies().strategies(1), job);
  ASSERT_TRUE(added.ok()) << added;
  EXPECT_TRUE(job.Knows(1));
  const absl::StatusOr<Program> program = ProgramFromProto(SharesMessage(), job);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_NE(program->added_strategy, nullptr);
  EXPECT_EQ(program->added_strategy->topology, RegisteredJob().strategies[1].topology);
  EXPECT_EQ(job.Of(1, 1).tensor, RegisteredJob().Of(1, 1).tensor);
  EXPECT_EQ(ProgramFromProto(SharesMessage(), RegisteredJob())->added_strategy, nullptr);
}

TEST(Strategies, ThatAreKnownMayBeToldOfAgainAndAreNeverOthers) {
  const v1::JobSpec spec = JobWithStrategies();
  const v1::RegisterWorkerResponse answer = AnswerWithStrategies();
  JobConfig job = BeforeTheSecond();
  ASSERT_TRUE(AddStrategy(1, spec.strategies(1), answer.strategies(1), job).ok());
  EXPECT_TRUE(AddStrategy(1, spec.strategies(1), answer.strategies(1), job).ok());
  EXPECT_TRUE(AddStrategy(0, spec.strategies(0), answer.strategies(0), job).ok());
  EXPECT_EQ(AddStrategy(1, spec.strategies(0), answer.strategies(0), job).code(), absl::StatusCode::kAborted);
}

TEST(Strategies, ThatAJobCannotHaveAreNotAdded) {
  const v1::RegisterWorkerResponse answer = AnswerWithStrategies();
  JobConfig job = BeforeTheSecond();
  v1::Strategy larger = JobWithStrategies().strategies(1);
  larger.mutable_meshes(0)->mutable_mesh()->set_data(2);
  EXPECT_THAT(std::string(AddStrategy(1, larger, answer.strategies(1), job).message()),
              HasSubstr("strategies[1]: mesh has 4 ranks, but the job has 2"));
  v1::JobSpec plain = JobWithStrategies();
  plain.clear_strategies();
  JobConfig without = *JobFromProto(plain);
  EXPECT_THAT(
      std::string(AddStrategy(1, JobWithStrategies().strategies(1), answer.strategies(1), without).message()),
      HasSubstr("was registered without strategies"));
}

struct DamagedJob {
  const char* message;
  std::function<void(v1::JobSpec& job)> damage;
};

TEST(Strategies, ThatNoWorkerCanRunAreRefusedByName) {
  const DamagedJob cases[] = {
      {"strategies need planning.parameter_shares",
       [](v1::JobSpec& job) { job.mutable_planning()->clear_parameter_shares(); }},
      {"planning.shard_optimizer_state",
       [](v1::JobSpec& job) { job.mutable_planning()->set_shard_optimizer_state(true); }},
      {"strategies[1]: meshes has 0", [](v1::JobSpec& job) { job.mutable_strategies(1)->clear_meshes(); }},
      {"strategies[1]: mesh.pipeline is 0",
       [](v1::JobSpec& job) { job.mutable_strategies(1)->add_meshes(); }},
      {"strategies[1]: mesh has 1 ranks, but the job has 2",
       [](v1::JobSpec& job) { job.mutable_strategies(1)->mutable_meshes(0)->mutable_mesh()->set_tensor(1); }},
      {"strategies[1]: mesh.tensor is 3",
       [](v1::JobSpec& job) { job.mutable_strategies(1)->mutable_meshes(0)->mutable_mesh()->set_tensor(3); }},
      {"strategies[1]: mesh.expert is 2",
       [](v1::JobSpec& job) { job.mutable_strategies(1)->mutable_meshes(0)->mutable_mesh()->set_expert(2); }},
      {"strategies[0]: mesh is not that of the job",
       [](v1::JobSpec& job) { job.mutable_strategies()->SwapElements(0, 1); }},
      {"planning.share_weights needs planning.parameter_shares",
       [](v1::JobSpec& job) {
         job.clear_strategies();
         job.mutable_planning()->clear_parameter_shares();
         job.mutable_planning()->add_share_weights(1);
       }},
      {"planning.share_weights has 1, but the job has 2 ranks",
       [](v1::JobSpec& job) { job.mutable_planning()->add_share_weights(1); }},
      {"planning.share_weights: all are 0",
       [](v1::JobSpec& job) {
         for (int rank = 0; rank < 2; ++rank) job.mutable_planning()->add_share_weights(0);
       }},
      {"planning.share_weights has 1048577, at most 1048576 is allowed",
       [](v1::JobSpec& job) {
         for (const uint32_t weight : {1, (1 << 20) + 1}) job.mutable_planning()->add_share_weights(weight);
       }},
      {"strategies has 65",
       [](v1::JobSpec& job) {
         while (job.strategies_size() < 65) *job.add_strategies() = job.strategies(0);
       }},
  };
  for (const DamagedJob& test : cases) {
    v1::JobSpec job = JobWithStrategies();
    test.damage(job);
    EXPECT_THAT(std::string(JobFromProto(job).status().message()), HasSubstr(test.message));
  }
}

TEST(Strategies, SharesHaveTheWeightsOfTheJob) {
  v1::JobSpec job = JobWithStrategies();
  EXPECT_THAT(JobFromProto(job)->ShareWeights(), ElementsAre(1, 1));
  for (const uint32_t weight : {3, 0}) job.mutable_planning()->add_share_weights(weight);
  EXPECT_THAT(JobFromProto(job)->ShareWeights(), ElementsAre(3, 0));
  EXPECT_THAT(JobFromProto(job)->Of(1, 0).ShareWeights(), ElementsAre(3, 0));
}

TEST(Strategies, TopologiesThatAreNotTheirsAreRefused) {
  const auto message_of = [](const v1::RegisterWorkerResponse& response) {
    JobConfig job = RegisteredJob();
    return std::string(AddStrategyTopologies(response, job).message());
  };
  v1::RegisterWorkerResponse response = AnswerWithStrategies();
  response.mutable_strategies()->RemoveLast();
  EXPECT_THAT(message_of(response), HasSubstr("strategies has 1 topologies, but the job has 2"));
  response = AnswerWithStrategies();
  *response.mutable_strategies(1) = response.topology();
  EXPECT_THAT(message_of(response), HasSubstr("strategies[1]: topology.replicas has 2"));
  response = AnswerWithStrategies();
  response.mutable_strategies(0)->mutable_replicas()->SwapElements(0, 1);
  EXPECT_THAT(message_of(response), HasSubstr("strategies[0] is not the topology of the job"));
}

struct DamagedProgram {
  const char* message;
  std::function<void(v1::StreamProgramsResponse& message)> damage;
};

TEST(Strategies, ProgramsThatDoNotGoWithThemAreRefused) {
  const DamagedProgram cases[] = {
      {"strategy is 2, but the job has 2", [](auto& message) { message.set_strategy(2); }},
      // The ranks of a tensor group stand alone in the first strategy.
      {"stage groups of several ranks", [](auto& message) { message.set_strategy(0); }},
      {"part 2 of a RESHARD is not known", [](auto& message) { InstructionOf(message, 4).set_part(2); }},
      {"instruction 4 (RESHARD of the parameters with ranks 0, 1): comes a second time",
       [](auto& message) { InstructionOf(message, 4).set_part(0); }},
      {"comes before the RESHARD of the parameters",
       [](auto& message) { InstructionOf(message, 0).set_part(1); }},
      {"collective is not set", [](auto& message) { InstructionOf(message, 0).clear_collective(); }},
      {"is not over all ranks",
       [](auto& message) {
         message.mutable_groups(0)->clear_ranks();
         message.mutable_groups(0)->add_ranks(1);
       }},
      {"whose gradients a RESHARD sums",
       [](auto& message) { InstructionOf(message, 4).set_op(v1::OP_REDUCE_GRADIENTS); }},
      {"comes before the RESHARD of the gradients",
       [](auto& message) {
         InstructionOf(message, 4).set_op(v1::OP_LOAD);
         InstructionOf(message, 4).clear_part();
       }},
      {"no RESHARD of the gradients",
       [](auto& message) {
         message.mutable_program()->mutable_instructions()->RemoveLast();
         message.mutable_program()->mutable_instructions()->RemoveLast();
       }},
  };
  for (const DamagedProgram& test : cases) {
    v1::StreamProgramsResponse message = SharesMessage();
    test.damage(message);
    EXPECT_THAT(std::string(ProgramFromProto(message, RegisteredJob()).status().message()),
                HasSubstr(test.message));
  }
}

TEST(Strategies, ARankWithoutAPassReshardsToo) {
  v1::StreamProgramsResponse message = SharesMessage();
  auto& instructions = *message.mutable_program()->mutable_instructions();
  instructions.DeleteSubrange(1, 3);
  for (int id = 0; id < instructions.size(); ++id)
    InstructionOf(message, id).set_id(static_cast<uint32_t>(id));
  InstructionOf(message, 1).clear_deps();
  InstructionOf(message, 2).mutable_deps()->Set(0, 1);
  message.clear_micro_batches();
  const absl::StatusOr<Program> program = ProgramFromProto(message, RegisteredJob());
  EXPECT_TRUE(program.ok()) << program.status();
}

TEST(Strategies, AJobWithoutSharesKnowsNoReshard) {
  v1::JobSpec spec = JobWithStrategies();
  spec.clear_strategies();
  spec.mutable_planning()->clear_parameter_shares();
  *spec.mutable_mesh() = JobWithStrategies().strategies(1).meshes(0).mesh();
  JobConfig job = *JobFromProto(spec);
  job.topology = *TopologyFromProto(AnswerWithStrategies().strategies(1), job);
  v1::StreamProgramsResponse message = SharesMessage();
  message.set_strategy(0);
  EXPECT_THAT(std::string(ProgramFromProto(message, job).status().message()),
              HasSubstr("the job has no shares of parameters"));
}

}  // namespace
}  // namespace penstock::worker
