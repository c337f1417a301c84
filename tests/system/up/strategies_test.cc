// Runs whose iterations take the fastest of several meshes: they train what one mesh trains, lose ranks and
// go on, and their checkpoints are any mesh's.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kStrategies = "pp 2 x dp 1; pp 1 x dp 2; pp 1 x dp 1 x cp 2";

struct Iteration {
  double loss = NAN;
  int strategy = -1;
};

class StrategiesTest : public UpTest {
 protected:
  static constexpr int kIterations = 40;
  // Of a loss: another order of sums differs by 1e-15.
  static constexpr double kTolerance = 1e-9;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(UpTest::SetUp());
    ASSERT_NO_FATAL_FAILURE(WriteProfile());
  }

  // Costs by which each kind of batch has another strategy: nothing but the squares of lengths takes time,
  // and what moves between ranks takes little.
  void WriteProfile() {
    json profile = Float64Profile();
    for (json& layer : profile["profile"]["layers"]) {
      for (const auto* of_measured : {"forwardMs", "backwardInput", "backwardWeight"})
        layer.erase(of_measured);
      layer["forward"] = {{"fixed_ns", 20000}, {"target_square_ns", 100}};
    }
    profile_ = folder_.Write("profile.json", profile.dump());
  }

  std::vector<std::string> Arguments(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments;
    // Without the fixture's mesh.
    for (const std::string& argument : UpArguments({})) {
      if (argument == "--pp" || argument == "--dp") continue;
      if (argument == "2" && arguments.size() < 2) continue;
      arguments.push_back(argument);
    }
    // At the fixture's rate, batches of one sample leave the road: a difference of 1e-15 is 1e-8 ten
    // iterations later.
    for (const auto* fixed : {"--profile", profile_.c_str(), "--dtype", "float64", "--global-batch", "5",
                              "--lr-decay", "constant", "--lr", "1e-3"})
      arguments.emplace_back(fixed);
    arguments.insert(arguments.end(), {"--iterations", absl::StrCat(kIterations), "--checkpoint-every", "5",
                                       "--run-dir", folder_.Path(run)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Of an iteration that was done again, the last.
  std::vector<Iteration> Iterations(const std::string& run) const {
    std::istringstream lines(ReadFile(folder_.Path(run) + "/metrics.jsonl").value_or(""));
    std::vector<Iteration> iterations(kIterations);
    for (std::string line; std::getline(lines, line);) {
      const json one = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!one.is_object()) continue;
      const auto number = one["iteration"].get<size_t>();
      if (number >= iterations.size()) iterations.resize(number + 1);
      iterations[number] = {one["loss"], one["strategy"]};
    }
    return iterations;
  }

  void ExpectLossesOf(const std::string& run, const std::string& expected) {
    const std::vector<Iteration> a = Iterations(run), b = Iterations(expected);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i].loss, b[i].loss, kTolerance) << "iteration " << i;
  }

  // While `up` stands still its job is given no batches, so it ends not; the planner and workers go on.
  static void Stop(PenstockRun& up) { kill(up.process().pid(), SIGSTOP); }
  static void GoOn(PenstockRun& up) { kill(up.process().pid(), SIGCONT); }

  // Has the next iterations of the run take these; returns the first that does.
  int Change(const std::string& run, const std::string& strategies) {
    // Output of runs of one name is appended.
    PenstockRun change(folder_, absl::StrCat("change-", ++changes_),
                       {"strategies", "--run-dir", folder_.Path(run), "--set", strategies, "--json"});
    EXPECT_EQ(change.Wait(), 0) << change.errors();
    const json answer = json::parse(change.output(), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(answer.is_object()) << change.output();
    return answer.is_object() ? answer["from_iteration"].get<int>() : -1;
  }

  void Run(const std::string& run, const std::vector<std::string>& more) {
    PenstockRun up(folder_, run, Arguments(run, more));
    ASSERT_EQ(up.Wait(), 0) << up.errors();
  }

  // Kills the rank, and whoever takes its place, until the run says that it goes on without.
  void LoseForGood(PenstockRun& up, int rank, const std::string& goes_on) {
    ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 7/"));
    const absl::Time deadline = absl::Now() + kRunDeadline;
    while (absl::Now() < deadline && !absl::StrContains(up.errors() + up.output(), goes_on)) {
      for (const pid_t pid : ProcessesOf(folder_.Path("run"), absl::StrCat("--rank=", rank)))
        kill(pid, SIGKILL);
      if (up.process().WaitFor(kPoll).has_value()) break;
    }
    ASSERT_EQ(up.Wait(), 0) << up.errors();
    EXPECT_THAT(up.output(), HasSubstr(goes_on));
  }

  std::string profile_;
  int changes_ = 0;
};

TEST_F(StrategiesTest, IterationsOnDifferentStrategiesTrainWhatOneMeshTrains) {
  ASSERT_NO_FATAL_FAILURE(Run("pool", {"--strategies", kStrategies}));
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  ExpectLossesOf("pool", "one");
  std::set<int> used;
  for (const Iteration& iteration : Iterations("pool")) used.insert(iteration.strategy);
  EXPECT_GE(used.size(), 2) << "all batches took one strategy: the test shows nothing";
}

// There and back, with the same processes: groups of context ranks that no strategy had before are
// joined when the first program of each comes.
TEST_F(StrategiesTest, ARunThatIsGivenOthersWhileItTrainsTrainsWhatAnUndisturbedOneTrains) {
  constexpr const char* kOthers = "pp 1 x dp 1 x cp 2";
  constexpr const char* kFirst = "pp 2 x dp 1; pp 1 x dp 2";
  const std::vector<std::string> length = {"--iterations", "90", "--lr", "1e-4"};
  const auto with = [&](std::vector<std::string> mesh) {
    mesh.insert(mesh.end(), length.begin(), length.end());
    return mesh;
  };
  PenstockRun up(folder_, "run", Arguments("run", with({"--strategies", kFirst})));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 2/"));
  Stop(up);
  const std::vector<pid_t> workers = WorkersOf(folder_.Path("run"));
  ASSERT_EQ(workers.size(), 2);
  const int there = Change("run", kOthers);
  GoOn(up);
  ASSERT_NO_FATAL_FAILURE(up.WaitForText(absl::StrCat("iterations from ", there, " on run on: ", kOthers)));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText(absl::StrCat("iteration ", there + 2, "/")));
  Stop(up);
  const int back = Change("run", kFirst);
  EXPECT_EQ(WorkersOf(folder_.Path("run")), workers);
  GoOn(up);
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  ASSERT_LT(back, 90) << "the run ended before it could go back";
  EXPECT_THAT(up.output() + up.errors(), Not(HasSubstr("restart")));

  const std::vector<Iteration> iterations = Iterations("run");
  std::set<int> others;
  for (int i = 0; i < static_cast<int>(iterations.size()); ++i) {
    if (i < there || i >= back) {
      EXPECT_LT(iterations[i].strategy, 2) << "iteration " << i;
    } else {
      EXPECT_GE(iterations[i].strategy, 2) << "iteration " << i;
      others.insert(iterations[i].strategy);
    }
  }
  EXPECT_FALSE(others.empty());
  ASSERT_NO_FATAL_FAILURE(Run("undisturbed", with({"--strategies", kFirst})));
  ExpectLossesOf("run", "undisturbed");
}

// Workers that are started again register with all strategies; a run that is resumed has those that held
// last.
TEST_F(StrategiesTest, StrategiesThatARunWasGivenOutliveItsWorkersAndItsEnd) {
  constexpr const char* kFirst = "pp 2 x dp 1; pp 1 x dp 2";
  constexpr const char* kOthers = "pp 1 x dp 1 x cp 2";
  PenstockRun up(folder_, "run", Arguments("run", {"--strategies", kFirst, "--max-restarts", "3"}));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 2/"));
  Stop(up);
  const int from = Change("run", kOthers);
  KillOne(folder_.Path("run"), "--rank=1");
  GoOn(up);
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  ASSERT_LT(from, kIterations);
  EXPECT_GE(Iterations("run")[kIterations - 1].strategy, 2);
  EXPECT_THAT(ReadFile(folder_.Path("run/run.json")).value_or(""), HasSubstr(kOthers));

  PenstockRun resumed(folder_, "resumed",
                      {"up", "--resume", "--run-dir", folder_.Path("run"), "--iterations", "50"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.errors();
  EXPECT_THAT(resumed.output(), HasSubstr(kOthers));
  ASSERT_NO_FATAL_FAILURE(Run("undisturbed", {"--strategies", kFirst, "--iterations", "50"}));
  ExpectLossesOf("run", "undisturbed");
}

// The same job, run by devices that take the plan's times: their pace leaves time for the change.
TEST_F(StrategiesTest, SimulatedDevicesTakeOthersWhileTheyRun) {
  PenstockRun up(folder_, "run",
                 {"up", "--device", "simulated", "--profile", profile_, "--dataset", Dataset(),
                  "--max-length", "256", "--global-batch", "5", "--iterations", absl::StrCat(kIterations),
                  "--fixed-costs", "--strategies", "pp 2 x dp 1", "--run-dir", folder_.Path("run")});
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 2/"));
  Stop(up);
  const int from = Change("run", "pp 1 x dp 1 x cp 2");
  GoOn(up);
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  ASSERT_LT(from, kIterations);
  const std::vector<Iteration> iterations = Iterations("run");
  for (int i = 0; i < kIterations; ++i) EXPECT_EQ(iterations[i].strategy, i < from ? 0 : 1) << i;
}

// Replicas that differ, in stages and in context ranks.
TEST_F(StrategiesTest, MeshesSideBySideTrainWhatOneMeshTrains) {
  constexpr const char* kSideBySide = "pp 2 x dp 1 + pp 1 x dp 2; pp 1 x dp 1 x cp 2 + pp 2 x dp 1";
  ASSERT_NO_FATAL_FAILURE(Run("beside", {"--strategies", kSideBySide}));
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  ExpectLossesOf("beside", "one");
  EXPECT_THAT(ReadFile(folder_.Path("beside/run.json")).value_or(""), HasSubstr(kSideBySide));
}

// A batch of one sample is on one mesh: the ranks of the other have no passes, but parameters to bring and
// gradients to take.
TEST_F(StrategiesTest, AMeshWithoutSamplesTakesPartInTheStep) {
  const auto run = [&](const std::string& name, std::vector<std::string> mesh) {
    mesh.insert(mesh.end(), {"--global-batch", "1"});
    Run(name, mesh);
  };
  ASSERT_NO_FATAL_FAILURE(run("beside", {"--strategies", "pp 2 x dp 1 + pp 1 x dp 1"}));
  ASSERT_NO_FATAL_FAILURE(run("one", {"--pp", "1", "--dp", "1"}));
  ExpectLossesOf("beside", "one");
}

TEST_F(StrategiesTest, ARunSaysWhichStrategiesItHasAndWhatRanOnThem) {
  PenstockRun up(folder_, "up", Arguments("run", {"--strategies", kStrategies}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output(), HasSubstr(absl::StrCat("an iteration runs on the fastest of 3: ", kStrategies)));
  EXPECT_THAT(up.output(), HasSubstr("iterations by strategy"));
  EXPECT_THAT(ReadFile(folder_.Path("run/run.json")).value_or(""), HasSubstr(kStrategies));
}

// One of which has nothing. A checkpoint knows no shares, so that it may go on with others, or with none.
TEST_F(StrategiesTest, SharesOfDifferentSizeTrainWhatOneMeshTrainsAndGoOnWithOthers) {
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  ASSERT_NO_FATAL_FAILURE(
      Run("run", {"--strategies", kStrategies, "--share-weights", "3,0", "--iterations", "15"}));
  const auto resume = [&](const char* iterations, const std::vector<std::string>& more, const char* said) {
    std::vector<std::string> arguments = {"up",           "--resume", "--run-dir", folder_.Path("run"),
                                          "--iterations", iterations};
    arguments.insert(arguments.end(), more.begin(), more.end());
    PenstockRun up(folder_, absl::StrCat("resumed", iterations), arguments);
    ASSERT_EQ(up.Wait(), 0) << up.errors();
    EXPECT_THAT(up.output() + up.errors(), HasSubstr(said));
  };
  ASSERT_NO_FATAL_FAILURE(resume("30", {"--share-weights", "1,1000"}, "of ranks by these weights: 1,1000"));
  ASSERT_NO_FATAL_FAILURE(resume("40", {"--share-weights", "auto"}, "share weights: "));
  ExpectLossesOf("run", "one");
}

TEST_F(StrategiesTest, ACheckpointOfStrategiesIsGoneOnFromOnOneMeshAndTheOtherWayAround) {
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  ASSERT_NO_FATAL_FAILURE(Run("run", {"--strategies", kStrategies, "--iterations", "15"}));
  const auto resume = [&](const char* iterations, const std::vector<std::string>& mesh) {
    std::vector<std::string> arguments = {"up",           "--resume", "--run-dir", folder_.Path("run"),
                                          "--iterations", iterations};
    arguments.insert(arguments.end(), mesh.begin(), mesh.end());
    PenstockRun up(folder_, "resumed", arguments);
    ASSERT_EQ(up.Wait(), 0) << up.errors();
  };
  ASSERT_NO_FATAL_FAILURE(resume("25", {"--pp", "2", "--dp", "1"}));
  ASSERT_NO_FATAL_FAILURE(resume("40", {"--strategies", kStrategies}));
  ExpectLossesOf("run", "one");
}

TEST_F(StrategiesTest, ARunThatLosesARankForGoodGoesOnWithTheFastestMeshOfThoseThatAreLeft) {
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  PenstockRun up(folder_, "up",
                 Arguments("run", {"--strategies", kStrategies, "--min-ranks", "1", "--max-restarts", "1"}));
  ASSERT_NO_FATAL_FAILURE(LoseForGood(up, /*rank=*/1, "going on with 1 of 2 ranks"));
  ExpectLossesOf("run", "one");
}

TEST_F(StrategiesTest, ARunOnMeshesSideBySideThatLosesARankForGoodGoesOnWithTheOthers) {
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  PenstockRun up(folder_, "up",
                 Arguments("run", {"--strategies", "pp 2 x dp 1 + pp 1 x dp 2", "--min-ranks", "3",
                                   "--max-restarts", "1"}));
  ASSERT_NO_FATAL_FAILURE(LoseForGood(up, /*rank=*/3, "going on with 3 of 4 ranks"));
  ExpectLossesOf("run", "one");
}

}  // namespace
}  // namespace penstock
