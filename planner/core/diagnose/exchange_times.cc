#include "planner/core/diagnose/exchange_times.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/median/median.h"
#include "planner/core/diagnose/clearly_slow_link.h"

namespace penstock::core {
namespace {

// The name, whether it is a collective, and the ranks.
using ExchangeKey = std::tuple<int32_t, bool, std::vector<int32_t>>;

// Without ranks where the activity is no exchange.
ExchangeKey KeyOf(const TimelineStep& step, const Activity& activity) {
  const Operation& first = step.operations[activity.operation];
  if (activity.receiver >= 0)
    return {first.name, false, {first.rank, step.operations[activity.receiver].rank}};
  std::vector<int32_t> ranks;
  for (const int32_t member : activity.members) ranks.push_back(step.operations[member].rank);
  std::ranges::sort(ranks);
  return {first.name, true, std::move(ranks)};
}

}  // namespace

bool Exchange::clearly_slow() const {
  return factor >= (foreseen ? kClearlySlowLink : kClearlySlowLinkOfGuesses);
}

ExchangeTimes::ExchangeTimes(const Timeline& timeline, const std::vector<StepGraph>& graphs) {
  std::map<ExchangeKey, int32_t> positions;
  std::vector<std::vector<double>> times;
  for (size_t step = 0; step < graphs.size(); ++step) {
    of_activity_.emplace_back();
    for (size_t i = 0; i < graphs[step].activities.size(); ++i) {
      const Activity& activity = graphs[step].activities[i];
      of_activity_.back().push_back(-1);
      ExchangeKey key = KeyOf(timeline.steps[step], activity);
      if (activity.host || std::get<2>(key).empty()) continue;
      const int64_t expected_ns = timeline.steps[step].operations[activity.operation].expected_ns;
      const auto [found, added] =
          positions.try_emplace(std::move(key), static_cast<int32_t>(exchanges_.size()));
      if (added) {
        const auto& [name, collective, ranks] = found->first;
        exchanges_.push_back(
            {.name = name, .collective = collective, .ranks = ranks, .foreseen = expected_ns > 0});
        times.emplace_back();
      }
      of_activity_.back().back() = found->second;
      times[found->second].push_back(static_cast<double>(graphs[step].durations_ns[i]) /
                                     (expected_ns > 0 ? static_cast<double>(expected_ns) : 1));
    }
  }
  Compare(times);
}

void ExchangeTimes::Compare(std::vector<std::vector<double>>& times) {
  std::map<int32_t, std::vector<double>> transfers, groups;
  for (size_t i = 0; i < exchanges_.size(); ++i) {
    Exchange& exchange = exchanges_[i];
    exchange.factor = UpperMedian(times[i]);
    if (exchange.collective) {
      groups[exchange.name].push_back(exchange.factor);
    } else {
      transfers[exchange.name].insert(transfers[exchange.name].end(), times[i].begin(), times[i].end());
    }
  }
  std::map<std::pair<int32_t, bool>, double> usual;
  for (auto& [name, values] : transfers) usual[{name, false}] = UpperMedian(values);
  for (auto& [name, values] : groups) usual[{name, true}] = LowerMedian(values);
  for (Exchange& exchange : exchanges_) {
    const double of_name = usual[{exchange.name, exchange.collective}];
    exchange.factor = of_name > 0 ? exchange.factor / of_name : 1;
  }
}

}  // namespace penstock::core
