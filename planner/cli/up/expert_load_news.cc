#include "planner/cli/up/expert_load_news.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace penstock::cli {
namespace {

// Routers that learn are a little uneven at all times.
constexpr double kUnevenEnough = 1.25;
// Of a load.
constexpr double kOtherLoad = 0.2;

bool SameLoads(const std::map<uint32_t, double>& before, const std::map<uint32_t, double>& now) {
  return std::equal(before.begin(), before.end(), now.begin(), now.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && std::abs(b.second / a.second - 1) < kOtherLoad;
  });
}

}  // namespace

std::string ExpertLoadNews::Take(const v1::JobStatus& status) {
  std::map<uint32_t, double> uneven;
  for (const v1::ExpertLoad& load : status.expert_loads()) {
    if (load.fullest() >= kUnevenEnough) uneven[load.ranks()] = load.fullest();
  }
  if (SameLoads(said_, uneven)) return "";
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
