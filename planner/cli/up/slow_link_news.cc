#include "planner/cli/up/slow_link_news.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/cli/up/same_figures.h"

namespace penstock::cli {
namespace {

// Ranks that share cores have some transfers wait for a core.
constexpr double kSlowEnough = 3;
// Of a factor.
constexpr double kOtherFactor = 0.25;
// A slow ring names all its steps over its slowest kind of link.
constexpr size_t kMostNamed = 4;

}  // namespace

std::string SlowLinkNews::Take(const v1::JobStatus& status) {
  std::map<std::pair<uint32_t, uint32_t>, double> slow;
  for (const v1::SlowLink& link : status.slow_links()) {
    if (link.factor() >= kSlowEnough) slow[{link.from(), link.to()}] = link.factor();
  }
  if (SameFigures(said_, slow, kOtherFactor)) return "";
  said_ = slow;
  if (slow.empty()) return "no link is slower than the others any more";
  std::vector<std::string> parts;
  for (const auto& [ends, factor] : slow) {
    if (parts.size() == kMostNamed) break;
    parts.push_back(absl::StrFormat("the link from rank %d to rank %d takes %.1f times as long as others",
                                    ends.first, ends.second, factor));
  }
  if (slow.size() > parts.size())
    parts.push_back(absl::StrCat("and ", slow.size() - parts.size(), " more links do"));
  return absl::StrJoin(parts, ", ") +
         ": plans count with it. `penstock diagnose` says what mending it would bring";
}

}  // namespace penstock::cli
