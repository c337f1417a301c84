#include "worker/runtime/launcher_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "tests/support/status_matchers.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<std::optional<LauncherRank>> RankIn(const Variables& variables) {
  return RankOfLauncher([&](const std::string& name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second.c_str() : nullptr;
  });
}

// "3 of SLURM_PROCID"; "none".
std::string Found(const Variables& variables) {
  const auto rank = RankIn(variables);
  if (!rank.ok()) return std::string(rank.status().message());
  return rank->has_value() ? std::to_string((*rank)->rank) + " of " + (*rank)->variable : "none";
}

TEST(LauncherRank, IsThatOfTheVariableThatIsSet) {
  EXPECT_EQ(Found({{"SLURM_PROCID", "3"}}), "3 of SLURM_PROCID");
  EXPECT_EQ(Found({{"JOB_COMPLETION_INDEX", "0"}}), "0 of JOB_COMPLETION_INDEX");
  EXPECT_EQ(Found({{"OMPI_COMM_WORLD_RANK", "12"}}), "12 of OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(Found({{"RANK", "7"}}), "7 of RANK");
}

TEST(LauncherRank, IsNoneWhereNothingNumbersItsProcesses) {
  EXPECT_EQ(Found({}), "none");
  EXPECT_EQ(Found({{"SLURM_JOB_ID", "8"}, {"LOCAL_RANK", "1"}}), "none");
  EXPECT_EQ(Found({{"RANK", ""}}), "none") << "empty is not set";
}

TEST(LauncherRank, IsThatOfTheInnermostLauncher) {
  // mpirun within a Slurm allocation: every process of a host has the SLURM_PROCID of mpirun's daemon there.
  EXPECT_EQ(Found({{"SLURM_PROCID", "0"}, {"OMPI_COMM_WORLD_RANK", "5"}}), "5 of OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(Found({{"SLURM_PROCID", "1"}, {"RANK", "9"}}), "9 of RANK");
  EXPECT_EQ(Found({{"JOB_COMPLETION_INDEX", "2"}, {"RANK", "17"}}), "17 of RANK");
  EXPECT_EQ(Found({{"JOB_COMPLETION_INDEX", "2"}, {"SLURM_PROCID", "4"}}), "4 of SLURM_PROCID");
  EXPECT_EQ(Found({{"RANK", ""}, {"SLURM_PROCID", "4"}}), "4 of SLURM_PROCID");
}

TEST(LauncherRank, ThatIsNoNumberIsAnErrorWithItsVariable) {
  for (const char* value : {"x", "-1", "3.5", "4294967296", "2147483648", "1 2"}) {
    const auto rank = RankIn({{"SLURM_PROCID", value}, {"JOB_COMPLETION_INDEX", "1"}});
    EXPECT_THAT(rank, Fails(absl::StatusCode::kInvalidArgument, "SLURM_PROCID")) << value;
    EXPECT_THAT(Found({{"SLURM_PROCID", value}}), HasSubstr(value));
  }
}

}  // namespace
}  // namespace penstock::worker
