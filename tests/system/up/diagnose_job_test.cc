// The job of a planner that lives is asked where its time went.
#include <nlohmann/json.hpp>

#include "tests/support/planner_process.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// Simulated ranks, of which one is slow, on a planner that outlives the run.
class DiagnoseJobTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = PlannerProcess::Start(PENSTOCK_PLANNER);
    ASSERT_TRUE(started.ok()) << started.status();
    planner_ = *std::move(started);
    Train("slow", {"--dp", "2", "--slow-rank", "2:1.5", "--iterations", "6", "--fixed-costs"});
  }

  // A job on simulated devices, with two stages of GPT 7B. Returns what it printed.
  std::string Train(const std::string& job, const std::vector<std::string>& more) {
    const std::string examples = absl::StrCat(PENSTOCK_SOURCE_DIR, "/examples");
    std::vector<std::string> arguments = {"up",
                                          "--device",
                                          "simulated",
                                          "--profile",
                                          examples + "/gpt_7b.json",
                                          "--lengths",
                                          examples + "/lengths.csv",
                                          "--rows",
                                          "0:64",
                                          "--max-length",
                                          "4096",
                                          "--pp",
                                          "2",
                                          "--time-scale",
                                          "0",
                                          "--planner",
                                          planner_->address(),
                                          "--job-id",
                                          job,
                                          "--run-dir",
                                          folder_.Path(job)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    PenstockRun up(folder_, "up_" + job, arguments);
    EXPECT_EQ(up.Wait(), 0) << up.errors();
    return up.output() + up.errors();
  }

  const TemporaryFolder folder_;
  std::unique_ptr<PlannerProcess> planner_;
};

TEST_F(DiagnoseJobTest, NamesTheSlowRankFromThePlannersReportsAndFromTheTraceOfThem) {
  PenstockRun asked(folder_, "asked", {"diagnose", "--planner", planner_->address(), "--job", "slow"});
  ASSERT_EQ(asked.Wait(), 0) << asked.errors();
  EXPECT_THAT(asked.output(), HasSubstr("6 steps of 4 ranks"));
  EXPECT_THAT(asked.output(), HasSubstr("rank 2 (replica 1, stage 0) computes 1.5"));

  const std::string trace = folder_.Path("trace.json");
  PenstockRun traced(
      folder_, "traced",
      {"trace", "--planner", planner_->address(), "--job", "slow", "--iterations", "2:5", "--out", trace});
  ASSERT_EQ(traced.Wait(), 0) << traced.errors();
  PenstockRun read(folder_, "read", {"diagnose", "--trace", trace});
  ASSERT_EQ(read.Wait(), 0) << read.errors();
  EXPECT_THAT(read.output(), HasSubstr("3 steps of 4 ranks"));
  EXPECT_THAT(read.output(), HasSubstr("rank 2 (replica 1, stage 0) computes 1.5"));
}

// Two tensor ranks each, which wait for each other in every pass.
TEST_F(DiagnoseJobTest, NamesTheSlowRankInsideItsStageGroup) {
  const auto train = [&](const std::string& job, std::vector<std::string> more) {
    more.insert(more.end(), {"--tp", "2", "--slow-rank", "3:1.3"});
    return Train(job, more);
  };
  const auto diagnosed = [&](const std::string& job) {
    PenstockRun asked(folder_, "asked_" + job, {"diagnose", "--planner", planner_->address(), "--job", job});
    EXPECT_EQ(asked.Wait(), 0) << asked.errors();
    return asked.output();
  };
  train("groups", {"--iterations", "6", "--fixed-costs"});
  EXPECT_THAT(diagnosed("groups"), HasSubstr("rank 3 (replica 0, stage 1) computes 1.30 times"));
  EXPECT_THAT(diagnosed("groups"), testing::Not(HasSubstr("rank 2 (replica 0, stage 1) computes")));
  const std::string trace = folder_.Path("groups.json");
  PenstockRun traced(folder_, "traced",
                     {"trace", "--planner", planner_->address(), "--job", "groups", "--out", trace});
  ASSERT_EQ(traced.Wait(), 0) << traced.errors();
  PenstockRun read(folder_, "read", {"diagnose", "--trace", trace});
  ASSERT_EQ(read.Wait(), 0) << read.errors();
  EXPECT_THAT(read.output(), HasSubstr("rank 3 (replica 0, stage 1) computes 1.30 times"));

  // Fitted costs name it, and it is slow all the same.
  EXPECT_THAT(train("fitted", {"--iterations", "16"}),
              HasSubstr("rank 3 takes 1.30 times as long as others"));
  EXPECT_THAT(diagnosed("fitted"), HasSubstr("rank 3 (replica 0, stage 1) computes 1."));
}

TEST_F(DiagnoseJobTest, NamesTheFlagThatAsksForWhatIsNotThere) {
  const auto refused = [&](std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), "diagnose");
    PenstockRun run(folder_, "refused", arguments);
    EXPECT_EQ(run.Wait(), code);
    return run.errors();
  };
  EXPECT_THAT(refused({}, 2), HasSubstr("give either --trace, or --planner and --job"));
  EXPECT_THAT(refused({"--job", "slow"}, 2), HasSubstr("--job needs --planner"));
  EXPECT_THAT(refused({"--planner", planner_->address(), "--job", "other"}, 2), HasSubstr("--job other: "));
  EXPECT_THAT(refused({"--planner", planner_->address(), "--job", "slow", "--iterations", "5:5"}, 2),
              HasSubstr("--iterations 5:5: use N"));
  EXPECT_THAT(refused({"--planner", planner_->address(), "--job", "slow", "--iterations", "6:9"}, 2),
              HasSubstr("of job slow, with 6 iterations, the planner holds none of them"));
}

TEST_F(DiagnoseJobTest, IsAdvisedByThePlannerAndByTheFolderOfItsRun) {
  PenstockRun of_job(
      folder_, "of_job",
      {"advise", "--planner", planner_->address(), "--job", "slow", "--batches", "2", "--json"});
  ASSERT_EQ(of_job.Wait(), 0) << of_job.errors();
  const auto by_planner = nlohmann::json::parse(of_job.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(by_planner.is_object()) << of_job.output();
  EXPECT_EQ(by_planner["ranks"], 4);
  EXPECT_EQ(by_planner["present"]["pp"], 2);
  EXPECT_GT(by_planner["levers"].size(), 5U);
  EXPECT_TRUE(by_planner["start_seconds"].is_null());
  PenstockRun of_run(folder_, "of_run",
                     {"advise", "--from-run", folder_.Path("slow"), "--batches", "2", "--json"});
  ASSERT_EQ(of_run.Wait(), 0) << of_run.errors();
  const auto by_folder = nlohmann::json::parse(of_run.output(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(by_folder.is_object()) << of_run.output();
  EXPECT_GT(by_folder["start_seconds"], 0);
  EXPECT_EQ(by_folder["planned_ms"], by_planner["planned_ms"]);
  EXPECT_EQ(by_folder["levers"], by_planner["levers"]);
}

}  // namespace
}  // namespace penstock
