#include "planner/cli/up/slow_rank_news.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/cli/up/same_figures.h"

namespace penstock::cli {
namespace {

// Ranks that share cores take turns in being a little slower.
constexpr double kWorthNaming = 1.15;
// Of a factor.
constexpr double kWorthSaying = 0.1;

}  // namespace

std::string SlowRankNews::Take(const v1::JobStatus& status) {
  std::map<uint32_t, double> slow;
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.slow_factor() >= kWorthNaming) slow[worker.rank()] = worker.slow_factor();
  }
  // Workers that begin again are missing for a while.
  if (status.state() != v1::JOB_STATE_RUNNING || SameFigures(said_, slow, kWorthSaying)) return "";
  said_ = slow;
  if (slow.empty()) return "no rank is slower than the others any more";
  std::vector<std::string> parts;
  for (const auto& [rank, factor] : slow)
    parts.push_back(
        absl::StrFormat("rank %d takes %.2f times as long as others for the same work", rank, factor));
  return absl::StrJoin(parts, ", ") +
         ": plans count with it. `penstock diagnose` says what mending it would bring";
}

}  // namespace penstock::cli
