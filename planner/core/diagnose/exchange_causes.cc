#include <algorithm>
#include <map>
#include <set>

#include "planner/core/diagnose/causes.h"

namespace penstock::core {
namespace {

// A link is one whichever way it is slow: whoever mends it mends both.
std::vector<int32_t> PlaceOf(const Exchange& exchange) {
  std::vector<int32_t> ranks = exchange.ranks;
  std::ranges::sort(ranks);
  return ranks;
}

// What is known of a place where exchanges are slow.
struct SlowPlace {
  double factor = 0;
  // Those of its exchanges, as they say it: of a link that is slow one way its from and to.
  std::set<std::vector<int32_t>> ways;
};

Cause CauseOf(bool collectives, const std::vector<int32_t>& ranks, const SlowPlace& place) {
  if (collectives) return {.kind = CauseKind::kSlowRing, .ring = ranks, .factor = place.factor};
  const std::vector<int32_t>& way = *place.ways.begin();
  return {.kind = CauseKind::kSlowLink,
          .rank = way.front(),
          .peer = way.back(),
          .both_ways = place.ways.size() > 1,
          .factor = place.factor};
}

// Links, or groups of ranks.
void AddSlowExchanges(const StepReplays& replays, const ExchangeTimes& exchanges, bool collectives,
                      Causes& causes) {
  const auto exchange_of = [&](size_t step, size_t i) {
    const Exchange* const exchange = exchanges.Of(step, i);
    return exchange != nullptr && exchange->collective == collectives ? exchange : nullptr;
  };
  // By ranks: its time beyond that of others of its names, and how many times as long it takes.
  std::map<std::vector<int32_t>, double> lost;
  std::map<std::vector<int32_t>, SlowPlace> places;
  replays.ForActivities([&](size_t step, size_t i) {
    const Exchange* const exchange = exchange_of(step, i);
    if (exchange == nullptr || !exchange->clearly_slow()) return;
    const std::vector<int32_t> ranks = PlaceOf(*exchange);
    lost[ranks] += replays.NanosecondsOf(step, i) * (1 - 1 / exchange->factor);
    SlowPlace& place = places[ranks];
    place.factor = std::max(place.factor, exchange->factor);
    place.ways.insert(exchange->ranks);
  });
  for (const std::vector<int32_t>& ranks : WorstOf(lost)) {
    causes.Add(CauseOf(collectives, ranks, places[ranks]), [&](size_t step, size_t i, double duration) {
      const Exchange* const exchange = exchange_of(step, i);
      const bool own = exchange != nullptr && exchange->clearly_slow() && PlaceOf(*exchange) == ranks;
      return own ? duration / exchange->factor : duration;
    });
  }
}

}  // namespace

void AddExchangeCauses(const StepReplays& replays, const ExchangeTimes& exchanges, Causes& causes) {
  AddSlowExchanges(replays, exchanges, /*collectives=*/false, causes);
  AddSlowExchanges(replays, exchanges, /*collectives=*/true, causes);
}

}  // namespace penstock::core
