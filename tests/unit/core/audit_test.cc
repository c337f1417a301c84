// What only a cost profile, or the list of samples, can tell about a plan: planted damage that the checker
// cannot see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "planner/core/audit/audit_plan.h"
#include "planner/core/planner.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AuditTest : public testing::Test {
 protected:
  AuditTest() { Make(GptJob(2, 2, v1::POLICY_DYNAMIC)); }

  void Make(const v1::JobSpec& job) {
    job_ = job;
    auto planner = Planner::Create(job_);
    ASSERT_TRUE(planner.ok()) << planner.status();
    auto plan = (*planner)->MakePlan(batch_);
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *plan;
  }

  std::vector<Violation> Audit() {
    auto violations = AuditPlan(batch_, plan_, job_.profile());
    EXPECT_TRUE(violations.ok()) << violations.status();
    return violations.ok() ? *violations : std::vector<Violation>();
  }

  // The first one of rank 0.
  v1::Instruction& Get(v1::Op op) {
    for (v1::Instruction& instruction : *plan_.mutable_programs(0)->mutable_instructions())
      if (instruction.op() == op) return instruction;
    ADD_FAILURE() << "rank 0 has no " << v1::Op_Name(op);
    return *plan_.mutable_programs(0)->mutable_instructions(0);
  }

  void ExpectViolation(const std::string& text) {
    EXPECT_THAT(Audit(), Contains(AllOf(Field(&Violation::rule, kCostsRule),
                                        Field(&Violation::message, HasSubstr(text)))));
  }
  void ExpectViolationAt(const v1::Instruction& instruction, const std::string& text) {
    const std::string place = "rank 0, instruction " + std::to_string(instruction.id()) + " (";
    EXPECT_THAT(Audit(),
                Contains(AllOf(Field(&Violation::rule, kCostsRule), Field(&Violation::rank, 0),
                               Field(&Violation::instruction, instruction.id()),
                               Field(&Violation::message, AllOf(HasSubstr(place), HasSubstr(text))))));
  }

  v1::JobSpec job_;
  const v1::Batch batch_ =
      MakeBatch({{10, 20}, {500, 3}, {0, 40}, {7, 7}, {900, 100}, {30, 1}, {2, 60}, {64, 64}});
  v1::Plan plan_;
};

TEST_F(AuditTest, PlansOfEveryKindPass) {
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                  v1::POLICY_TOKEN_BUDGET, v1::POLICY_DYNAMIC}) {
    for (const v1::Schedule schedule :
         {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_READY_FIRST, v1::SCHEDULE_SPLIT_BACKWARD,
          v1::SCHEDULE_INTERLEAVED, v1::SCHEDULE_AUTO}) {
      for (v1::JobSpec job : {GptJob(2, 2, policy), T5Job(2, 1, policy)}) {
        job.mutable_planning()->set_schedule(schedule);
        Make(job);
        for (const Violation& violation : Audit())
          ADD_FAILURE() << v1::Policy_Name(policy) << ", " << v1::Schedule_Name(schedule) << ": "
                        << violation.message;
      }
    }
  }
}

TEST_F(AuditTest, RecomputeOfEveryModePasses) {
  for (const v1::Recompute mode : {v1::RECOMPUTE_NONE, v1::RECOMPUTE_FULL, v1::RECOMPUTE_AUTO}) {
    v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
    job.mutable_planning()->set_recompute(mode);
    Make(job);
    EXPECT_THAT(Audit(), IsEmpty());
  }
}

TEST_F(AuditTest, WrongDurations) {
  for (const v1::Op op :
       {v1::OP_FORWARD, v1::OP_SEND, v1::OP_RECV, v1::OP_REDUCE_GRADIENTS, v1::OP_OPTIMIZER_STEP}) {
    v1::Instruction& instruction = Get(op);
    const int64_t right = instruction.expected_duration_ns();
    instruction.set_expected_duration_ns(right + 3);
    ExpectViolationAt(instruction, "expected_duration_ns is " + std::to_string(right + 3) + ", expected " +
                                       std::to_string(right));
    instruction.set_expected_duration_ns(right);
  }
}

TEST_F(AuditTest, WrongBytes) {
  v1::Instruction& forward = Get(v1::OP_FORWARD);
  forward.set_memory_acquired_bytes(forward.memory_acquired_bytes() - 1);
  ExpectViolationAt(forward, "memory_acquired_bytes is");
  v1::Instruction& reduce = Get(v1::OP_REDUCE_GRADIENTS);
  reduce.mutable_collective()->set_bytes(1);
  ExpectViolationAt(reduce, "collective.bytes is 1, expected");
  v1::Instruction& send = Get(v1::OP_SEND);
  send.mutable_transfer()->set_bytes(1);
  ExpectViolationAt(send, "transfer.bytes is 1, expected");
}

TEST_F(AuditTest, WrongMemoryOfARank) {
  plan_.mutable_programs(1)->set_static_memory_bytes(5);
  ExpectViolation("rank 1: static_memory_bytes is 5, expected");
  plan_.mutable_programs(1)->set_memory_limit_bytes(6);
  ExpectViolation("rank 1: memory_limit_bytes is 6, expected");
}

TEST_F(AuditTest, RecomputeThatTheOptionsDoNotAllow) {
  plan_.mutable_options()->set_recompute(v1::RECOMPUTE_FULL);
  ExpectViolation("options.recompute asks for 0 and 4");
}

TEST_F(AuditTest, RecomputeThatChangesTheTime) {
  plan_.mutable_replicas(0)->mutable_micro_batches(0)->mutable_recompute(0)->set_full_layers(1);
  ExpectViolation("(BACKWARD");
}

TEST_F(AuditTest, ScheduleThatTheOptionsExclude) {
  plan_.mutable_options()->set_schedule(v1::SCHEDULE_READY_FIRST);
  plan_.set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  ExpectViolation(
      "schedule is SCHEDULE_SPLIT_BACKWARD, which options.schedule, SCHEDULE_READY_FIRST, excludes");
}

TEST_F(AuditTest, ScheduleOfAnotherFamily) {
  plan_.mutable_options()->set_schedule(v1::SCHEDULE_READY_FIRST);
  plan_.set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  ExpectViolation("which options.schedule, SCHEDULE_READY_FIRST, excludes");
  plan_.mutable_options()->set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  plan_.set_schedule(v1::SCHEDULE_READY_FIRST);
  ExpectViolation("which options.schedule, SCHEDULE_ONE_FORWARD_ONE_BACKWARD, excludes");
}

TEST_F(AuditTest, MicroBatchesLargerThanTheOptionsSay) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_PADDING);
  job.mutable_planning()->set_micro_batch_size(3);
  Make(job);
  EXPECT_THAT(Audit(), IsEmpty());
  plan_.mutable_options()->set_micro_batch_size(2);
  ExpectViolation("replica 0, micro-batch 0: it has 3 samples, options.micro_batch_size is 2");
  job = GptJob(2, 1, v1::POLICY_CONCATENATED);
  job.mutable_planning()->set_micro_batch_size(1);
  job.mutable_planning()->set_token_cap(1100);
  Make(job);
  EXPECT_THAT(Audit(), IsEmpty());
  plan_.mutable_options()->set_token_cap(1050);
  ExpectViolation("its rows have 1100 tokens, options.token_cap is 1050 and the longest sample 1000");
}

TEST_F(AuditTest, MoreTokensThanTheOptionsSay) {
  for (const v1::Policy policy : {v1::POLICY_PACKED, v1::POLICY_TOKEN_BUDGET}) {
    v1::JobSpec job = GptJob(2, 1, policy);
    job.mutable_planning()->set_token_cap(600);
    Make(job);
    EXPECT_THAT(Audit(), IsEmpty());
    plan_.mutable_options()->set_token_cap(40);
    ExpectViolation("options.token_cap is 40");
  }
}

TEST_F(AuditTest, WhatNoJobHas) {
  const v1::Plan right = plan_;
  plan_.clear_options();
  ExpectViolation("options.policy: is not set");
  plan_ = right;
  plan_.mutable_model()->set_norm_epsilon(std::nan(""));
  ExpectViolation("model.norm_epsilon: nan");
  plan_ = right;
  plan_.mutable_model()->set_max_sequence_length(100);
  ExpectViolation("batch.samples[1]: 503 tokens; model.max_sequence_length is 100");
  plan_ = right;
  plan_.mutable_model()->set_decoder_layers(1);
  ExpectViolation("model.decoder_layers: a GPT has none");
  Make(T5Job(2, 1, v1::POLICY_DYNAMIC));
  plan_.mutable_model()->set_layers(1);
  ExpectViolation("model.layers: leave 0 for T5");
}

TEST_F(AuditTest, ProfileThatIsUnfitIsNoFaultOfThePlan) {
  job_.mutable_profile()->set_bytes_per_element(2);
  const auto violations = AuditPlan(batch_, plan_, job_.profile());
  EXPECT_EQ(violations.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(violations.status().message()), HasSubstr("job.profile.bytes_per_element: 2"));
}

TEST_F(AuditTest, SizesOfAnotherModelThanTheProfiles) {
  EXPECT_THAT(AuditModel(plan_, job_.model()), IsEmpty());
  v1::ModelSpec other = job_.model();
  other.set_vocab(65);
  other.set_heads(4);
  other.set_ffn(17);
  other.set_attention_inner(4);  // the same as left out
  const auto found = AuditModel(plan_, other);
  const auto names = [](const std::string& text) {
    return Contains(AllOf(Field(&Violation::rule, kCostsRule), Field(&Violation::message, text)));
  };
  EXPECT_THAT(found, names("model.vocab is 64, that of the profile 65"));
  EXPECT_THAT(found, names("model.heads is 2, that of the profile 4"));
  EXPECT_THAT(found, names("model.ffn is 16, that of the profile 17"));
}

// Four context and two tensor ranks where `profile` has figures for them.
class AuditOfStageGroups : public AuditTest {
 protected:
  AuditOfStageGroups() { Make(GroupJob(v1::POLICY_DYNAMIC, 4, 2)); }

  static v1::JobSpec GroupJob(v1::Policy policy, uint32_t context, uint32_t tensor) {
    v1::JobSpec job = GptJob(2, 2, policy);
    job.mutable_mesh()->set_context(context);
    job.mutable_mesh()->set_tensor(tensor);
    for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
      v1::TensorCost* cost = layer.add_tensor();
      cost->set_degree(2);
      cost->set_efficiency(0.9);
    }
    v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
    cluster->set_intra_node_collective_bytes_per_second(3e9);
    cluster->set_inter_node_collective_latency_ns(77);
    return job;
  }

  // The first one of rank 0 in which something is exchanged with other context ranks.
  v1::Instruction& GetExchange() {
    for (v1::Instruction& instruction : *plan_.mutable_programs(0)->mutable_instructions())
      if (instruction.exchange().context_ns() > 0) return instruction;
    ADD_FAILURE() << "rank 0 has no part of a divided sample";
    return Get(v1::OP_FORWARD);
  }
};

TEST_F(AuditOfStageGroups, PlansOfEveryKindPass) {
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                  v1::POLICY_TOKEN_BUDGET, v1::POLICY_DYNAMIC}) {
    for (const v1::Schedule schedule : {v1::SCHEDULE_READY_FIRST, v1::SCHEDULE_SPLIT_BACKWARD}) {
      for (const auto& [context, tensor] : {std::pair(4, 2), std::pair(2, 1), std::pair(1, 2)}) {
        v1::JobSpec job = GroupJob(policy, context, tensor);
        job.mutable_planning()->set_schedule(schedule);
        Make(job);
        for (const Violation& violation : Audit())
          ADD_FAILURE() << v1::Policy_Name(policy) << ", " << v1::Schedule_Name(schedule) << ", " << context
                        << " x " << tensor << ": " << violation.message;
      }
    }
  }
}

TEST_F(AuditOfStageGroups, WrongTimesAndBytesOfAPass) {
  v1::Instruction& pass = GetExchange();
  const v1::Instruction right = pass;
  pass.set_own_duration_ns(right.own_duration_ns() + 1);
  ExpectViolationAt(pass, "own_duration_ns is");
  pass = right;
  pass.mutable_exchange()->set_tensor_ns(right.exchange().tensor_ns() + 1);
  ExpectViolationAt(pass, "exchange.tensor_ns is");
  pass = right;
  pass.mutable_exchange()->set_context_ns(right.exchange().context_ns() + 1);
  ExpectViolationAt(pass, "exchange.context_ns is");
  pass = right;
  pass.mutable_exchange()->set_context_exposed_ns(right.exchange().context_exposed_ns() + 1);
  ExpectViolationAt(pass, "exchange.context_exposed_ns is");
  pass = right;
  pass.mutable_exchange()->set_context_sent_bytes(1);
  ExpectViolationAt(pass, "exchange.context_sent_bytes is 1");
  pass = right;
  pass.set_memory_released_bytes(right.memory_released_bytes() + 1);
  ExpectViolationAt(pass, "memory_released_bytes is");
}

TEST_F(AuditOfStageGroups, DegreeThatTheProfileLacks) {
  for (v1::LayerCost& layer : *job_.mutable_profile()->mutable_layers()) layer.clear_tensor();
  ExpectViolation("mesh.tensor: the profile has no figures of layer 'layer' for 2 tensor ranks");
}

TEST_F(AuditTest, LayoutThatThePolicyDoesNotMake) {
  plan_.mutable_options()->set_policy(v1::POLICY_CONCATENATED);
  ExpectViolation("which options.policy, POLICY_CONCATENATED, does not make");
}

TEST_F(AuditTest, TopologyThatIsNotThatOfTheOptions) {
  plan_.mutable_options()->set_layers_per_stage(0, 3);
  plan_.mutable_options()->set_layers_per_stage(1, 5);
  ExpectViolation("topology is not that of options.layers_per_stage");
}

TEST_F(AuditTest, ProfileOfAnotherVersion) {
  plan_.set_profile_version(plan_.profile_version() + 1);
  ExpectViolation("profile_version is");
}

TEST_F(AuditTest, SamplesThatAreNotThoseOfTheList) {
  std::vector<ListedSample> listed;
  for (const v1::Sample& sample : batch_.samples())
    listed.push_back({sample.sample_id(), sample.input_tokens(), sample.target_tokens()});
  EXPECT_THAT(AuditSamples(batch_, listed), IsEmpty());
  const auto expect = [&](const std::string& text) {
    EXPECT_THAT(AuditSamples(batch_, listed), Contains(AllOf(Field(&Violation::rule, kSamplesRule),
                                                             Field(&Violation::message, HasSubstr(text)))));
  };
  listed[2].target_tokens = 41;
  expect("batch.samples[2] is sample_id");
  listed[3].sample_id = 999;
  expect("expected sample_id 999 of 7 and 7 tokens");
  listed.pop_back();
  expect("the batch has 8 samples, expected 7");
}

}  // namespace
}  // namespace penstock::core
