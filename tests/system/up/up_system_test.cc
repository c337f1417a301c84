// `penstock up` as a user runs it: real planner, real workers, real text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/files/files.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// Ranks are placed by the wall clock that each reads when it starts an iteration, microseconds.
constexpr double kClockError = 5000;

TEST_F(UpTest, TrainsWithEveryIterationPlannedAhead) {
  const std::string trace = folder_.Path("trace.json");
  // More tokens than it has: a profile of this model is measured.
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "20", "--json", "--trace", trace, "--checkpoint-every", "4",
                              "--keep-checkpoints", "3", "--vocab", "2048"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  const auto summary = nlohmann::json::parse(up.output());
  EXPECT_EQ(summary["iterations"], 20);
  EXPECT_LT(summary["last_loss"].get<double>(), summary["first_loss"].get<double>() - 0.5) << up.errors();
  // Nothing, but where the disk is busy with something else: batches are accepted when they are on it.
  EXPECT_LT(summary["waited_for_plan_ms"].get<double>(), 1000) << up.errors();
  EXPECT_GT(summary["prediction_error"].get<double>(), 0);
  EXPECT_TRUE(std::filesystem::exists(summary["checkpoint"].get<std::string>()));
  EXPECT_EQ(CompleteCheckpoints(RunDir() + "/checkpoints"), (std::vector<uint64_t>{20, 16, 12}));
  EXPECT_THAT(up.errors(), HasSubstr("iteration 19/19"));

  const auto events = nlohmann::json::parse(*ReadFile(trace))["traceEvents"];
  std::map<std::string, double> sent;
  std::map<std::string, double> arrived;
  for (const auto& event : events) {
    if (event["ph"] == "s") sent[event["id"]] = event["ts"];
    if (event["ph"] == "f") arrived[event["id"]] = event["ts"];
  }
  EXPECT_GT(sent.size(), 20);
  EXPECT_EQ(sent.size(), arrived.size());
  for (const auto& [id, time] : sent) {
    ASSERT_TRUE(arrived.contains(id)) << id;
    EXPECT_GT(arrived[id], time - kClockError) << "arrow " << id << " goes back in time";
  }
}

TEST_F(UpTest, ResumesWithTheBitsOfAnUninterruptedRun) {
  // Long enough that the first part is stopped before its end. The cosine ends where the whole run ends, so
  // it is stopped, not shortened.
  const auto arguments = [&](const std::string& run_dir, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--iterations", "60", "--checkpoint-every", "20", "--run-dir", run_dir};
    all.insert(all.end(), more.begin(), more.end());
    return UpArguments(all);
  };
  PenstockRun whole(folder_, "whole", arguments(folder_.Path("whole"), {"--json"}));
  ASSERT_EQ(whole.Wait(), 0) << whole.errors();
  PenstockRun first(folder_, "first", arguments(RunDir(), {}));
  first.WaitForText("iteration 20/59");
  first.process().Signal(SIGTERM);
  ASSERT_EQ(first.Wait(), 1);
  EXPECT_THAT(first.errors(), HasSubstr("--resume"));
  PenstockRun second(folder_, "second", arguments(RunDir(), {"--resume", "--json"}));
  ASSERT_EQ(second.Wait(), 0) << second.errors();

  const auto expected = nlohmann::json::parse(whole.output());
  const auto resumed = nlohmann::json::parse(second.output());
  EXPECT_LT(resumed["iterations"], expected["iterations"]) << "it began anew";
  EXPECT_EQ(resumed["last_loss"].get<double>(), expected["last_loss"].get<double>());
  const auto files = FilesOf(expected["checkpoint"].get<std::string>());
  EXPECT_EQ(files.size(), 4);
  EXPECT_TRUE(FilesOf(resumed["checkpoint"].get<std::string>()) == files);
}

class TwoMeshesTest : public UpTest {
 protected:
  using Flags = std::vector<std::string>;

  // Half the iterations on one mesh, and from their checkpoint half on another: the loss at the end.
  double LastLoss(const std::string& name, const Flags& first, const Flags& second, const Flags& more = {}) {
    double loss = 0;
    for (const bool resumes : {false, true}) {
      Flags flags = {"--run-dir", folder_.Path(name), "--iterations", resumes ? "12" : "6", "--json"};
      for (const Flags& part : {resumes ? second : first, more})
        flags.insert(flags.end(), part.begin(), part.end());
      if (resumes) flags.push_back("--resume");
      PenstockRun run(folder_, absl::StrCat(name, resumes ? "-2" : "-1"), UpArguments(flags));
      EXPECT_EQ(run.Wait(), 0) << run.errors();
      const auto summary = nlohmann::json::parse(run.output(), nullptr, /*allow_exceptions=*/false);
      if (summary.is_discarded()) return 0.0;
      EXPECT_EQ(summary["iterations"], 6);
      loss = summary["last_loss"];
    }
    return loss;
  }
};

TEST_F(TwoMeshesTest, StageGroupsTrainAsReplicasDoAndGoOnFromEachOthersCheckpoints) {
  const Flags replicas = {"--pp", "2", "--dp", "2"}, context = {"--pp", "2", "--dp", "1", "--cp", "2"},
              both = {"--pp", "1", "--dp", "1", "--cp", "2", "--tp", "2"};
  const double expected = LastLoss("replicas", replicas, replicas);
  EXPECT_NEAR(LastLoss("context", context, both), expected, 1e-3);
  EXPECT_NEAR(LastLoss("both", both, replicas), expected, 1e-3);
}

TEST_F(TwoMeshesTest, BucketsOfOtherSizesTrainTheSameAndGoOnFromEachOthersCheckpoints) {
  const Flags model = {"--pp", "1", "--dp", "2", "--dtype", "float64", "--shard-optimizer-state"};
  const Flags usual, small = {"--gradient-bucket-mib", "0.001"}, one = {"--gradient-bucket-mib", "1048576"};
  const double expected = LastLoss("usual", usual, usual, model);
  EXPECT_NEAR(LastLoss("small", small, one, model), expected, 1e-9);
}

TEST_F(TwoMeshesTest, RanksThatDivideExpertsTrainAsOneRankDoesAndGoOnFromItsCheckpoints) {
  const Flags model = {"--experts", "4",       "--experts-per-token",    "2", "--ffn", "32",
                       "--dtype",   "float64", "--shard-optimizer-state"};
  const Flags one = {"--pp", "1", "--dp", "1"},
              divided = {"--pp", "1", "--dp", "2", "--cp", "2", "--ep", "2"};
  const double expected = LastLoss("one", one, one, model);
  EXPECT_NEAR(LastLoss("divided", one, divided, model), expected, 1e-9);
  EXPECT_NEAR(LastLoss("back", divided, one, model), expected, 1e-9);
}

TEST_F(TwoMeshesTest, LayersWithoutExpertsTrainOnRanksThatDivideThoseOfOthersAsOnOne) {
  const Flags model = {"--experts",   "4",  "--ffn",   "32",      "--dense-layers",         "1",
                       "--dense-ffn", "48", "--dtype", "float64", "--shard-optimizer-state"};
  const Flags one = {"--pp", "1", "--dp", "1"},
              divided = {"--pp", "2", "--dp", "1", "--cp", "2", "--ep", "2"};
  const double expected = LastLoss("one", one, one, model);
  EXPECT_NEAR(LastLoss("divided", one, divided, model), expected, 1e-9);
  EXPECT_NEAR(LastLoss("back", divided, one, model), expected, 1e-9);
}

TEST_F(UpTest, GoesOnWithTheSameBitsWhenPlannerAndWorkersAreKilled) {
  const auto arguments = [&](const std::string& run_dir) {
    return UpArguments({"--iterations", "90", "--checkpoint-every", "10", "--json", "--run-dir", run_dir});
  };
  PenstockRun undisturbed(folder_, "undisturbed", arguments(folder_.Path("undisturbed")));
  ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.errors();

  PenstockRun up(folder_, "up", arguments(RunDir()));
  up.WaitForText("iteration 12/");
  KillOne(RunDir(), "--rank=2");
  up.WaitForText("iteration 28/");
  KillOne(RunDir(), "penstock-planner");
  up.WaitForText("iteration 46/");
  KillOne(RunDir(), "penstock-planner");
  KillOne(RunDir(), "--rank=3");
  ASSERT_EQ(up.Wait(), 0) << up.errors();

  EXPECT_THAT(up.errors(), ::testing::Not(HasSubstr("worker-0 "))) << "a healthy one was ended";

  EXPECT_THAT(up.errors(), HasSubstr("worker-2 killed by signal 9 (Killed): starting it again (1 of 10"));
  EXPECT_THAT(up.errors(), HasSubstr("planner killed by signal 9 (Killed): starting it again (2 of 10"));
  // Every iteration once, with the loss that it has when nothing happens.
  EXPECT_EQ(ProgressOf(up.errors()), ProgressOf(undisturbed.errors()));
  const auto expected = nlohmann::json::parse(undisturbed.output());
  const auto killed = nlohmann::json::parse(up.output());
  EXPECT_EQ(killed["iterations"], 90);
  EXPECT_EQ(killed["last_loss"].get<double>(), expected["last_loss"].get<double>());
  EXPECT_TRUE(FilesOf(killed["checkpoint"].get<std::string>()) ==
              FilesOf(expected["checkpoint"].get<std::string>()));
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());
}

// All times of the profile, so many times as long.
void ScaleTimes(double factor, nlohmann::json& json) {
  for (auto& [key, value] : json.items()) {
    if (value.is_structured())
      ScaleTimes(factor, value);
    else if (absl::EndsWith(key, "Ns") && value.is_number())
      value = factor * value.get<double>();
  }
}

TEST_F(UpTest, CostsFollowWhatIsMeasuredAndOutliveThePlanner) {
  const std::string measured = std::filesystem::directory_iterator(Profiles())->path().string();
  auto profile = nlohmann::json::parse(*ReadFile(measured));
  ScaleTimes(4, profile["profile"]["layers"]);
  const std::string wrong = folder_.Write("wrong.json", profile.dump());
  PenstockRun up(folder_, "up",
                 UpArguments({"--fixed-costs=false", "--iterations", "60", "--profile", wrong, "--json"}));
  up.WaitForText("iteration 30/");
  KillOne(RunDir(), "penstock-planner");
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_EQ(nlohmann::json::parse(up.output())["iterations"], 60);

  // The profile is version 1. A planner that had forgotten would begin with 2 again.
  std::vector<std::string> versions;
  const std::string log = ReadFile(RunDir() + "/logs/planner.log").value_or("");
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (!absl::StrContains(line, "costs revised")) continue;
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(" version=", 1));
    ASSERT_EQ(parts.size(), 2u) << line;
    versions.push_back(std::vector<std::string>(absl::StrSplit(parts[1], ' ')).front());
  }
  ASSERT_FALSE(versions.empty()) << log;
  for (size_t i = 0; i < versions.size(); ++i) EXPECT_EQ(versions[i], absl::StrCat(i + 2)) << log;
}

TEST_F(UpTest, HungProcessesAreEndedAndStartedAgain) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "60", "--checkpoint-every", "5", "--json"}));
  up.WaitForText("iteration 6/");
  for (const char* process : {"penstock-planner", "--rank=2"}) {
    const std::vector<pid_t> pids = ProcessesOf(RunDir(), process);
    ASSERT_EQ(pids.size(), 1) << process;
    kill(pids.front(), SIGSTOP);
  }
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.errors(), HasSubstr("planner has not answered for 20s: it is ended"));
  EXPECT_THAT(up.errors(), HasSubstr("worker-2 gives no sign of life: it is ended"));
  EXPECT_EQ(ProgressOf(up.errors()).size(), 60);
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());
}

TEST_F(UpTest, AWorkerThatAlwaysDiesEndsTheRunWithItsReason) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "100000", "--checkpoint-every", "100000"}));
  up.WaitForText("iteration 3/");
  const absl::Time first = absl::Now();
  while (!up.process().WaitFor(kPoll).has_value() && absl::Now() - first < kRunDeadline) {
    for (const pid_t pid : ProcessesOf(RunDir(), "--rank=1")) kill(pid, SIGKILL);
  }
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_THAT(up.errors(), HasSubstr("worker-1 is not started again: it died 3 times"));
  EXPECT_THAT(up.errors(), HasSubstr("worker-1 killed by signal 9"));
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());
}

TEST_F(UpTest, TrainsAnEncoderDecoderAsItIsPlannedBest) {
  PenstockRun up(folder_, "up", {"up",         "--architecture",
                                 "t5",         "--encoder-layers",
                                 "2",          "--decoder-layers",
                                 "2",          "--feed-forward",
                                 "gated-gelu", "--pp",
                                 "2",          "--dataset",
                                 Dataset(),    "--global-batch",
                                 "8",          "--hidden",
                                 "32",         "--heads",
                                 "2",          "--ffn",
                                 "64",         "--max-input",
                                 "64",         "--max-target",
                                 "32",         "--iterations",
                                 "12",         "--lr",
                                 "1e-2",       "--warmup",
                                 "2",          "--profile-seconds",
                                 "1",          "--run-dir",
                                 RunDir(),     "--json"});
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  const auto summary = nlohmann::json::parse(up.output());
  EXPECT_EQ(summary["iterations"], 12);
  EXPECT_LT(summary["last_loss"].get<double>(), summary["first_loss"].get<double>()) << up.errors();
}

TEST_F(UpTest, AKilledWorkerEndsARunWithoutRestartsAndIsNamed) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "100000", "--max-restarts", "0"}));
  up.WaitForText("iteration 3/");
  const std::vector<pid_t> workers = WorkersOf(RunDir());
  ASSERT_EQ(workers.size(), 4);
  kill(workers.front(), SIGKILL);
  const absl::Time killed = absl::Now();
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_LT(absl::Now() - killed, absl::Seconds(30));
  EXPECT_THAT(up.errors(), testing::ContainsRegex("rank [0-3]")) << up.errors();
  EXPECT_THAT(up.errors(), HasSubstr("killed by signal 9")) << up.errors();
  EXPECT_TRUE(WorkersOf(RunDir()).empty());
}

TEST_F(UpTest, AHungWorkerIsNamedAndDoesNotKeepARunWithoutRestarts) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "100000", "--max-restarts", "0"}));
  up.WaitForText("iteration 3/");
  const std::vector<pid_t> workers = WorkersOf(RunDir());
  ASSERT_EQ(workers.size(), 4);
  kill(workers.front(), SIGSTOP);
  const absl::Time stopped = absl::Now();
  EXPECT_EQ(up.Wait(), 1);
  // 5 s until the planner takes it for lost, then some for its peers to end and for itself; more of each
  // where four share two cores.
  EXPECT_LT(absl::Now() - stopped, absl::Seconds(24));
  EXPECT_THAT(up.errors(), testing::ContainsRegex("rank [0-3] .*was lost: no heartbeat")) << up.errors();
  EXPECT_TRUE(WorkersOf(RunDir()).empty());
}

TEST_F(UpTest, ASignalEndsTheRunAndLeavesNoProcess) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "100000"}));
  up.WaitForText("iteration 2/");
  up.process().Signal(SIGINT);
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_THAT(up.errors(), HasSubstr("stopped by a signal"));
  EXPECT_THAT(up.output(), HasSubstr("run folder")) << "the summary of what was trained";
  EXPECT_TRUE(WorkersOf(RunDir()).empty());
}

// The address of the planner that a run has started.
std::string PlannerOf(const PenstockRun& run) {
  const std::string output = run.output();
  const size_t begin = output.find("planner ") + 8;
  return output.substr(begin, output.find(',', begin) - begin);
}

TEST_F(UpTest, AJobThatIsDrainedRunsWhatItHasTakenAndEndsWellWithACheckpoint) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "100000", "--job-id", "drained"}));
  up.WaitForText("iteration 3/");
  PenstockRun drain(folder_, "drain", {"drain", "--planner", PlannerOf(up), "--job", "drained"});
  EXPECT_EQ(drain.Wait(), 0) << drain.errors();
  EXPECT_EQ(up.Wait(), 0) << up.errors() << up.output();
  // Every batch that was accepted has run, and the checkpoint is behind the last of them.
  const std::string output = up.output();
  const std::string before = "job drained drains: it ends before iteration ";
  const size_t said = output.find(before);
  ASSERT_NE(said, std::string::npos) << output;
  const uint64_t end = std::stoull(output.substr(said + before.size()));
  EXPECT_GT(end, 4u);
  EXPECT_THAT(output, HasSubstr(absl::StrCat("iteration ", end - 1, "/")));
  EXPECT_THAT(output, testing::Not(HasSubstr(absl::StrCat("iteration ", end, "/"))));
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(RunDir(), "/checkpoints/iteration-", end))) << output;
}

TEST_F(UpTest, ADeadPlannerIsNoticedWithinTwoSeconds) {
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "100000", "--trace", folder_.Path("trace.json")}));
  up.WaitForText("iteration 3/");
  for (int kills = 1; kills <= 4; ++kills) {
    KillOne(RunDir(), "penstock-planner");
    const absl::Time killed = absl::Now();
    up.WaitForText(absl::StrCat("(", kills, " of 10 restarts)"));
    EXPECT_LT(absl::Now() - killed, absl::Seconds(2)) << "kill " << kills;
    // It trains again, or what dies three times without progress ends the run.
    const size_t lines = ProgressOf(up.output()).size();
    const absl::Time deadline = absl::Now() + kRunDeadline;
    while (ProgressOf(up.output()).size() < lines + 3 && absl::Now() < deadline) absl::SleepFor(kPoll);
  }
  up.process().Signal(SIGTERM);
  up.process().Signal(SIGTERM);
  up.Wait();
}

TEST_F(UpTest, ASignalEndsTheMeasuringOfAProfile) {
  std::filesystem::remove_all(Profiles());
  PenstockRun up(folder_, "up", UpArguments({"--profile-seconds", "60"}));
  up.WaitForText("measuring this model");
  const absl::Time signalled = absl::Now();
  up.process().Signal(SIGINT);
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_LT(absl::Now() - signalled, absl::Seconds(10));
  EXPECT_THAT(up.errors(), HasSubstr("stopped by a signal"));
}

TEST_F(UpTest, AFolderInUseIsRefused) {
  PenstockRun first(folder_, "first", UpArguments({"--iterations", "100000"}));
  first.WaitForText("iteration 1/");
  PenstockRun second(folder_, "second", UpArguments({"--iterations", "2", "--fresh"}));
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_THAT(second.errors(), HasSubstr("in use by another run"));
  first.process().Signal(SIGTERM);
  first.Wait();
}

TEST_F(UpTest, WrongRequestsNameTheFlag) {
  PenstockRun missing(folder_, "missing", {"up", "--dataset", folder_.Path("nothing")});
  EXPECT_EQ(missing.Wait(), 2);
  EXPECT_THAT(missing.errors(), HasSubstr("nothing.idx"));
  PenstockRun heads(folder_, "heads", UpArguments({"--heads", "5"}));
  EXPECT_EQ(heads.Wait(), 2);
  EXPECT_THAT(heads.errors(), HasSubstr("--heads 5"));
  const std::vector<std::vector<std::string>> wrong = {{"--vocab", "5"},
                                                       {"--max-length", "1"},
                                                       {"--lr", "nan"},
                                                       {"--pp", "3"},
                                                       {"--trace", "/proc/no/trace.json"}};
  for (const std::vector<std::string>& flags : wrong) {
    PenstockRun run(folder_, "wrong" + flags[0], UpArguments(flags));
    EXPECT_NE(run.Wait(), 0);
    EXPECT_THAT(run.errors(), HasSubstr(flags[0]));
  }
  for (const char* id : {"..", ".", "../../elsewhere", "a/b", "a\nb"}) {
    PenstockRun run(folder_, "id", UpArguments({"--job-id", id, "--iterations", "1"}));
    EXPECT_EQ(run.Wait(), 2);
    EXPECT_THAT(run.errors(), HasSubstr("--job-id")) << id;
  }
  PenstockRun resume(folder_, "resume", UpArguments({"--resume"}));
  EXPECT_EQ(resume.Wait(), 2);
  EXPECT_THAT(resume.errors(), HasSubstr("--resume: no run was started in"));
}

}  // namespace
}  // namespace penstock
