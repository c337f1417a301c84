#include "planner/cli/up/expert_load_news.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/cli/up/same_figures.h"

namespace penstock::cli {
namespace {

// Routers that learn are a little uneven at all times.
constexpr double kUnevenEnough = 1.25;
// Of a load.
constexpr double kOtherLoad = 0.2;

}  // namespace

std::string ExpertLoadNews::Take(const v1::JobStatus& status) {
  std::map<uint32_t, double> uneven;
  for (const v1::ExpertLoad& load : status.expert_loads()) {
    if (load.fullest() >= kUnevenEnough) uneven[load.ranks()] = load.fullest();
  }
  if (SameFigures(said_, uneven, kOtherLoad)) return "";
  said_ = uneven;
  if (uneven.empty()) return "routers use the experts of all ranks about evenly again";
  std::vector<std::string> parts;
  for (const auto& [ranks, fullest] : uneven)
    parts.push_back(absl::StrFormat(
        "of %d ranks that divide experts the fullest has %.2f times its share of rows", ranks, fullest));
  return absl::StrJoin(parts, ", ") +
         ": the others wait for it, and plans count with that. A larger --router-balance-loss evens routers "
         "out";
}

}  // namespace penstock::cli
