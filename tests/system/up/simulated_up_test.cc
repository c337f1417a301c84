// `penstock up --device simulated` as a user runs it: planned iterations take what was planned, or what
// disturbs them on purpose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/grpc/security/client_flags.h"
#include "tests/support/planner_process.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_certificates.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// A 7B model on 4 simulated ranks.
class SimulatedUpTest : public testing::Test {
 protected:
  std::vector<std::string> Plan() const {
    const std::string examples = absl::StrCat(PENSTOCK_SOURCE_DIR, "/examples/");
    return {"--profile",    examples + "gpt_7b.json",
            "--lengths",    examples + "lengths.csv",
            "--rows",       "0:64",
            "--pp",         "4",
            "--max-length", "8192",
            "--memory-mb",  "400000"};
  }

  std::vector<std::string> Arguments(const std::string& command, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {command};
    const std::vector<std::string> plan = Plan();
    arguments.insert(arguments.end(), plan.begin(), plan.end());
    if (command == "up") {
      for (const std::string& argument : {std::string("--device"), std::string("simulated"),
                                          std::string("--run-dir"), folder_.Path("run")}) {
        arguments.push_back(argument);
      }
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  nlohmann::json Summary(const std::string& command, std::vector<std::string> more) {
    more.push_back("--json");
    PenstockRun run(folder_, absl::StrCat(command, ++runs_), Arguments(command, more));
    EXPECT_EQ(run.Wait(), 0) << run.errors();
    return nlohmann::json::parse(run.output(), nullptr, /*allow_exceptions=*/false);
  }

  struct IterationTimes {
    double measured_ms = 0;
    double planned_ms = 0;
  };
  // Of each iteration of the last run.
  std::vector<IterationTimes> Times() const {
    std::vector<IterationTimes> times;
    const std::string metrics = ReadFile(folder_.Path("run/metrics.jsonl")).value_or("");
    for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
      const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (row.is_object() && row.contains("measured_ms"))
        times.push_back({row["measured_ms"], row["planned_ms"]});
    }
    return times;
  }

  TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(SimulatedUpTest, RunsThePlanThatPlanPrints) {
  const std::vector<std::vector<std::string>> schedules = {
      {"--dp", "2"},
      {"--cp", "2", "--tp", "2"},
      {"--schedule", "split-backward", "--layers-per-stage", "4,4,4,4,4,4,4,4", "--rank-of-stage",
       "0,1,2,3,3,2,1,0"}};
  for (const std::vector<std::string>& schedule : schedules) {
    const double makespan_ms = Summary("plan", schedule)["makespan_ms"];
    std::vector<std::string> arguments = {"--time-scale", "0", "--iterations", "1"};
    arguments.insert(arguments.end(), schedule.begin(), schedule.end());
    const nlohmann::json summary = Summary("up", arguments);
    EXPECT_DOUBLE_EQ(summary["planned_iteration_ms"], makespan_ms);
    EXPECT_DOUBLE_EQ(summary["measured_iteration_ms"], makespan_ms);
    EXPECT_EQ(summary["device"], "simulated");
  }
}

TEST_F(SimulatedUpTest, GoesOnFromACheckpointOnASlowerMachine) {
  const nlohmann::json first =
      Summary("up", {"--time-scale", "0", "--iterations", "4", "--checkpoint-every", "2"});
  EXPECT_LT(first["prediction_error"], 0.02);
  const nlohmann::json second = Summary("up", {"--time-scale", "0", "--iterations", "6", "--checkpoint-every",
                                               "2", "--resume", "--slow-rank", "2:1.5", "--noise", "0.05"});
  EXPECT_EQ(second["iterations"], 2);
  EXPECT_THAT(second["checkpoint"].get<std::string>(), HasSubstr("iteration-6"));
  EXPECT_GT(second["measured_iteration_ms"].get<double>(),
            1.2 * second["planned_iteration_ms"].get<double>());
}

// Costs are fitted to what is measured, what is measured stays what the profile says, and the slow rank gets
// less to do.
TEST_F(SimulatedUpTest, ASlowRankIsFoundAndPlannedFor) {
  // On a busy machine the fit may take as long as many of these iterations.
  constexpr size_t kIterations = 48, kSettled = 36;
  const std::vector<std::string> run = {
      "--dp", "2", "--time-scale", "0", "--iterations", absl::StrCat(kIterations), "--look-ahead", "4"};
  Summary("up", run);
  const std::vector<IterationTimes> usual = Times();
  std::filesystem::remove_all(folder_.Path("run"));
  std::vector<std::string> with_slow_rank = run;
  with_slow_rank.insert(with_slow_rank.end(), {"--slow-rank", "2:1.5"});
  Summary("up", with_slow_rank);
  const std::vector<IterationTimes> slow = Times();
  ASSERT_EQ(usual.size(), kIterations);
  ASSERT_EQ(slow.size(), kIterations);
  EXPECT_GT(slow.front().measured_ms, 1.35 * usual.front().measured_ms);
  for (size_t i = kSettled; i < kIterations; ++i) {
    // A quarter of one replica's stage is gone, and a batch of 64 samples is coarse.
    EXPECT_LT(slow[i].measured_ms, 1.25 * usual[i].measured_ms) << i;
    EXPECT_NEAR(slow[i].planned_ms / slow[i].measured_ms, 1, 0.03) << i;
  }
}

// Likewise a slow link, in both directions and by its factor; links beside it are as they were.
TEST_F(SimulatedUpTest, ASlowLinkIsFoundAndPlannedFor) {
  constexpr size_t kIterations = 48, kSettled = 36;
  Summary("up", {"--dp", "2", "--time-scale", "0", "--iterations", absl::StrCat(kIterations), "--look-ahead",
                 "4", "--slow-link", "1-2:500"});
  const std::vector<IterationTimes> slow = Times();
  ASSERT_EQ(slow.size(), kIterations);
  EXPECT_GT(slow.front().measured_ms, 1.1 * slow.front().planned_ms);
  for (size_t i = kSettled; i < kIterations; ++i)
    EXPECT_NEAR(slow[i].planned_ms / slow[i].measured_ms, 1, 0.03) << i;
  const auto run = nlohmann::json::parse(ReadFile(folder_.Path("run/measured.json")).value_or(""), nullptr,
                                         /*allow_exceptions=*/false);
  ASSERT_TRUE(run.is_object());
  const nlohmann::json links = run["job"]["profile"]["slowLinks"];
  ASSERT_EQ(links.size(), 2U) << links;
  EXPECT_EQ(links[0]["from"], 1);
  EXPECT_EQ(links[0]["to"], 2);
  EXPECT_NEAR(links[0]["factor"], 500, 5);
  EXPECT_EQ(links[1]["from"], 2);
  EXPECT_EQ(links[1]["to"], 1);
  EXPECT_NEAR(links[1]["factor"], 500, 5);
}

// The planner is told that layers are twice as fast as they are.
TEST_F(SimulatedUpTest, CostsThatAreWrongAreFittedToWhatDevicesTake) {
  constexpr size_t kIterations = 48, kSettled = 36;
  const std::string right = absl::StrCat(PENSTOCK_SOURCE_DIR, "/examples/gpt_7b.json");
  nlohmann::json wrong = nlohmann::json::parse(ReadFile(right).value_or(""));
  for (nlohmann::json& layer : wrong["profile"]["layers"]) {
    for (nlohmann::json& value : layer["forward"])
      if (value != 512) value = value.get<double>() / 2;
  }
  Summary("up", {"--profile", folder_.Write("wrong.json", wrong.dump()), "--true-profile", right,
                 "--time-scale", "0", "--iterations", absl::StrCat(kIterations), "--look-ahead", "4"});
  const std::vector<IterationTimes> times = Times();
  ASSERT_EQ(times.size(), kIterations);
  EXPECT_NEAR(times.front().measured_ms / times.front().planned_ms, 2, 0.1);
  for (size_t i = kSettled; i < kIterations; ++i)
    EXPECT_NEAR(times[i].planned_ms / times[i].measured_ms, 1, 0.03) << i;
}

// Client, workers and planner over TLS, each with the certificate of its role.
TEST_F(SimulatedUpTest, RunsOnAPlannerThatKnowsItsCallers) {
  TestCertificates certificates;
  certificates.MakeCaller("client", "alice");
  certificates.MakeCaller("viewer", "");
  const ServerSecurity server = certificates.Server();
  auto planner =
      PlannerProcess::Start(PENSTOCK_PLANNER, {"--tls-cert", server.certificate, "--tls-key", server.key,
                                               "--tls-client-ca", server.client_authority});
  ASSERT_TRUE(planner.ok()) << planner.status();
  const auto run_as = [&](const std::string& caller) {
    std::vector<std::string> flags = AsFlags(certificates.Client(caller));
    for (const char* flag : {"--time-scale=0", "--iterations=3", "--planner"}) flags.emplace_back(flag);
    flags.push_back((*planner)->address());
    return Arguments("up", flags);
  };
  PenstockRun viewer(folder_, "viewer", run_as("viewer"));
  EXPECT_NE(viewer.Wait(), 0);
  EXPECT_THAT(viewer.errors(), HasSubstr("a viewer may not call it"));
  PenstockRun alice(folder_, "alice", run_as("client-alice"));
  EXPECT_EQ(alice.Wait(), 0) << alice.errors();
  std::vector<std::string> jobs = {"jobs", "--json", "--planner", (*planner)->address()};
  for (const std::string& flag : AsFlags(certificates.Client("viewer"))) jobs.push_back(flag);
  PenstockRun shown(folder_, "jobs", jobs);
  EXPECT_EQ(shown.Wait(), 0) << shown.errors();
  EXPECT_THAT(shown.output(), HasSubstr("finished"));
}

TEST_F(SimulatedUpTest, AKilledWorkerEndsARunWithoutRestartsAndIsNamed) {
  PenstockRun up(folder_, "up",
                 Arguments("up", {"--iterations", "100000", "--time-scale", "0.01", "--max-restarts", "0"}));
  up.WaitForText("iteration 3/");
  const std::vector<pid_t> workers = WorkersOf(folder_.Path("run"));
  ASSERT_EQ(workers.size(), 4);
  kill(workers.front(), SIGKILL);
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_THAT(up.errors(), testing::ContainsRegex("rank [0-3]")) << up.errors();
  EXPECT_THAT(up.errors(), HasSubstr("killed by signal 9")) << up.errors();
  EXPECT_TRUE(WorkersOf(folder_.Path("run")).empty());
}

TEST_F(SimulatedUpTest, ASignalEndsARankThatStandsStill) {
  PenstockRun up(folder_, "up", Arguments("up", {"--time-scale", "0.01", "--stall", "2:1:1e6"}));
  up.WaitForText("iteration 0/");
  const absl::Time signalled = absl::Now();
  up.process().Signal(SIGINT);
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_LT(absl::Now() - signalled, absl::Seconds(20));
  EXPECT_TRUE(WorkersOf(folder_.Path("run")).empty());
}

TEST_F(SimulatedUpTest, WrongRequestsNameTheFlag) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--rows", "0:100000"}, {"--slow-rank", "4:2"},
      {"--slow-link", "1"},   {"--stall", "1:2"},
      {"--layers", "4"},      {"--device", "tpu"},
      {"--noise", "-1"},      {"--true-profile", "/no/such.json"},
      {"--device=cpu"}};
  for (const std::vector<std::string>& flags : wrong) {
    PenstockRun run(folder_, absl::StrCat("wrong", ++runs_), Arguments("up", flags));
    EXPECT_EQ(run.Wait(), 2) << flags[0];
    EXPECT_THAT(run.errors(), HasSubstr(flags[0].substr(0, flags[0].find('=')))) << run.errors();
  }
}

}  // namespace
}  // namespace penstock
