#include "planner/core/contract/check_efficiency.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/wrong_in_profile.h"

namespace penstock::core {
namespace {

constexpr int kMostPoints = 64;
constexpr double kMostTokens = 1e9;
constexpr double kMostTimes = 100;
// Of factors that were written to a file.
constexpr double kRounding = 1e-9;

// Of points that follow each other. Between them time is a parabola of the tokens, whose slope at the second
// one is positive by that.
double LeastFactor(const v1::EfficiencyPoint& before, double tokens) {
  return before.factor() * tokens / (2 * tokens - before.tokens());
}

absl::Status CheckPoint(const std::string& field, double tokens, double factor) {
  if (!(tokens >= 1 && tokens <= kMostTokens))
    return WrongInProfile(field + ".tokens", absl::StrCat(tokens, "; from 1 to ", kMostTokens));
  if (!(factor > 0 && factor <= kMostTimes))
    return WrongInProfile(field + ".factor", absl::StrCat(factor, "; above 0, at most ", kMostTimes));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEfficiency(const std::string& field, const v1::LayerTime& time) {
  const auto& points = time.efficiency();
  if (points.size() > kMostPoints)
    return WrongInProfile(field, absl::StrCat(points.size(), " points; use at most ", kMostPoints));
  if (!points.empty() && time.half_efficiency_tokens() != 0) {
    return WrongInProfile(field, absl::StrCat("stands beside half_efficiency_tokens ",
                                              time.half_efficiency_tokens(), "; leave one of them out"));
  }
  for (int i = 0; i < points.size(); ++i) {
    const double tokens = points[i].tokens(), factor = points[i].factor();
    const std::string at = absl::StrCat(field, "[", i, "]");
    PENSTOCK_RETURN_IF_ERROR(CheckPoint(at, tokens, factor));
    if (i == 0) continue;
    const v1::EfficiencyPoint& before = points[i - 1];
    if (tokens <= before.tokens())
      return WrongInProfile(at + ".tokens", absl::StrCat(tokens, "; points must ascend"));
    const double least = LeastFactor(before, tokens);
    if (factor < least * (1 - kRounding)) {
      return WrongInProfile(at + ".factor",
                            absl::StrCat(factor, "; behind the point before it at least ", least,
                                         ": with less, more tokens would take less time than fewer"));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock::core
