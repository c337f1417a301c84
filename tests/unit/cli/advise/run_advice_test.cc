// Advice for a run that there is: what it does now, what is faster, what each change brings.
#include "planner/cli/advise/run_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "planner/cli/advise/measured_run.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/advise/run_advice_report.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Long and short samples on four ranks, padded to the longest of a micro-batch: easy to do better.
MeasuredRun PaddedRun() {
  MeasuredRun run = {.job = core::GptJob(2, 2, v1::POLICY_PADDING), .fitted = true};
  run.job.set_job_id("mix");
  run.batches = {
      core::MakeBatch({{10, 20}, {500, 3}, {0, 40}, {7, 7}, {900, 100}, {30, 1}, {2, 60}, {64, 64}}),
      core::MakeBatch({{300, 20}, {50, 3}, {0, 400}, {70, 7}, {90, 100}, {30, 1}, {2, 60}, {64, 640}})};
  run.iterations = {{.iteration = 7, .planned_ns = 90'000'000, .measured_ns = 100'000'000},
                    {.iteration = 8, .planned_ns = 110'000'000, .measured_ns = 120'000'000}};
  return run;
}

TEST(RunAdviceTest, FindsFasterWaysWithAsManyRanks) {
  const auto advice = AdviseRun(PaddedRun(), {.ways = 3});
  ASSERT_TRUE(advice.ok()) << advice.status();
  EXPECT_EQ(advice->present.policy, v1::POLICY_PADDING);
  ASSERT_FALSE(advice->others.empty());
  EXPECT_LE(advice->others.size(), 3U);
  EXPECT_LT(advice->others.front().planned_ms, advice->planned_ms);
  EXPECT_TRUE(std::ranges::is_sorted(advice->others, {}, &OtherWay::planned_ms));
  for (const OtherWay& other : advice->others) {
    EXPECT_EQ(other.way.pipeline * other.way.data * other.way.tensor * other.way.context, 4U);
    EXPECT_FALSE(IsSameWay(other.way, advice->present));
  }
}

const LeverValue* LeverOf(const RunAdvice& advice, const std::string& name) {
  const auto found =
      std::ranges::find_if(advice.levers, [&](const LeverValue& value) { return value.lever.name == name; });
  return found == advice.levers.end() ? nullptr : &*found;
}

TEST(RunAdviceTest, ALongerLookAheadSavesWhatRanksWaitForPlans) {
  MeasuredRun run = PaddedRun();
  run.job.set_look_ahead_window(4);
  for (IterationTimes& iteration : run.iterations) iteration.waited_ns = 2'000;
  const auto advice = AdviseRun(run, {.ways = 1});
  ASSERT_TRUE(advice.ok()) << advice.status();
  const LeverValue* const lever = LeverOf(*advice, "look-ahead");
  ASSERT_NE(lever, nullptr);
  EXPECT_EQ(lever->lever.now, "4");
  EXPECT_EQ(lever->lever.flags, "--look-ahead 8");
  EXPECT_NEAR(advice->planned_ms - lever->planned_ms, 0.002, 1e-9);
}

TEST(RunAdviceTest, OtherThreadsAreWorthWhatTheirProfileSays) {
  const MeasuredRun run = PaddedRun();
  ThreadProfile twice = {.threads = 2, .profile = run.job.profile()};
  for (v1::LayerCost& layer : *twice.profile.mutable_layers()) {
    layer.mutable_forward()->set_target_token_ns(layer.forward().target_token_ns() / 2);
    layer.mutable_forward()->set_target_square_ns(layer.forward().target_square_ns() / 2);
    layer.mutable_forward()->set_fixed_ns(layer.forward().fixed_ns() / 2);
  }
  const auto advice =
      AdviseRun(run, {.ways = 1, .thread_profiles = {{.threads = 1, .profile = run.job.profile()}, twice}});
  ASSERT_TRUE(advice.ok()) << advice.status();
  std::set<std::string> flags;
  for (const LeverValue& value : advice->levers) {
    if (value.lever.name != "threads a rank") continue;
    flags.insert(value.lever.flags);
    const double share = value.planned_ms / advice->planned_ms;
    EXPECT_NEAR(share, value.lever.instead == "2" ? 0.5 : 1, 0.1);
  }
  EXPECT_THAT(flags, testing::ElementsAre("--threads 1", "--threads 2"));
}

TEST(RunAdviceTest, AThreadProfileOfAnotherFormIsRefused) {
  EXPECT_THAT(ReadThreadProfile("profile.json").status().message(),
              HasSubstr("--threads-profile 'profile.json'"));
  EXPECT_THAT(ReadThreadProfile("0:profile.json").status().message(), HasSubstr("THREADS:FILE"));
}

TEST(RunAdviceTest, RecomputeThatMemoryDoesNotAskForIsLeftOut) {
  MeasuredRun run = PaddedRun();
  run.job.mutable_planning()->set_policy(v1::POLICY_DYNAMIC);
  run.job.mutable_planning()->set_recompute(v1::RECOMPUTE_FULL);
  const auto advice = AdviseRun(run, {.ways = 9, .levers = false});
  ASSERT_TRUE(advice.ok()) << advice.status();
  ASSERT_FALSE(advice->others.empty());
  EXPECT_LT(advice->others.front().planned_ms, 0.9 * advice->planned_ms);
  for (const OtherWay& other : advice->others) EXPECT_THAT(other.flags, HasSubstr("--recompute auto"));
}

TEST(RunAdviceTest, SaysWhatEachChangeAloneBrings) {
  const MeasuredRun run = PaddedRun();
  const auto advice = AdviseRun(run, {.ways = 1});
  ASSERT_TRUE(advice.ok()) << advice.status();
  std::set<std::string> names;
  for (const LeverValue& value : advice->levers) {
    names.insert(value.lever.name);
    EXPECT_NE(value.lever.now, value.lever.instead);
    if (!value.feasible) continue;
    const auto planned = PlannedNs(value.lever.job, run.batches);
    ASSERT_TRUE(planned.ok()) << planned.status();
    EXPECT_NEAR(value.planned_ms, static_cast<double>(*planned) / 2e6, 1e-6);
    if (!value.lever.before.has_value()) {
      EXPECT_EQ(value.before_ms, advice->planned_ms);
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"mesh", "policy", "schedule", "stage split", "recompute",
                                          "divided optimizer state", "planning effort", "look-ahead"}));
}

// Four layers of 32 MB on each of two stages, summed over a link of 1e9 bytes a second.
MeasuredRun RunWithLargeLayers() {
  MeasuredRun run = PaddedRun();
  run.job.mutable_profile()->mutable_layers(0)->set_parameter_bytes(32e6);
  run.job.mutable_profile()->mutable_cluster()->set_exchange_overlap(1);
  return run;
}

TEST(RunAdviceTest, OtherBucketsAreWorthWhatTheirPlansSay) {
  MeasuredRun run = RunWithLargeLayers();
  const auto advice = AdviseRun(run, {.ways = 1});
  ASSERT_TRUE(advice.ok()) << advice.status();
  run.job.mutable_planning()->set_gradient_bucket_bytes(4 << 20);
  const auto before = PlannedNs(run.job, run.batches);
  std::set<std::string> flags;
  for (const LeverValue& value : advice->levers) {
    if (value.lever.name != "gradient buckets") continue;
    flags.insert(value.lever.flags);
    EXPECT_EQ(value.lever.now, "4 MiB");
    EXPECT_NEAR(value.before_ms, static_cast<double>(*before) / 2e6, 1e-6) << "with buckets, as workers have";
    EXPECT_LT(value.before_ms, advice->planned_ms) << "which that is planned without";
    if (value.lever.instead == "1 MiB" || value.lever.instead == "16 MiB") {
      EXPECT_EQ(value.saved_ms(), 0) << "a bucket has a layer at least";
    } else {
      EXPECT_LT(value.saved_ms(), 0);
    }
  }
  EXPECT_EQ(flags, (std::set<std::string>{"--gradient-bucket-mib 1", "--gradient-bucket-mib 16",
                                          "--gradient-bucket-mib 64", "--gradient-bucket-mib 1048576"}));
  EXPECT_THAT(RunAdviceText(run, *advice, ""), HasSubstr("gradient buckets"));
}

TEST(RunAdviceTest, BucketsThatAreNamedAreComparedAsTheyAre) {
  MeasuredRun run = RunWithLargeLayers();
  run.job.mutable_planning()->set_gradient_bucket_bytes(64 << 20);
  const auto advice = AdviseRun(run, {.ways = 1});
  ASSERT_TRUE(advice.ok()) << advice.status();
  const LeverValue* const lever = LeverOf(*advice, "gradient buckets");
  ASSERT_NE(lever, nullptr);
  EXPECT_EQ(lever->lever.now, "64 MiB");
  EXPECT_EQ(lever->before_ms, advice->planned_ms);
  EXPECT_GT(lever->saved_ms(), 0) << "the best size comes first";
}

TEST(RunAdviceTest, ARankWithoutAnotherHasNoBuckets) {
  MeasuredRun run = RunWithLargeLayers();
  run.job.mutable_mesh()->set_data(1);
  const auto advice = AdviseRun(run, {.ways = 1});
  ASSERT_TRUE(advice.ok()) << advice.status();
  EXPECT_EQ(LeverOf(*advice, "gradient buckets"), nullptr);
}

TEST(RunAdviceTest, TheSameAnswerComesFromManyThreads) {
  const auto one = AdviseRun(PaddedRun(), {.ways = 2});
  const auto many = AdviseRun(PaddedRun(), {.ways = 2, .threads = 3});
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_EQ(RunAdviceText(PaddedRun(), *one, ""), RunAdviceText(PaddedRun(), *many, ""));
}

TEST(RunAdviceTest, TheReportSaysWhatASwitchCosts) {
  MeasuredRun run = PaddedRun();
  const auto advice = AdviseRun(run, {.ways = 2});
  ASSERT_TRUE(advice.ok()) << advice.status();
  EXPECT_THAT(RunAdviceText(run, *advice, ""),
              AllOf(HasSubstr("measured      110.0 ms"), HasSubstr("planned then 100.0 ms"),
                    HasSubstr("What a start takes is not known here"), HasSubstr("one change alone")));
  run.start_seconds = 6;
  EXPECT_THAT(RunAdviceText(run, *advice, "penstock up --resume --run-dir R"),
              AllOf(HasSubstr("penstock up --resume --run-dir R --pp "), HasSubstr("took 6.0 s"),
                    HasSubstr("made good after")));
  const nlohmann::ordered_json json = RunAdviceJson(run, *advice, "penstock up --resume --run-dir R");
  EXPECT_EQ(json["start_seconds"], 6);
  EXPECT_EQ(json["others"].size(), advice->others.size());
  EXPECT_EQ(json["levers"].size(), advice->levers.size());
}

TEST(RunAdviceTest, WaitingForPlansIsSaid) {
  MeasuredRun run = PaddedRun();
  const auto advice = AdviseRun(run, {.ways = 1, .levers = false});
  ASSERT_TRUE(advice.ok()) << advice.status();
  EXPECT_THAT(RunAdviceText(run, *advice, ""), Not(HasSubstr("--look-ahead")));
  run.iterations[0].waited_ns = 50'000'000;
  EXPECT_THAT(RunAdviceText(run, *advice, ""), HasSubstr("25.0 ms of it for plans"));
}

TEST(RunAdviceTest, ARunWhoseBatchesDoNotFitIsRefused) {
  MeasuredRun run = PaddedRun();
  run.job.mutable_planning()->set_memory_limit_bytes(1);
  EXPECT_FALSE(AdviseRun(run, {}).ok());
}

TEST(PresentWayTest, OneStageHasNoScheduleOrSplit) {
  const Candidate a = {.data = 4, .stage_split = v1::STAGE_SPLIT_AUTO, .schedule = v1::SCHEDULE_AUTO};
  Candidate b = a;
  b.stage_split = v1::STAGE_SPLIT_EVEN;
  b.schedule = v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
  EXPECT_TRUE(IsSameWay(a, b));
  b.policy = v1::POLICY_PACKED;
  EXPECT_FALSE(IsSameWay(a, b));
}

TEST(PresentWayTest, ASwitchSaysEveryDegreeAndWhatIsNoLongerDivided) {
  v1::JobSpec present = core::GptJob(2, 4, v1::POLICY_DYNAMIC);
  present.mutable_planning()->set_shard_optimizer_state(true);
  present.mutable_planning()->set_recompute(v1::RECOMPUTE_FULL);
  EXPECT_EQ(SwitchFlags(present, {.pipeline = 1, .data = 8}),
            "--pp 1 --dp 8 --tp 1 --cp 1 --ep 1 --policy dynamic --stage-split even --schedule 1f1b "
            "--shard-optimizer-state=false --recompute auto");
}

TEST(MeasuredRunTest, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  MeasuredRun run = PaddedRun();
  run.start_seconds = 2.5;
  ASSERT_TRUE(WriteMeasuredRun(folder.path(), run).ok());
  const auto read = ReadMeasuredRun(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.SerializeAsString(), run.job.SerializeAsString());
  ASSERT_EQ(read->batches.size(), 2U);
  EXPECT_EQ(read->batches[1].SerializeAsString(), run.batches[1].SerializeAsString());
  ASSERT_EQ(read->iterations.size(), 2U);
  EXPECT_EQ(read->iterations[1].iteration, 8U);
  EXPECT_EQ(read->iterations[1].measured_ns, 120'000'000);
  EXPECT_TRUE(read->fitted);
  EXPECT_EQ(read->start_seconds, 2.5);
}

TEST(MeasuredRunTest, OfAnotherFolderIsRefusedByName) {
  const TemporaryFolder folder;
  EXPECT_THAT(std::string(ReadMeasuredRun(folder.path()).status().message()), HasSubstr("measured.json"));
  folder.Write("measured.json", "{}");
  EXPECT_TRUE(absl::IsInvalidArgument(ReadMeasuredRun(folder.path()).status()));
}

}  // namespace
}  // namespace penstock::cli
