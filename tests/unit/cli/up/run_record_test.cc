#include "planner/cli/up/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RunRecord SomeRun() {
  RunRecord record;
  record.flags = {{"--lr", {"0.01"}}, {"--slow-rank", {"1:2", "2:3"}}};
  record.data = {.samples = 100, .crc32 = 0xfedcba98, .global_batch = 64, .max_length = 2048};
  record.job.mutable_model()->set_hidden(32);
  record.job.mutable_training()->set_seed(7);
  record.job.mutable_training()->mutable_learning_rate()->set_peak(0.01);
  return record;
}

std::string Difference(const RunRecord& now, const std::vector<std::string>& allowed = {}) {
  const absl::Status status = CheckSameRun(SomeRun(), now, allowed, "runs/mix");
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RunRecord, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteRunRecord(folder.path(), SomeRun()).ok());
  const auto read = ReadRunRecord(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->flags, SomeRun().flags);
  EXPECT_EQ(read->data.samples, 100u);
  EXPECT_EQ(read->data.crc32, 0xfedcba98u);
  EXPECT_EQ(read->data.max_length, 2048u);
  EXPECT_EQ(read->job.SerializeAsString(), SomeRun().job.SerializeAsString());
  EXPECT_TRUE(CheckSameRun(SomeRun(), *read, {}, "runs/mix").ok());
}

TEST(RunRecord, KeepsWhatAutoTuneHasTried) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteRunRecord(folder.path(), SomeRun()).ok());
  ASSERT_TRUE(RecordAutoTune(folder.path(), {{"winner", 2}}).ok());
  const auto read = ReadRunRecord(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->auto_tune, R"({"winner":2})");
  ASSERT_TRUE(WriteRunRecord(folder.path(), *read).ok());
  EXPECT_THAT(folder.Read("run.json"), HasSubstr("\"winner\": 2"));
}

TEST(RunRecord, HasTheStrategiesThatTheRunWasGivenLast) {
  const TemporaryFolder folder;
  RunRecord run = SomeRun();
  run.flags["--strategies"] = {"pp 2 x dp 1"};
  ASSERT_TRUE(WriteRunRecord(folder.path(), run).ok());
  ASSERT_TRUE(RecordAutoTune(folder.path(), {{"winner", 2}}).ok());
  ASSERT_TRUE(RecordStrategies(folder.path(), "pp 1 x dp 2; pp 1 x dp 1 x cp 2").ok());
  run.flags["--strategies"] = {"pp 1 x dp 2; pp 1 x dp 1 x cp 2"};
  const auto read = ReadRunRecord(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->flags, run.flags);
  EXPECT_EQ(read->job.SerializeAsString(), run.job.SerializeAsString());
  EXPECT_EQ(read->auto_tune, R"({"winner":2})");
}

TEST(RunRecord, WhatIsNoneNamesItsFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(ReadRunRecord(folder.path()).status().code(), absl::StatusCode::kNotFound);
  for (const char* text :
       {"", "[]", "{}", R"({"format": 1})", R"({"format": 2})", R"({"format": 2, "flags": {}})",
        R"({"format": 2, "flags": {"--lr": 1}, "data": {}})",
        R"({"format": 2, "flags": {}, "data": {"samples": 1}})"}) {
    folder.Write("run.json", text);
    const absl::Status status = ReadRunRecord(folder.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder.Path("run.json"))) << text;
  }
}

TEST(RunRecord, AnotherNumberIsRefusedByTheNameOfItsFlagUnlessItIsAllowed) {
  RunRecord now = SomeRun();
  now.job.mutable_training()->mutable_learning_rate()->set_peak(0.5);
  EXPECT_EQ(
      Difference(now),
      "--lr 0.5: the run in 'runs/mix' was started with 0.01; leave the flag out to go on as before, or "
      "add --allow-change lr");
  EXPECT_EQ(Difference(now, {"lr"}), "");
  now.data.global_batch = 32;
  EXPECT_THAT(Difference(now, {"lr"}),
              HasSubstr("--global-batch 32: the run in 'runs/mix' was started with 64"));
  EXPECT_EQ(Difference(now, {"lr", "global-batch"}), "");
}

TEST(RunRecord, EveryChangeableFlagIsNoticed) {
  const std::vector<void (*)(RunRecord&)> changes = {
      [](RunRecord& r) { r.data.crc32 = 1; },
      [](RunRecord& r) {
        r.data.mix = {{"flan", 0.7}, {"code", 0.3}};
      },
      [](RunRecord& r) { r.data.global_batch = 1; },
      [](RunRecord& r) { r.data.max_length = 1; },
      [](RunRecord& r) { r.data.max_input = 1; },
      [](RunRecord& r) { r.data.max_target = 1; },
      [](RunRecord& r) { r.job.mutable_training()->mutable_learning_rate()->set_peak(1); },
      [](RunRecord& r) { r.job.mutable_training()->mutable_learning_rate()->set_minimum(1); },
      [](RunRecord& r) { r.job.mutable_training()->mutable_learning_rate()->set_warmup_iterations(1); },
      [](RunRecord& r) {
        r.job.mutable_training()->mutable_learning_rate()->set_decay(v1::RATE_DECAY_LINEAR);
      },
      [](RunRecord& r) { r.job.mutable_training()->set_beta1(0.5); },
      [](RunRecord& r) { r.job.mutable_training()->set_beta2(0.5); },
      [](RunRecord& r) { r.job.mutable_training()->set_epsilon(1); },
      [](RunRecord& r) { r.job.mutable_training()->set_weight_decay(1); },
      [](RunRecord& r) { r.job.mutable_training()->set_clip_norm(1); },
      [](RunRecord& r) { r.data.cut = "drop"; },
  };
  ASSERT_EQ(changes.size(), ChangeableFlags().size());
  for (size_t i = 0; i < changes.size(); ++i) {
    RunRecord now = SomeRun();
    changes[i](now);
    const std::string flag = ChangeableFlags()[i];
    EXPECT_THAT(Difference(now), AllOf(HasSubstr("--" + flag + " "), HasSubstr("--allow-change " + flag)));
    EXPECT_EQ(Difference(now, {flag}), "");
  }
}

TEST(RunRecord, AMixtureIsKeptAndAnotherOneIsRefused) {
  RunRecord before = SomeRun();
  before.data.mix = {{"flan", 0.7}, {"code", 0.1 + 0.2}};
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteRunRecord(folder.path(), before).ok());
  const auto read = ReadRunRecord(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(CheckSameRun(before, *read, {}, "runs/mix").ok());
  RunRecord now = before;
  now.data.mix[0].weight = 0.5;
  EXPECT_EQ(std::string(CheckSameRun(before, now, {}, "runs/mix").message()),
            "--mix flan=0.5,code=0.3: the run in 'runs/mix' was started with flan=0.7,code=0.3; leave the "
            "flag out to go on as before, or add --allow-change mix");
  EXPECT_TRUE(CheckSameRun(before, now, {"mix"}, "runs/mix").ok());
  now = before;
  now.data.mix.clear();
  EXPECT_THAT(std::string(CheckSameRun(before, now, {}, "runs/mix").message()),
              HasSubstr("--dataset one dataset"));
}

TEST(RunRecord, AnotherModelOrSeedIsNeverTaken) {
  RunRecord now = SomeRun();
  now.job.mutable_model()->set_hidden(64);
  EXPECT_THAT(Difference(now, ChangeableFlags()), AllOf(HasSubstr("another model"), HasSubstr("hidden")));
  now = SomeRun();
  now.job.mutable_training()->set_seed(8);
  EXPECT_THAT(Difference(now, ChangeableFlags()), HasSubstr("--seed 8"));
}

TEST(RunRecord, ALimitThatTheModelHasPositionsForIsNamedRatherThanTheModelAndNeverTaken) {
  RunRecord before = SomeRun();
  RunRecord now = SomeRun();
  before.job.mutable_model()->set_max_sequence_length(2048);
  now.job.mutable_model()->set_max_sequence_length(100);
  now.data.max_length = 100;
  const auto difference = [&] {
    return std::string(CheckSameRun(before, now, ChangeableFlags(), "runs/mix").message());
  };
  EXPECT_EQ(difference(),
            "--max-length 100: the run in 'runs/mix' was started with 2048, and its model has as many "
            "positions");
  for (RunRecord* run : {&before, &now}) run->job.mutable_model()->set_architecture(v1::ARCHITECTURE_T5);
  EXPECT_EQ(difference(), "");
}

TEST(RunRecord, MeshPolicyAndIterationsMayChange) {
  RunRecord now = SomeRun();
  now.job.mutable_mesh()->set_pipeline(4);
  now.job.mutable_mesh()->set_data(2);
  now.job.mutable_mesh()->set_tensor(2);
  now.job.mutable_mesh()->set_context(4);
  now.job.mutable_planning()->set_policy(v1::POLICY_PACKED);
  now.job.mutable_training()->set_iterations(500);
  now.job.mutable_training()->mutable_learning_rate()->set_decay_iterations(500);
  EXPECT_EQ(Difference(now), "");
}

TEST(RunRecord, TheNewestRunIsFound) {
  const TemporaryFolder folder;
  EXPECT_THAT(std::string(NewestRunFolder(folder.path()).status().message()), HasSubstr("--run-dir"));
  std::filesystem::create_directories(folder.Path("a"));
  std::filesystem::create_directories(folder.Path("b"));
  std::filesystem::create_directories(folder.Path("c"));
  for (const char* run : {"b", "a"}) ASSERT_TRUE(WriteRunRecord(folder.Path(run), SomeRun()).ok());
  using std::chrono::hours;
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(folder.Path("a/run.json"), now - hours(1));
  EXPECT_EQ(*NewestRunFolder(folder.path()), folder.Path("b"));
  std::filesystem::last_write_time(folder.Path("b/run.json"), now - hours(2));
  EXPECT_EQ(*NewestRunFolder(folder.path()), folder.Path("a"));
}

}  // namespace
}  // namespace penstock::cli
