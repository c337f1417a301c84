// A planner whose disk is lost, and a store from a backup: the job goes on.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

class BackupTest : public UpTest {
 protected:
  // On `port`; 0: a free one.
  void StartPlanner(const std::string& store, int port) {
    const std::string ports = folder_.Path("ports");
    std::filesystem::remove(ports);
    auto started =
        ChildProcess::Start({.arguments = {PENSTOCK_PLANNER, absl::StrCat("--listen=127.0.0.1:", port),
                                           absl::StrCat("--store=sqlite:", folder_.Path(store)),
                                           absl::StrCat("--port-file=", ports)},
                             .environment = {},
                             .log_path = folder_.Path("planner.log"),
                             .output_path = folder_.Path("planner.out")});
    ASSERT_TRUE(started.ok()) << started.status();
    planner_ = *std::move(started);
    while (!std::filesystem::exists(ports)) ASSERT_FALSE(planner_->WaitFor(kPoll).has_value());
    port_ = nlohmann::json::parse(*ReadFile(ports))["planner_port"];
  }

  std::string Planner() const { return absl::StrCat("127.0.0.1:", port_); }

  void Run(const std::vector<std::string>& arguments, const std::string& says) {
    PenstockRun run(folder_, arguments.front(), arguments);
    ASSERT_EQ(run.Wait(), 0) << run.errors();
    EXPECT_THAT(run.output(), HasSubstr(says));
  }

  std::unique_ptr<ChildProcess> planner_;
  int port_ = 0;
};

TEST_F(BackupTest, AJobThatIsNewerThanTheRestoredStoreGoesOnFromItsCheckpointWithTheSameLosses) {
  const std::vector<std::string> flags = {"--iterations", "60", "--checkpoint-every", "5", "--json"};
  std::vector<std::string> alone = flags;
  alone.insert(alone.end(), {"--run-dir", folder_.Path("whole")});
  PenstockRun whole(folder_, "whole", UpArguments(alone));
  ASSERT_EQ(whole.Wait(), 0) << whole.errors();
  const std::vector<std::string> undisturbed = ProgressOf(whole.errors());
  ASSERT_EQ(undisturbed.size(), 60);

  ASSERT_NO_FATAL_FAILURE(StartPlanner("lost.db", 0));
  std::vector<std::string> fed = flags;
  fed.insert(fed.end(), {"--planner", Planner()});
  PenstockRun up(folder_, "up", UpArguments(fed));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 3/"));
  ASSERT_NO_FATAL_FAILURE(Run({"backup", "--planner", Planner(), "--to", folder_.Path("backup")}, " MB in "));
  ASSERT_NO_FATAL_FAILURE(up.WaitForText("iteration 30/"));
  planner_->Signal(SIGKILL);
  ASSERT_TRUE(planner_->WaitFor(absl::Seconds(20)).has_value());
  std::filesystem::remove(folder_.Path("lost.db"));
  ASSERT_NO_FATAL_FAILURE(Run({"restore", "--from", folder_.Path("backup"), "--to",
                               absl::StrCat("sqlite:", folder_.Path("restored.db"))},
                              "1 job"));
  ASSERT_NO_FATAL_FAILURE(StartPlanner("restored.db", port_));

  EXPECT_EQ(up.Wait(), 0) << up.errors();
  const std::vector<std::string> progress = ProgressOf(up.errors());
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back(), undisturbed.back());
  const std::set<std::string> all(undisturbed.begin(), undisturbed.end());
  for (const std::string& line : progress) EXPECT_TRUE(all.contains(line)) << line;
}

}  // namespace
}  // namespace penstock
