#include "planner/cli/planning_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "planner/cli/plan_request.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What `penstock plan` would make of these flags.
v1::PlanningOptions Parse(std::vector<std::string> arguments) {
  CLI::App app;
  PlanningFlags flags;
  flags.AddTo(app);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return flags.ToOptions(v1::POLICY_DYNAMIC);
}

TEST(PlanningFlagsTest, BalancesStagesAndTakesTheBestScheduleUnlessTold) {
  const v1::PlanningOptions options = Parse({});
  EXPECT_EQ(options.stage_split(), v1::STAGE_SPLIT_AUTO);
  EXPECT_EQ(options.schedule(), v1::SCHEDULE_AUTO);
  EXPECT_TRUE(options.layers_per_stage().empty());
  EXPECT_TRUE(options.rank_of_stage().empty());
}

TEST(PlanningFlagsTest, EveryScheduleHasAWord) {
  EXPECT_EQ(Parse({"--schedule", "1f1b"}).schedule(), v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  EXPECT_EQ(Parse({"--schedule", "ready-first"}).schedule(), v1::SCHEDULE_READY_FIRST);
  EXPECT_EQ(Parse({"--schedule", "split-backward"}).schedule(), v1::SCHEDULE_SPLIT_BACKWARD);
  EXPECT_EQ(Parse({"--schedule", "interleaved"}).schedule(), v1::SCHEDULE_INTERLEAVED);
  EXPECT_EQ(ScheduleName(v1::SCHEDULE_SPLIT_BACKWARD), "split-backward");
}

TEST(PlanningFlagsTest, StagesAndTheirRanksAreLists) {
  const v1::PlanningOptions options =
      Parse({"--stage-split", "even", "--layers-per-stage", "7,9,9,7", "--rank-of-stage", "0,1,1,0"});
  EXPECT_EQ(options.stage_split(), v1::STAGE_SPLIT_EVEN);
  EXPECT_THAT(options.layers_per_stage(), ElementsAre(7, 9, 9, 7));
  EXPECT_THAT(options.rank_of_stage(), ElementsAre(0, 1, 1, 0));
}

TEST(PlanningFlagsTest, WeightsOfSharesAreAListOrToBeChosen) {
  EXPECT_TRUE(Parse({}).share_weights().empty());
  EXPECT_THAT(Parse({"--share-weights", "3,1,0,2"}).share_weights(), ElementsAre(3, 1, 0, 2));
  EXPECT_THAT(Parse({"--share-weights", "1048576"}).share_weights(), ElementsAre(1048576));
  CLI::App app;
  PlanningFlags flags;
  flags.AddTo(app);
  app.parse(std::vector<std::string>{"auto", "--share-weights"});
  EXPECT_TRUE(flags.share_weights.choose);
  EXPECT_TRUE(flags.ToOptions(v1::POLICY_DYNAMIC).share_weights().empty());
}

TEST(PlanningFlagsTest, WeightsOfSharesThatAreNoneAreRefusedWithWhatToGive) {
  for (const char* text : {"", "3,,1", "-1,2", "1.5", "1048577", "3,auto", "many"}) {
    try {
      Parse({"--share-weights", text});
      ADD_FAILURE() << text;
    } catch (const CLI::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--share-weights")) << text;
      EXPECT_THAT(error.what(), HasSubstr("no whole number from 0 to 1048576")) << text;
    }
  }
}

TEST(PlanningFlagsTest, BucketsOfGradientsAreInMebibytes) {
  EXPECT_EQ(Parse({}).gradient_bucket_bytes(), 0U);
  EXPECT_EQ(Parse({"--gradient-bucket-mib", "16"}).gradient_bucket_bytes(), 16U << 20);
  EXPECT_EQ(Parse({"--gradient-bucket-mib", "0.0000001"}).gradient_bucket_bytes(), 1U);
  EXPECT_EQ(Parse({"--gradient-bucket-mib", "1048576"}).gradient_bucket_bytes(), uint64_t{1} << 40);
  EXPECT_EQ(GradientBucketMib(5U << 19), "2.5");
  EXPECT_THROW(Parse({"--gradient-bucket-mib", "-1"}), CLI::Error);
  EXPECT_THROW(Parse({"--gradient-bucket-mib", "1048577"}), CLI::Error);
}

TEST(PlanningFlagsTest, MemoryIsExactToTheByte) {
  EXPECT_EQ(Parse({"--memory-mb", "12345.678901"}).memory_limit_bytes(), 12'345'678'901);
}

TEST(PlanningFlagsTest, MemoryOfSingleRanksIsReadByRank) {
  EXPECT_TRUE(Parse({}).rank_memory_limits().empty());
  EXPECT_TRUE(Parse({"--rank-memory-mb", "none"}).rank_memory_limits().empty());
  const v1::PlanningOptions options =
      Parse({"--memory-mb", "80000", "--rank-memory-mb", "4-5:141000,3:40000.5"});
  EXPECT_EQ(options.memory_limit_bytes(), 80'000'000'000);
  std::vector<std::pair<uint32_t, int64_t>> limits;
  for (const v1::RankMemoryLimit& limit : options.rank_memory_limits())
    limits.emplace_back(limit.rank(), limit.bytes());
  EXPECT_THAT(limits, ElementsAre(std::pair(3, 40'000'500'000), std::pair(4, 141'000'000'000),
                                  std::pair(5, 141'000'000'000)));
}

TEST(PlanningFlagsTest, MemoryOfRanksThatIsNoneIsRefusedWithWhatToGive) {
  for (const char* text :
       {"", "3", "3:", ":5", "3:5,", "-1:5", "3:-5", "3:0", "3:inf", "5-3:1", "1-2-3:1", "1:2,0-4:3"}) {
    try {
      Parse({"--rank-memory-mb", text});
      ADD_FAILURE() << text;
    } catch (const CLI::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--rank-memory-mb")) << text;
      EXPECT_THAT(error.what(), HasSubstr("give RANK:MB or FIRST-LAST:MB")) << text;
    }
  }
}

TEST(NameFlagsTest, SaysTheFlagForEveryFieldOfTheJob) {
  const auto named = [](const std::string& text) {
    return std::string(NameFlags(absl::InvalidArgumentError(text)).message());
  };
  EXPECT_EQ(named("job.planning.rank_of_stage: needs job.planning.layers_per_stage"),
            "--rank-of-stage: needs --layers-per-stage");
  EXPECT_EQ(named("job.mesh.pipeline 6, job.planning.recompute full, a maximum length of 1024"),
            "--pp 6, --recompute full, --max-length 1024");
  EXPECT_EQ(named("job.planning.stage_split: is unknown"), "--stage-split: is unknown");
  EXPECT_EQ(named("job.planning.share_weights: 3 of them"), "--share-weights: 3 of them");
  EXPECT_EQ(named("job.planning.rank_memory_limits: rank 4"), "--rank-memory-mb: rank 4");
  EXPECT_EQ(named("job.planning.gradient_bucket_bytes: 7"), "--gradient-bucket-mib: 7");
}

TEST(NameFlagsTest, MemoryBecomesMillionsOfBytes) {
  const auto named = [](const std::string& text) {
    return std::string(NameFlags(absl::InvalidArgumentError(text)).message());
  };
  EXPECT_EQ(named("try job.planning.memory_limit_bytes 12345678901 or more"),
            "try --memory-mb 12345.678901 or more");
  EXPECT_EQ(named("job.planning.memory_limit_bytes 80000000000"), "--memory-mb 80000");
  EXPECT_EQ(named("job.planning.memory_limit_bytes: is 0"), "--memory-mb: is 0");
}

v1::JobSpec JobOf(v1::Architecture architecture, uint32_t longest) {
  v1::JobSpec job;
  job.mutable_model()->set_architecture(architecture);
  job.mutable_model()->set_max_sequence_length(longest);
  return job;
}

v1::Batch BatchOf(int samples) {
  v1::Batch batch;
  for (int i = 0; i < samples; ++i) {
    batch.add_samples()->set_input_tokens(i);
    batch.mutable_samples(i)->set_target_tokens(1);
  }
  return batch;
}

TEST(SetTypicalSamplesTest, TakesAllSamplesOfAllBatchesWhenTheyAreFew) {
  v1::JobSpec job = JobOf(v1::ARCHITECTURE_GPT, 100);
  SetTypicalSamples({BatchOf(3), BatchOf(2)}, &job);
  ASSERT_EQ(job.planning().typical_samples_size(), 5);
  EXPECT_EQ(job.planning().typical_samples(2).input_tokens(), 2u);
  EXPECT_EQ(job.planning().typical_samples(2).target_tokens(), 1u);
  EXPECT_EQ(job.planning().typical_samples(3).input_tokens(), 0u);
}

TEST(SetTypicalSamplesTest, TakesEvenlySpacedOnesOfMany) {
  v1::JobSpec job = JobOf(v1::ARCHITECTURE_GPT, 100'000);
  SetTypicalSamples({BatchOf(8192)}, &job);
  ASSERT_EQ(job.planning().typical_samples_size(), 4096);
  for (int i = 0; i < 4096; ++i) {
    EXPECT_EQ(job.planning().typical_samples(i).input_tokens(), static_cast<uint32_t>(2 * i));
  }
}

TEST(SetTypicalSamplesTest, LeavesOutWhatTheModelCannotTake) {
  v1::JobSpec gpt = JobOf(v1::ARCHITECTURE_GPT, 4), t5 = JobOf(v1::ARCHITECTURE_T5, 4);
  SetTypicalSamples({BatchOf(10)}, &gpt);
  SetTypicalSamples({BatchOf(10)}, &t5);
  EXPECT_EQ(gpt.planning().typical_samples_size(), 4);  // 0..3 + 1 tokens
  EXPECT_EQ(t5.planning().typical_samples_size(), 5);   // 0..4 and 1 tokens
}

}  // namespace
}  // namespace penstock::cli
