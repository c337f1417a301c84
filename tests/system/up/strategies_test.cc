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
      if (one.is_object()) iterations[one["iteration"].get<size_t>()] = {one["loss"], one["strategy"]};
    }
    return iterations;
  }

  void ExpectLossesOf(const std::string& run, const std::string& expected) {
    const std::vector<Iteration> a = Iterations(run), b = Iterations(expected);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i].loss, b[i].loss, kTolerance) << "iteration " << i;
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
};

TEST_F(StrategiesTest, IterationsOnDifferentStrategiesTrainWhatOneMeshTrains) {
  ASSERT_NO_FATAL_FAILURE(Run("pool", {"--strategies", kStrategies}));
  ASSERT_NO_FATAL_FAILURE(Run("one", {"--pp", "1", "--dp", "1"}));
  ExpectLossesOf("pool", "one");
  std::set<int> used;
  for (const Iteration& iteration : Iterations("pool")) used.insert(iteration.strategy);
  EXPECT_GE(used.size(), 2) << "all batches took one strategy: the test shows nothing";
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
