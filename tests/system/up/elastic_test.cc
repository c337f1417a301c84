// A run that loses ranks for good goes on with those that are left, and takes those that come back: every
// iteration is done, on the same batches, with the losses of an undisturbed run up to the order of sums (in
// float64: training makes much of the little that differs).
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// In place of ssh: runs the command here, unless the host is down.
constexpr const char* kSsh = R"(#!/bin/sh
down=$1; shift
while [ "$1" = -o ]; do shift 2; done
[ -e "$down/$1" ] && exit 255
exec sh -c "$2"
)";

class ElasticTest : public Float64UpTest {
 protected:
  static constexpr int kIterations = 60;
  // Of a loss. Another order of sums differs by 1e-15, of which 150 iterations have made 1e-9; a batch left
  // out or done twice differs by 1e-2.
  static constexpr double kTolerance = 1e-6;

  std::vector<std::string> Arguments(const std::string& run, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments =
        UpArguments({"--pp", "1", "--dp", "2", "--max-length", "128", "--iterations",
                     absl::StrCat(kIterations), "--checkpoint-every", "5", "--dtype", "float64", "--profile",
                     profile_, "--max-restarts", "1", "--run-dir", folder_.Path(run)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // By iteration; of one that was done again, the last.
  std::vector<double> Losses(const std::string& run) const {
    std::istringstream lines(ReadFile(folder_.Path(run) + "/metrics.jsonl").value_or(""));
    std::vector<double> losses(kIterations, NAN);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (json.is_object()) losses[json["iteration"].get<size_t>()] = json["loss"];
    }
    return losses;
  }

  void ExpectLossesOfAnUndisturbedRun(const std::string& run) {
    PenstockRun whole(folder_, "whole", Arguments("whole", {}));
    ASSERT_EQ(whole.Wait(), 0) << whole.errors();
    const std::vector<double> expected = Losses("whole");
    const std::vector<double> losses = Losses(run);
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected[i], kTolerance) << "iteration " << i;
  }

  // As often as it is started, until `up` says the text.
  void KillWorkerUntil(PenstockRun& up, const std::string& run, int rank, const std::string& text) {
    const absl::Time deadline = absl::Now() + kRunDeadline;
    while (absl::Now() < deadline && !absl::StrContains(up.output() + up.errors(), text)) {
      for (const pid_t pid : ProcessesOf(folder_.Path(run), absl::StrCat("--rank=", rank)))
        kill(pid, SIGKILL);
      if (up.process().WaitFor(kPoll).has_value()) break;
    }
    ASSERT_THAT(up.output() + up.errors(), HasSubstr(text));
  }
};

TEST_F(ElasticTest, ARunThatLosesARankForGoodGoesOnWithoutIt) {
  PenstockRun up(folder_, "up", Arguments("run", {"--min-ranks", "1"}));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 7/"));
  ASSERT_NO_FATAL_FAILURE(KillWorkerUntil(up, "run", 1, "going on with 1 of 2 ranks"));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.output(), HasSubstr("from the newest checkpoint"));
  ASSERT_NO_FATAL_FAILURE(ExpectLossesOfAnUndisturbedRun("run"));
}

// As when its GPU is gone: what is started again ends with status 2.
TEST_F(ElasticTest, ARankThatCannotBeStartedAnyMoreIsGoneWithoutThat) {
  const std::string ssh = folder_.Write("ssh", R"(#!/bin/sh
gone=$1; shift
while [ "$1" = -o ]; do shift 2; done
[ -e "$gone/$1" ] && exit 2
exec sh -c "$2"
)");
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  std::filesystem::create_directories(folder_.Path("gone"));
  const std::string hosts = folder_.Write("hosts", "localhost\n127.0.0.1\n");
  PenstockRun up(folder_, "up",
                 Arguments("run", {"--min-ranks", "1", "--hosts", hosts, "--ssh",
                                   absl::StrCat(ssh, " ", folder_.Path("gone"))}));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 7/"));
  folder_.Write("gone/127.0.0.1", "");
  ASSERT_NO_FATAL_FAILURE(KillWorkerUntil(up, "run", 1, "host 127.0.0.1 is lost: 1 ranks are left"));
  EXPECT_EQ(up.Wait(), 0) << up.errors();
}

TEST_F(ElasticTest, ARunThatMayNotShrinkEnds) {
  PenstockRun up(folder_, "up", Arguments("run", {"--min-ranks", "2"}));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 7/"));
  ASSERT_NO_FATAL_FAILURE(KillWorkerUntil(up, "run", 1, "no mesh of 2 to 1 ranks can train this job"));
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_THAT(up.errors(), HasSubstr("worker-1 is not started again"));
}

TEST_F(ElasticTest, AHostThatIsLostIsTakenAgainWhenItIsBack) {
  const std::string ssh = folder_.Write("ssh", kSsh);
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  std::filesystem::create_directories(folder_.Path("down"));
  const std::string hosts = folder_.Write("hosts", "localhost\n127.0.0.1\n");
  // So many that they last until the host is asked again.
  PenstockRun up(folder_, "up",
                 Arguments("run", {"--min-ranks", "1", "--hosts", hosts, "--ssh",
                                   absl::StrCat(ssh, " ", folder_.Path("down")), "--iterations", "100000"}));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 7/"));
  folder_.Write("down/127.0.0.1", "");
  ASSERT_NO_FATAL_FAILURE(KillWorkerUntil(up, "run", 1, "host 127.0.0.1 is lost: 1 ranks are left"));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("going on with 1 of 2 ranks"));
  std::filesystem::remove(folder_.Path("down/127.0.0.1"));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("host 127.0.0.1 answers again"));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("going on with 2 of 2 ranks"));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("job text-"));
  up.process().Signal(SIGINT);
  EXPECT_EQ(up.Wait(), 1) << "stopped by a signal";
}

}  // namespace
}  // namespace penstock
