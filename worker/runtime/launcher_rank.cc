#include "worker/runtime/launcher_rank.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

constexpr const char* kVariables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"};
// Of the contract, where -1 is any rank.
constexpr uint32_t kMostRank = INT32_MAX;

}  // namespace

absl::StatusOr<std::optional<LauncherRank>> RankOfLauncher(const Environment& environment) {
  for (const char* variable : kVariables) {
    const char* value = environment(variable);
    if (value == nullptr || *value == '\0') continue;
    LauncherRank rank{.variable = variable};
    if (absl::SimpleAtoi(value, &rank.rank) && rank.rank <= kMostRank) return rank;
    return absl::InvalidArgumentError(absl::StrCat("environment variable ", variable, " is '", value,
                                                   "', which is no rank: unset it, or give --rank"));
  }
  return std::optional<LauncherRank>();
}

}  // namespace penstock::worker
