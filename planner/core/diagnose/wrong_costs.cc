#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/core/diagnose/causes.h"

namespace penstock::core {
namespace {

// Costs are called wrong that are off by so much, and are at least so much of the time of all passes.
constexpr double kWrong = 1.15;
constexpr double kLeastShare = 0.05;

const char* PassName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kForward:
      return "forward";
    case OperationKind::kBackwardInput:
      return "backward-input";
    case OperationKind::kBackwardWeight:
      return "backward-weight";
    default:
      return "backward";
  }
}

// By name, of transfers and collectives that say what was foreseen: what they took once all had come, and
// what was foreseen.
std::map<int32_t, std::pair<double, double>> ExchangesByName(const StepReplays& replays,
                                                             const ExchangeTimes& exchanges) {
  std::map<int32_t, std::pair<double, double>> times;
  replays.ForActivities([&](size_t step, size_t i) {
    const Operation& operation = replays.OperationOf(step, i);
    if (exchanges.Of(step, i) == nullptr || operation.expected_ns <= 0) return;
    auto& [measured, foreseen] = times[operation.name];
    measured += replays.NanosecondsOf(step, i);
    foreseen += static_cast<double>(operation.expected_ns);
  });
  return times;
}

// What is off most.
class WorstCosts {
 public:
  void Offer(double ratio, const std::string& subject) {
    const double off = std::abs(std::log(ratio));
    if (off < std::log(kWrong) || off <= std::abs(std::log(cause_.factor))) return;
    cause_.factor = ratio;
    cause_.subject = subject;
  }
  const Cause& cause() const { return cause_; }

 private:
  Cause cause_ = {.kind = CauseKind::kWrongCosts};
};

}  // namespace

void AddWrongCosts(const StepReplays& replays, const PassTimes& passes, const ExchangeTimes& exchanges,
                   Causes& causes) {
  if (!passes.known_work()) return;
  WorstCosts worst;
  for (const ForeseenRatio& of : passes.ForeseenRatios()) {
    if (of.share >= kLeastShare)
      worst.Offer(of.ratio, absl::StrCat(PassName(of.kind), " of stage ", of.model_stage));
  }
  double pass_ns = 0;
  replays.ForPasses(
      [&](size_t step, size_t i, const Operation&) { pass_ns += replays.NanosecondsOf(step, i); });
  for (const auto& [name, times] : ExchangesByName(replays, exchanges)) {
    const auto [measured, foreseen] = times;
    if (std::max(measured, foreseen) >= kLeastShare * pass_ns && measured > 0)
      worst.Offer(measured / foreseen, replays.timeline().names[name]);
  }
  if (!worst.cause().subject.empty()) causes.AddWithoutReplay(worst.cause());
}

}  // namespace penstock::core
