// `penstock up --auto-tune`: every iteration is trained once, on the same batches, whichever ways are tried.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Lines of metrics.jsonl.
std::vector<Json> IterationsOf(const std::string& run_dir) {
  std::istringstream lines(ReadFile(run_dir + "/metrics.jsonl").value_or(""));
  std::vector<Json> iterations;
  for (std::string line; std::getline(lines, line);)
    iterations.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
  return iterations;
}

void ExpectEachIterationOnce(const std::vector<Json>& iterations, size_t count) {
  ASSERT_EQ(iterations.size(), count);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(iterations[i]["iteration"], i);
}

Json RecordOf(const std::string& run_dir) {
  return Json::parse(ReadFile(run_dir + "/run.json").value_or(""), nullptr, /*allow_exceptions=*/false);
}

class AutoTuneTest : public Float64UpTest {
 protected:
  static constexpr int kIterations = 40;
  // Another order of sums differs by 1e-15, which training makes more of; a batch left out differs by 1e-2.
  static constexpr double kTolerance = 1e-6;

  std::vector<std::string> Arguments(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments =
        UpArguments({"--pp", "2", "--dp", "1", "--policy", "padding", "--max-length", "128", "--iterations",
                     absl::StrCat(kIterations), "--dtype", "float64", "--profile", profile_, "--run-dir",
                     folder_.Path(run)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(AutoTuneTest, EveryIterationIsTrainedOnceWithTheLossesOfAnUntunedRun) {
  PenstockRun tuned(folder_, "tuned",
                    Arguments("tuned", {"--auto-tune", "2", "--auto-tune-iterations", "5"}));
  ASSERT_EQ(tuned.Wait(), 0) << tuned.errors();
  EXPECT_THAT(tuned.output(), AllOf(HasSubstr("auto-tune: trying way 1 of 2 for 5 iterations: "),
                                    HasSubstr("auto-tune: trying way 2 of 2 for 5 iterations: "),
                                    HasSubstr("auto-tune: going on with ")));
  PenstockRun whole(folder_, "whole", Arguments("whole", {}));
  ASSERT_EQ(whole.Wait(), 0) << whole.errors();
  const std::vector<Json> iterations = IterationsOf(folder_.Path("tuned"));
  const std::vector<Json> expected = IterationsOf(folder_.Path("whole"));
  ASSERT_NO_FATAL_FAILURE(ExpectEachIterationOnce(iterations, kIterations));
  ASSERT_NO_FATAL_FAILURE(ExpectEachIterationOnce(expected, kIterations));
  for (size_t i = 0; i < iterations.size(); ++i)
    EXPECT_NEAR(iterations[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), kTolerance) << i;
  const Json record = RecordOf(folder_.Path("tuned"));
  ASSERT_EQ(record["auto_tune"]["ways"].size(), 3U);
  EXPECT_TRUE(record["auto_tune"]["winner"].is_number());
  EXPECT_FALSE(record["flags"].contains("--auto-tune"))
      << "the winner is gone on with, and not searched again";
}

TEST_F(AutoTuneTest, ARunThatIsResumedGoesOnWithTheWinner) {
  PenstockRun tuned(folder_, "tuned", Arguments("run", {"--auto-tune", "1", "--auto-tune-iterations", "4"}));
  ASSERT_EQ(tuned.Wait(), 0) << tuned.errors();
  const Json before = RecordOf(folder_.Path("run"));
  PenstockRun resumed(folder_, "resumed",
                      {"up", "--resume", "--run-dir", folder_.Path("run"), "--iterations", "44"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.errors();
  ASSERT_NO_FATAL_FAILURE(ExpectEachIterationOnce(IterationsOf(folder_.Path("run")), 44));
  const Json after = RecordOf(folder_.Path("run"));
  EXPECT_EQ(after["auto_tune"], before["auto_tune"]);
  EXPECT_EQ(after["job"]["mesh"], before["job"]["mesh"]);
}

TEST_F(AutoTuneTest, ATooShortRunIsRefusedBeforeItTrains) {
  PenstockRun up(folder_, "up", Arguments("run", {"--auto-tune", "9", "--auto-tune-iterations", "8"}));
  EXPECT_EQ(up.Wait(), 2);
  EXPECT_THAT(up.errors(), HasSubstr("--iterations 40: --auto-tune 9 takes 80 of them"));
}

}  // namespace
}  // namespace penstock
