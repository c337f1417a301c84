#include <algorithm>
#include <map>

#include "planner/core/diagnose/causes.h"

namespace penstock::core {
namespace {

// Links, or groups of ranks.
void AddSlowExchanges(const StepReplays& replays, const ExchangeTimes& exchanges, bool collectives,
                      Causes& causes) {
  const auto exchange_of = [&](size_t step, size_t i) {
    const Exchange* const exchange = exchanges.Of(step, i);
    return exchange != nullptr && exchange->collective == collectives ? exchange : nullptr;
  };
  // By ranks: its time beyond that of others of its names, and how many times as long it takes.
  std::map<std::vector<int32_t>, double> lost, factors;
  replays.ForActivities([&](size_t step, size_t i) {
    const Exchange* const exchange = exchange_of(step, i);
    if (exchange == nullptr || !exchange->clearly_slow()) return;
    lost[exchange->ranks] += replays.NanosecondsOf(step, i) * (1 - 1 / exchange->factor);
    double& most = factors.try_emplace(exchange->ranks, 0.0).first->second;
    most = std::max(most, exchange->factor);
  });
  for (const std::vector<int32_t>& ranks : WorstOf(lost)) {
    Cause cause = collectives
                      ? Cause{.kind = CauseKind::kSlowRing, .ring = ranks}
                      : Cause{.kind = CauseKind::kSlowLink, .rank = ranks.front(), .peer = ranks.back()};
    cause.factor = factors[ranks];
    causes.Add(cause, [&](size_t step, size_t i, double duration) {
      const Exchange* const exchange = exchange_of(step, i);
      return exchange != nullptr && exchange->ranks == ranks ? duration / exchange->factor : duration;
    });
  }
}

}  // namespace

void AddExchangeCauses(const StepReplays& replays, const ExchangeTimes& exchanges, Causes& causes) {
  AddSlowExchanges(replays, exchanges, /*collectives=*/false, causes);
  AddSlowExchanges(replays, exchanges, /*collectives=*/true, causes);
}

}  // namespace penstock::core
