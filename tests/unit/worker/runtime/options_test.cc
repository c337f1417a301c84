#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/runtime/worker_options.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

CommandLine Parse(std::vector<std::string> arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), "penstock-worker");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return ParseCommandLine(static_cast<int>(pointers.size()), pointers.data(), [&](const std::string& name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  });
}

TEST(WorkerOptions, WhoeverStartsAWorkerMayGiveItAKeyThatNoCommandLineShows) {
  const std::vector<std::string> arguments = {"--planner=h:1", "--job=j", "--dataset=d"};
  EXPECT_EQ(Parse(arguments).run.incarnation_key, "");
  EXPECT_EQ(Parse(arguments, {{"PENSTOCK_INCARNATION_KEY", "secret"}}).run.incarnation_key, "secret");
}

TEST(WorkerOptions, AreReadFromTheCommandLine) {
  const CommandLine command = Parse(
      {"--planner", "h:1", "--job=j", "--dataset", "d", "--rank", "3", "--checkpoint-dir", "c", "--resume"});
  ASSERT_FALSE(command.exit_status.has_value());
  EXPECT_EQ(command.run.planner, "h:1");
  EXPECT_EQ(command.run.rank, 3u);
  EXPECT_TRUE(command.run.resume);
  EXPECT_FALSE(command.run.no_rescue);
  EXPECT_EQ(command.run.threads, 1u);
  EXPECT_FALSE(command.profile.has_value());
}

TEST(WorkerOptions, ARescueCanBeLeftOut) {
  EXPECT_TRUE(Parse({"--planner=h:1", "--job=j", "--dataset=d", "--no-rescue"}).run.no_rescue);
}

TEST(WorkerOptions, TheTasksOfAMixtureKeepTheirOrder) {
  EXPECT_THAT(Parse({"--planner=h:1", "--job=j", "--dataset=d"}).run.datasets, ElementsAre("d"));
  EXPECT_THAT(Parse({"--planner=h:1", "--job=j", "--mix=b/x=0.7,a:c/x=0.3"}).run.datasets,
              ElementsAre("b/x", "c/x"));
}

TEST(WorkerOptions, TheRankIsThatOfTheLauncherUnlessItIsGiven) {
  const std::vector<std::string> flags = {"--planner=h:1", "--job=j", "--dataset=d"};
  const Variables srun = {{"SLURM_PROCID", "3"}};
  EXPECT_EQ(Parse(flags, srun).run.rank, 3u);
  EXPECT_EQ(Parse(flags, srun).run.rank_from, "SLURM_PROCID");
  EXPECT_EQ(Parse(flags).run.rank, std::nullopt);
  EXPECT_EQ(Parse(flags).run.rank_from, "");
  std::vector<std::string> with_rank = flags;
  with_rank.emplace_back("--rank=1");
  EXPECT_EQ(Parse(with_rank, srun).run.rank, 1u);
  EXPECT_EQ(Parse(with_rank, srun).run.rank_from, "--rank");
  EXPECT_FALSE(Parse(with_rank, {{"SLURM_PROCID", "x"}}).exit_status.has_value()) << "not asked for";
}

TEST(WorkerOptions, ALaunchersRankThatIsNoneEndsWithStatusTwoAndNamesTheVariable) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Parse({"--planner=h:1", "--job=j", "--dataset=d"}, {{"SLURM_PROCID", "one"}}).exit_status, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("SLURM_PROCID"), HasSubstr("one"), HasSubstr("--rank")));
}

TEST(WorkerOptions, HelpEndsWithStatusZero) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--help"}).exit_status, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("--planner"));
}

TEST(WorkerOptions, VersionEndsWithStatusZero) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--version"}).exit_status, 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("penstock-worker 0"));
}

TEST(WorkerOptions, WrongUsageEndsWithStatusTwoAndNamesTheFlag) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--job=j", "--dataset=d"}, "--planner"},
      {{"--planner=h:1", "--dataset=d"}, "--job"},
      {{"--planner=h:1", "--job=j"}, "--dataset"},
      {{"--planner=h:1", "--job=j", "--dataset=d", "--resume"}, "--checkpoint-dir"},
      {{"--planner=h:1", "--job=j", "--dataset=d", "--device=tpu"}, "--device"},
      {{"--planner=h:1", "--job=j", "--dataset=d", "--threads=0"}, "--threads"},
      {{"--planner=h:1", "--job=j", "--dataset=d", "--slow-rank=1:2"}, "--slow-rank"},
      {{"--planner=h:1", "--job=j", "--device=simulated", "--slow-rank=2"}, "--slow-rank"},
      {{"profile", "--out=o"}, "--model-json"},
      {{"profile", "--model-json=m", "--out=o", "--device=simulated"}, "--device"},
      {{"profile", "--model-json=m", "--out=o", "--tensor=2,0"}, "--tensor"},
  };
  for (const auto& [arguments, flag] : cases) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Parse(arguments).exit_status, 2) << flag;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(flag));
  }
}

TEST(WorkerOptions, ASimulatedDeviceNeedsNoDataset) {
  const CommandLine command =
      Parse({"--planner=h:1", "--job=j", "--device=simulated", "--time-scale=0", "--stall=1:2:3"});
  ASSERT_FALSE(command.exit_status.has_value());
  EXPECT_EQ(command.run.simulation.time_scale, 0);
  ASSERT_EQ(command.run.simulation.stalls.size(), 1u);
  EXPECT_EQ(command.run.simulation.stalls[0].seconds, 3);
}

TEST(WorkerOptions, ProfilingNeedsNoPlanner) {
  const CommandLine command = Parse({"profile", "--model-json", "m", "--out", "o", "--seconds", "2.5"});
  ASSERT_FALSE(command.exit_status.has_value());
  ASSERT_TRUE(command.profile.has_value());
  EXPECT_EQ(command.profile->seconds, 2.5);
  EXPECT_EQ(command.profile->device, "cpu");
}

TEST(WorkerOptions, ProfilesAreMeasuredAtTheTensorDegreesThatAreNamed) {
  EXPECT_TRUE(Parse({"profile", "--model-json", "m", "--out", "o"}).profile->tensor.empty());
  const CommandLine command = Parse({"profile", "--model-json", "m", "--out", "o", "--tensor", "2,8"});
  ASSERT_TRUE(command.profile.has_value());
  EXPECT_EQ(command.profile->tensor, (std::vector<int>{2, 8}));
}

TEST(WorkerOptions, ProfilesAreMeasuredOnCoresOfTheirOwnUnlessSaidOtherwise) {
  EXPECT_FALSE(Parse({"profile", "--model-json", "m", "--out", "o"}).profile->shared_cores);
  EXPECT_TRUE(Parse({"profile", "--model-json", "m", "--out", "o", "--shared-cores"}).profile->shared_cores);
  EXPECT_EQ(
      Parse({"profile", "--model-json", "m", "--out", "o", "--side-by-side", "4"}).profile->side_by_side, 4);
}

TEST(WorkerOptions, ProfilesAndChecksHaveSharesOfContextRanksThatAreNamed) {
  EXPECT_TRUE(Parse({"profile", "--model-json", "m", "--out", "o"}).profile->context.empty());
  const std::vector<int> both = {2, 4};
  EXPECT_EQ(Parse({"profile", "--model-json", "m", "--out", "o", "--context", "2,4"}).profile->context, both);
  EXPECT_EQ(
      Parse({"profile-check", "--model-json", "m", "--out", "o", "--context", "2,4"}).profile_check->context,
      both);
}

TEST(WorkerOptions, ProfilesHaveLinksUnlessAnotherMeasuresThem) {
  EXPECT_FALSE(Parse({"profile", "--model-json", "m", "--out", "o"}).profile->without_links);
  EXPECT_TRUE(
      Parse({"profile", "--model-json", "m", "--out", "o", "--without-links"}).profile->without_links);
}

TEST(WorkerOptions, ProfilesAreMeasuredOnTheDeviceThatIsNamed) {
  const CommandLine command = Parse({"profile", "--model-json", "m", "--out", "o", "--device", "cuda:3"});
  ASSERT_TRUE(command.profile.has_value());
  EXPECT_EQ(command.profile->device, "cuda:3");
}

}  // namespace
}  // namespace penstock::worker
