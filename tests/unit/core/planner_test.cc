// Whole plans, from the job and the batch to the contract's message.
#include "planner/core/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

using ::testing::HasSubstr;

v1::Plan MakePlan(const v1::JobSpec& job, const v1::Batch& batch) {
  auto planner = Planner::Create(job);
  EXPECT_TRUE(planner.ok()) << planner.status();
  if (!planner.ok()) return {};
  auto plan = (*planner)->MakePlan(batch);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : v1::Plan();
}

void ExpectValid(const v1::Batch& batch, const v1::Plan& plan) {
  for (const Violation& violation : CheckPlan(batch, plan)) {
    ADD_FAILURE() << "rule " << violation.rule << ", rank " << violation.rank << ", instruction "
                  << violation.instruction << ": " << violation.message;
  }
}

v1::Batch MixedBatch() {
  return MakeBatch(
      {{10, 20}, {500, 3}, {0, 40}, {7, 7}, {900, 100}, {30, 1}, {2, 60}, {64, 64}, {1, 1}, {300, 10}});
}

TEST(PlannerTest, PlansOfEveryPolicyPassTheChecker) {
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                  v1::POLICY_TOKEN_BUDGET, v1::POLICY_DYNAMIC}) {
    for (const auto& [pipeline, data] :
         {std::pair(1, 1), std::pair(2, 2), std::pair(4, 1), std::pair(4, 2)}) {
      ExpectValid(MixedBatch(), MakePlan(GptJob(pipeline, data, policy), MixedBatch()));
      ExpectValid(MixedBatch(), MakePlan(T5Job(pipeline, data, policy), MixedBatch()));
    }
  }
}

TEST(PlannerTest, TheSameJobAndBatchGiveTheSameBytes) {
  const v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  const v1::Plan first = MakePlan(job, MixedBatch());
  const v1::Plan second = MakePlan(job, MixedBatch());
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(first.content_hash().size(), 32);
  EXPECT_EQ(first.content_hash(), Planner::ContentHash(first));
}

void AddSlowLink(v1::JobSpec* job, uint32_t from, uint32_t to, double factor) {
  v1::SlowLink* const slow = job->mutable_profile()->add_slow_links();
  slow->set_from(from);
  slow->set_to(to);
  slow->set_factor(factor);
}

void AddSlowRank(v1::JobSpec* job, uint32_t rank, double factor) {
  v1::SlowRank* const slow = job->mutable_profile()->add_slow_ranks();
  slow->set_rank(rank);
  slow->set_factor(factor);
}

void AddRankMemory(v1::JobSpec* job, uint32_t rank, int64_t bytes) {
  v1::RankMemoryLimit* const limit = job->mutable_planning()->add_rank_memory_limits();
  limit->set_rank(rank);
  limit->set_bytes(bytes);
}

// Tokens of the replica's samples.
int64_t TokensOf(const v1::Batch& batch, const v1::Replica& replica) {
  int64_t tokens = 0;
  for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
    for (const uint32_t sample : micro_batch.samples())
      tokens += batch.samples(static_cast<int>(sample)).input_tokens() +
                batch.samples(static_cast<int>(sample)).target_tokens();
  }
  return tokens;
}

// With one of two replicas at half speed, the other one does two thirds of the work.
TEST(PlannerTest, ASlowRankGetsLessToDoInEveryPolicy) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 60; ++i) lengths.emplace_back(10, 40 + i % 7);
  const v1::Batch batch = MakeBatch(lengths);
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                  v1::POLICY_TOKEN_BUDGET, v1::POLICY_DYNAMIC}) {
    v1::JobSpec job = GptJob(2, 2, policy);
    job.mutable_planning()->set_micro_batch_size(policy == v1::POLICY_PADDING ? 2 : 0);
    const int64_t usual = MakePlan(job, batch).predicted().makespan_ns();
    AddSlowRank(&job, 3, 2);
    const v1::Plan plan = MakePlan(job, batch);
    ExpectValid(batch, plan);
    const auto fast = static_cast<double>(TokensOf(batch, plan.replicas(0)));
    const auto slow = static_cast<double>(TokensOf(batch, plan.replicas(1)));
    EXPECT_GT(fast / slow, 1.6) << v1::Policy_Name(policy);
    EXPECT_LT(fast / slow, 2.6) << v1::Policy_Name(policy);
    EXPECT_LT(static_cast<double>(plan.predicted().makespan_ns()), 1.6 * static_cast<double>(usual))
        << v1::Policy_Name(policy);
  }
}

TEST(PlannerTest, EvenTheSlowestReplicaGetsASample) {
  v1::JobSpec job = GptJob(1, 2, v1::POLICY_DYNAMIC);
  AddSlowRank(&job, 0, 100);
  const v1::Batch batch = MakeBatch({{10, 20}, {7, 7}, {30, 1}});
  const v1::Plan plan = MakePlan(job, batch);
  ExpectValid(batch, plan);
  EXPECT_EQ(TokensOf(batch, plan.replicas(0)), 14) << "the shortest";
}

TEST(PlannerTest, APlanCarriesTheOptionsThatItsBoundDependsOn) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_AUTO);
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_FULL);
  job.mutable_planning()->add_typical_samples()->set_target_tokens(100);
  const v1::Plan plan = MakePlan(job, MixedBatch());
  v1::PlanningOptions options = plan.options();
  ASSERT_GE(options.layers_per_stage_size(), 2);
  EXPECT_TRUE(std::equal(options.layers_per_stage().begin(), options.layers_per_stage().end(),
                         plan.layers_per_stage().begin(), plan.layers_per_stage().end()));
  ASSERT_EQ(options.rank_of_stage_size(), options.layers_per_stage_size());
  for (const v1::Program& program : plan.programs()) {
    for (const uint32_t stage : program.stages()) {
      EXPECT_EQ(options.rank_of_stage(static_cast<int>(stage)), program.rank());
    }
  }
  options.clear_layers_per_stage();
  options.clear_rank_of_stage();
  job.mutable_planning()->clear_typical_samples();
  EXPECT_EQ(options.SerializeAsString(), job.planning().SerializeAsString());
}

TEST(PlannerTest, TheContentHashLeavesPlanningTimeOut) {
  v1::Plan plan = MakePlan(GptJob(2, 1, v1::POLICY_DYNAMIC), MixedBatch());
  const std::string hash = plan.content_hash();
  plan.set_planning_time_ns(5);
  EXPECT_EQ(Planner::ContentHash(plan), hash);
  plan.set_iteration(8);
  EXPECT_NE(Planner::ContentHash(plan), hash);
}

// Before anything is computed or allocated in proportion: these would take minutes or all memory.
TEST(PlannerTest, SizesBeyondTheLimitsAreRefusedWithFieldValueAndLimit) {
  const auto refusal = [](const v1::JobSpec& job) {
    const absl::Status status = Planner::Create(job).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const auto gpt = [](const auto& change) {
    v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
    change(job);
    return job;
  };
  EXPECT_EQ(refusal(gpt([](auto& job) { job.mutable_model()->set_layers(4097); })),
            "job.model.layers: 4097; use at most 4096");
  v1::JobSpec t5 = T5Job(2, 1, v1::POLICY_DYNAMIC);
  t5.mutable_model()->set_decoder_layers(4'000'000'000);
  EXPECT_EQ(refusal(t5), "job.model.decoder_layers: 4000000000; use at most 4096");
  t5.mutable_model()->set_encoder_layers(3000);
  t5.mutable_model()->set_decoder_layers(3000);
  EXPECT_EQ(refusal(t5), "job.model.encoder_layers and decoder_layers: 6000; use at most 4096");
  EXPECT_EQ(refusal(gpt([](auto& job) { job.mutable_mesh()->set_pipeline(1025); })),
            "job.mesh.pipeline: 1025; use at most 1024");
  // Their product is 0 in 32 bits.
  EXPECT_EQ(refusal(gpt([](auto& job) {
              job.mutable_mesh()->set_pipeline(1024);
              job.mutable_mesh()->set_data(4'194'304);
            })),
            "job.mesh.data: 4194304; use at most 65536");
  EXPECT_EQ(refusal(gpt([](auto& job) {
              job.mutable_mesh()->set_pipeline(1024);
              job.mutable_mesh()->set_data(65);
            })),
            "job.mesh: 1024 x 65 are 66560 ranks; use at most 65536");
  EXPECT_EQ(refusal(gpt([](auto& job) {
              for (int i = 0; i < 2049; ++i) job.mutable_planning()->add_layers_per_stage(1);
            })),
            "job.planning.layers_per_stage: 2049; use at most 2048");
  EXPECT_EQ(refusal(gpt([](auto& job) {
              for (int i = 0; i < 65'537; ++i) job.mutable_planning()->add_typical_samples();
            })),
            "job.planning.typical_samples: 65537; use at most 65536");
  EXPECT_EQ(refusal(gpt([](auto& job) { job.mutable_planning()->set_typical_batch_size(1'048'577); })),
            "job.planning.typical_batch_size: 1048577; use at most 1048576");
}

TEST(PlannerTest, BatchesBeyondTheLimitsAreRefusedWithValueAndLimit) {
  v1::Batch batch;
  for (int i = 0; i < 1'048'577; ++i) batch.add_samples()->set_target_tokens(1);
  const auto few = Planner::Create(GptJob(1, 1, v1::POLICY_DYNAMIC));
  ASSERT_TRUE(few.ok());
  EXPECT_EQ((*few)->MakePlan(batch).status().message(), "batch.samples: 1048577; use at most 1048576");
  v1::JobSpec job = GptJob(64, 1, v1::POLICY_DYNAMIC);
  job.mutable_model()->set_layers(64);
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  const auto many = Planner::Create(job);
  ASSERT_TRUE(many.ok()) << many.status();
  batch.mutable_samples()->DeleteSubrange(131'073, batch.samples_size() - 131'073);
  EXPECT_EQ((*many)->ValidateBatch(batch).message(),
            "batch.samples: 131073 on 64 stages; use at most 131072 on so many stages");
}

TEST(PlannerTest, BusyTimeAndBubblesAddUpToTheMakespan) {
  const v1::Plan plan = MakePlan(GptJob(4, 2, v1::POLICY_DYNAMIC), MixedBatch());
  for (const v1::RankPrediction& rank : plan.predicted().ranks()) {
    const v1::Bubble& bubble = rank.bubble();
    EXPECT_EQ(rank.busy_ns() + bubble.fill_ns() + bubble.drain_ns() + bubble.dependency_ns() +
                  bubble.transfer_ns() + bubble.imbalance_ns() + bubble.memory_ns(),
              plan.predicted().makespan_ns());
    for (const int64_t part : {bubble.fill_ns(), bubble.drain_ns(), bubble.dependency_ns(),
                               bubble.transfer_ns(), bubble.imbalance_ns(), bubble.memory_ns()}) {
      EXPECT_GE(part, 0);
    }
  }
  EXPECT_LE(plan.lower_bound_ns(), plan.predicted().makespan_ns());
  EXPECT_GT(plan.lower_bound_ns(), plan.predicted().makespan_ns() / 3);
}

TEST(PlannerTest, ABatchWithoutSamplesIsRefused) {
  auto planner = Planner::Create(GptJob(2, 1, v1::POLICY_DYNAMIC));
  ASSERT_TRUE(planner.ok());
  const absl::Status status = (*planner)->ValidateBatch(MakeBatch({}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("batch.samples"));
}

TEST(PlannerTest, ASampleWithoutTokensOrAboveTheMaximumIsNamed) {
  auto planner = Planner::Create(GptJob(2, 1, v1::POLICY_DYNAMIC));
  ASSERT_TRUE(planner.ok());
  EXPECT_THAT(std::string((*planner)->ValidateBatch(MakeBatch({{1, 1}, {0, 0}})).message()),
              HasSubstr("batch.samples[1]: has no tokens"));
  EXPECT_THAT(std::string((*planner)->ValidateBatch(MakeBatch({{4000, 97}})).message()),
              HasSubstr("batch.samples[0]: 4097 tokens"));
}

TEST(PlannerTest, ASampleThatNeverFitsIsNamedWithTheStageAndTheBytes) {
  v1::JobSpec job = GptJob(2, 1, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_memory_limit_bytes(100'000);
  auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const absl::Status status = (*planner)->ValidateBatch(MakeBatch({{10, 10}, {1000, 1000}}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("batch.samples[1]: 2000 tokens do not fit on stage 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("limit 100000"));
}

struct BadJob {
  const char* name;
  void (*damage)(v1::JobSpec*);
  absl::StatusCode code;
  const char* field;
};

class PlannerJobTest : public ::testing::TestWithParam<BadJob> {};

TEST_P(PlannerJobTest, AWrongFieldIsNamed) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  GetParam().damage(&job);
  const auto planner = Planner::Create(job);
  EXPECT_EQ(planner.status().code(), GetParam().code);
  EXPECT_THAT(std::string(planner.status().message()), HasSubstr(GetParam().field));
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    Fields, PlannerJobTest,
    ::testing::Values(
        BadJob{"Id", [](v1::JobSpec* job) { job->set_job_id("a b"); }, kInvalid, "job.job_id"},
        BadJob{"Layers", [](v1::JobSpec* job) { job->mutable_model()->set_layers(0); }, kInvalid,
               "job.model.layers"},
        BadJob{"Dtype", [](v1::JobSpec* job) { job->mutable_model()->clear_dtype(); }, kInvalid,
               "job.model.dtype"},
        BadJob{"Architecture", [](v1::JobSpec* job) { job->mutable_model()->clear_architecture(); }, kInvalid,
               "job.model.architecture"},
        BadJob{"Pipeline", [](v1::JobSpec* job) { job->mutable_mesh()->set_pipeline(0); }, kInvalid,
               "job.mesh.pipeline: 0; use at least 1"},
        BadJob{"DeepPipeline", [](v1::JobSpec* job) { job->mutable_mesh()->set_pipeline(9); }, kInvalid,
               "9 stages for 8 layers"},
        BadJob{"LearningRate",
               [](v1::JobSpec* job) { job->mutable_training()->mutable_learning_rate()->set_peak(-1); },
               kInvalid, "job.training.learning_rate.peak"},
        BadJob{"Data", [](v1::JobSpec* job) { job->mutable_mesh()->set_data(0); }, kInvalid, "job.mesh.data"},
        BadJob{"Tensor", [](v1::JobSpec* job) { job->mutable_mesh()->set_tensor(3); }, kInvalid,
               "job.mesh.tensor: 3 tensor ranks cannot divide 2 heads, 2 key-value heads and a feed-forward "
               "width of "
               "16; use 2"},
        BadJob{"TensorOfProfile", [](v1::JobSpec* job) { job->mutable_mesh()->set_tensor(2); }, kInvalid,
               "job.mesh.tensor: the profile has no figures of layer 'layer' for 2 tensor ranks"},
        BadJob{"Context", [](v1::JobSpec* job) { job->mutable_mesh()->set_context(3); }, kInvalid,
               "job.mesh.context: 3 is no power of two; use 2 or 4"},
        BadJob{"Policy", [](v1::JobSpec* job) { job->mutable_planning()->clear_policy(); }, kInvalid,
               "job.planning.policy"},
        BadJob{"TypicalSample",
               [](v1::JobSpec* job) {
                 job->mutable_planning()->add_typical_samples()->set_input_tokens(4096);
                 job->mutable_planning()->add_typical_samples()->set_input_tokens(4097);
               },
               kInvalid, "job.planning.typical_samples[1]: 4097 tokens"},
        BadJob{"EmptyTypicalSample", [](v1::JobSpec* job) { job->mutable_planning()->add_typical_samples(); },
               kInvalid, "job.planning.typical_samples[0]: has no tokens"},
        BadJob{"StageSplit",
               [](v1::JobSpec* job) {
                 job->mutable_planning()->set_stage_split(static_cast<v1::StageSplit>(77));
               },
               kInvalid, "job.planning.stage_split"},
        BadJob{"Split", [](v1::JobSpec* job) { job->mutable_planning()->add_layers_per_stage(8); }, kInvalid,
               "job.planning.layers_per_stage"},
        BadJob{"SplitSum",
               [](v1::JobSpec* job) {
                 job->mutable_planning()->add_layers_per_stage(4);
                 job->mutable_planning()->add_layers_per_stage(5);
               },
               kInvalid, "their sum is 9"},
        BadJob{"Selective",
               [](v1::JobSpec* job) { job->mutable_planning()->set_recompute(v1::RECOMPUTE_SELECTIVE); },
               kInvalid, "job.planning.recompute"},
        BadJob{"Memory", [](v1::JobSpec* job) { job->mutable_planning()->set_memory_limit_bytes(1000); },
               kInvalid, "optimizer state of stage 0"},
        BadJob{"NoMemory", [](v1::JobSpec* job) { job->mutable_planning()->clear_memory_limit_bytes(); },
               kInvalid, "job.planning.memory_limit_bytes"},
        BadJob{"RankMemoryOfNobody", [](v1::JobSpec* job) { AddRankMemory(job, 4, 2); }, kInvalid,
               "job.planning.rank_memory_limits: rank 4; job.mesh has 4 ranks"},
        BadJob{"RankMemoryTwice",
               [](v1::JobSpec* job) {
                 AddRankMemory(job, 1, 1 << 20);
                 AddRankMemory(job, 1, 1 << 20);
               },
               kInvalid, "job.planning.rank_memory_limits[1].rank: 1; ranks must ascend"},
        BadJob{"RankWithoutMemory", [](v1::JobSpec* job) { AddRankMemory(job, 1, 0); }, kInvalid,
               "job.planning.rank_memory_limits[0].bytes: 0; use at least 1"},
        BadJob{"RankWithTooMuchMemory",
               [](v1::JobSpec* job) { AddRankMemory(job, 1, (int64_t{1} << 50) + 1); }, kInvalid,
               "job.planning.rank_memory_limits[0].bytes: 1125899906842625; use at most"},
        BadJob{"Element", [](v1::JobSpec* job) { job->mutable_profile()->set_bytes_per_element(2); },
               kInvalid, "job.profile.bytes_per_element"},
        BadJob{"NoHead", [](v1::JobSpec* job) { job->mutable_profile()->mutable_layers()->RemoveLast(); },
               kInvalid, "job.profile.layers: 'head'"},
        BadJob{"SlowRankThatIsFast", [](v1::JobSpec* job) { AddSlowRank(job, 1, 1); }, kInvalid,
               "job.profile.slow_ranks[0].factor: 1; above 1, at most 100"},
        BadJob{"SlowRankThatStands", [](v1::JobSpec* job) { AddSlowRank(job, 1, std::nan("")); }, kInvalid,
               "job.profile.slow_ranks[0].factor: nan"},
        BadJob{"SlowRankTwice",
               [](v1::JobSpec* job) {
                 AddSlowRank(job, 1, 2);
                 AddSlowRank(job, 1, 3);
               },
               kInvalid, "job.profile.slow_ranks[1].rank: 1; ranks must ascend"},
        BadJob{"SlowRankOfNobody", [](v1::JobSpec* job) { AddSlowRank(job, 4, 2); }, kInvalid,
               "job.profile.slow_ranks: rank 4; job.mesh has 4 ranks"},
        BadJob{"SlowLinkThatIsFast", [](v1::JobSpec* job) { AddSlowLink(job, 1, 2, 1); }, kInvalid,
               "job.profile.slow_links[0].factor: 1; above 1, at most 10000"},
        BadJob{"SlowLinkThatStands", [](v1::JobSpec* job) { AddSlowLink(job, 1, 2, std::nan("")); }, kInvalid,
               "job.profile.slow_links[0].factor: nan"},
        BadJob{"SlowLinkToItself", [](v1::JobSpec* job) { AddSlowLink(job, 1, 1, 2); }, kInvalid,
               "job.profile.slow_links[0].to: 1; another rank than `from`"},
        BadJob{"SlowLinkTwice",
               [](v1::JobSpec* job) {
                 AddSlowLink(job, 1, 2, 2);
                 AddSlowLink(job, 1, 2, 3);
               },
               kInvalid, "job.profile.slow_links[1].from: 1 to 2; links must ascend"},
        BadJob{"SlowLinkOfNobody", [](v1::JobSpec* job) { AddSlowLink(job, 1, 4, 2); }, kInvalid,
               "job.profile.slow_links: rank 4; job.mesh has 4 ranks"},
        BadJob{"NoiseInPercent", [](v1::JobSpec* job) { job->mutable_profile()->set_pass_noise(5); },
               kInvalid, "job.profile.pass_noise: 5; more than 1: is it in parts of a pass"},
        BadJob{"AllIsWaiting", [](v1::JobSpec* job) { job->mutable_profile()->set_waiting_share(1); },
               kInvalid, "job.profile.waiting_share: 1; nothing would be left"},
        BadJob{"NoiseBelowNone", [](v1::JobSpec* job) { job->mutable_profile()->set_pass_noise(-0.1); },
               kInvalid, "job.profile.pass_noise: -0.1"},
        BadJob{
            "BackwardRatio",
            [](v1::JobSpec* job) { job->mutable_profile()->mutable_layers(0)->clear_backward_ratio_none(); },
            kInvalid, "job.profile.layers[0].backward_ratio_none"},
        BadJob{
            "Bandwidth",
            [](v1::JobSpec*
                   job) { job->mutable_profile()->mutable_cluster()->clear_intra_node_bytes_per_second(); },
            kInvalid, "job.profile.cluster.intra_node_bytes_per_second"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace penstock::core
