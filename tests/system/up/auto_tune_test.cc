// `penstock up --auto-tune`: every iteration is trained once, on the same batches, whichever ways are tried.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
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

// Three layers of a 7B model on two simulated replicas. Summing gradients over their slow link takes a fifth
// of the iteration, and buckets may go beside the last pass. A head like several layers leaves two stages
// uneven.
class SimulatedAutoTuneTest : public testing::Test {
 protected:
  void SetUp() override {
    Json profile = Json::parse(ReadFile(absl::StrCat(kExamples, "gpt_7b.json")).value_or(""));
    profile["model"]["layers"] = 3;
    Json& head_token = profile["profile"]["layers"][1]["forward"]["target_token_ns"];
    head_token = 3 * head_token.get<double>();
    Json& cluster = profile["profile"]["cluster"];
    cluster["exchange_overlap"] = 1;
    cluster["intra_node_bytes_per_second"] = 4e10;
    cluster["intra_node_collective_bytes_per_second"] = 1e9;
    profile_ = folder_.Write("profile.json", profile.dump());
  }

  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"up",
                                          "--device",
                                          "simulated",
                                          "--time-scale",
                                          "0",
                                          "--profile",
                                          profile_,
                                          "--lengths",
                                          absl::StrCat(kExamples, "lengths.csv"),
                                          "--rows",
                                          "0:16",
                                          "--dp",
                                          "2",
                                          "--max-length",
                                          "8192",
                                          "--memory-mb",
                                          "400000",
                                          "--iterations",
                                          "24",
                                          "--checkpoint-every",
                                          "4",
                                          "--fixed-costs",
                                          "--auto-tune",
                                          "2",
                                          "--auto-tune-iterations",
                                          "4",
                                          "--run-dir",
                                          folder_.Path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static constexpr absl::string_view kExamples = PENSTOCK_SOURCE_DIR "/examples/";
  // In one bucket, as if the run named none.
  static constexpr const char* kOneBucketMib = "1048576";

  TemporaryFolder folder_;
  std::string profile_;
};

// Those that name no size, and those that name one.
TEST_F(SimulatedAutoTuneTest, BucketsThatGoBesideTheLastPassWinAndAreKept) {
  const std::vector<std::vector<std::string>> given = {{}, {"--gradient-bucket-mib", kOneBucketMib}};
  for (const std::vector<std::string>& size : given) {
    std::filesystem::remove_all(folder_.Path("run"));
    PenstockRun tuned(folder_, "tuned", Arguments(size));
    ASSERT_EQ(tuned.Wait(), 0) << tuned.errors();
    EXPECT_THAT(tuned.output() + tuned.errors(),
                ContainsRegex("auto-tune: going on with .*, gradient buckets [0-9]+ MiB: "));
    const Json record = RecordOf(folder_.Path("run"));
    const size_t winner = record["auto_tune"]["winner"];
    ASSERT_GT(winner, 0U) << record["auto_tune"].dump();
    ASSERT_TRUE(record["flags"].contains("--gradient-bucket-mib")) << record["flags"].dump();
    EXPECT_LT(record["auto_tune"]["ways"][winner]["expected_ms"].get<double>(),
              0.95 * record["auto_tune"]["ways"][0]["expected_ms"].get<double>());
    const std::string mib = record["flags"]["--gradient-bucket-mib"][0];
    EXPECT_THAT(record["auto_tune"]["ways"][winner]["way"].get<std::string>(),
                HasSubstr(" --gradient-bucket-mib " + mib));
    EXPECT_NE(mib, kOneBucketMib);
    PenstockRun resumed(folder_, "resumed",
                        {"up", "--resume", "--run-dir", folder_.Path("run"), "--iterations", "26"});
    ASSERT_EQ(resumed.Wait(), 0) << resumed.errors();
    ExpectEachIterationOnce(IterationsOf(folder_.Path("run")), 26);
    EXPECT_EQ(RecordOf(folder_.Path("run"))["flags"]["--gradient-bucket-mib"][0], mib);
  }
}

}  // namespace
}  // namespace penstock
