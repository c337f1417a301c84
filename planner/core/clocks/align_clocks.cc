#include "planner/core/clocks/align_clocks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "common/median/median.h"

namespace penstock::core {
namespace {

using Messages = std::vector<ClockMessage>;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
// Slopes need some iterations, and are taken from so many around one: clocks change their speed with their
// temperature.
constexpr size_t kFewestForDrift = 4;
constexpr size_t kIterationsForDrift = 16;
// What times may be wrong by, at first; doubled until nothing contradicts.
constexpr double kLeastSlackNs = 1000;

// The clock of `to` is ahead of that of `from` by at most `most_ns`.
struct ClockBound {
  uint32_t from = 0;
  uint32_t to = 0;
  double most_ns = 0;
};

double Corrected(const RankClock& clock, int64_t time_ns) {
  return static_cast<double>(time_ns) - clock.drift * static_cast<double>(time_ns - clock.since_ns);
}

// Of each pair its quickest message, by clocks without their drift.
std::vector<ClockBound> BoundsOf(const Messages& messages, const ClockSet& clocks) {
  std::map<std::pair<uint32_t, uint32_t>, double> quickest;
  for (const ClockMessage& message : messages) {
    const double took = Corrected(clocks[message.to], message.arrived_ns) -
                        Corrected(clocks[message.from], message.started_ns);
    const auto [found, added] = quickest.try_emplace({message.from, message.to}, took);
    if (!added) found->second = std::min(found->second, took);
  }
  std::vector<ClockBound> bounds;
  for (const auto& [pair, took] : quickest) bounds.push_back({pair.first, pair.second, took});
  return bounds;
}

// How far each clock can be ahead of rank 0's at most (`backwards`: behind it), with so much slack a message:
// shortest paths by Bellman and Ford. None where bounds contradict each other.
std::optional<std::vector<double>> Furthest(const std::vector<ClockBound>& bounds, size_t ranks, double slack,
                                            bool backwards) {
  std::vector<double> furthest(ranks, kUnbounded);
  furthest[0] = 0;
  for (size_t round = 0; round <= ranks; ++round) {
    bool changed = false;
    for (const ClockBound& bound : bounds) {
      const auto [near, far] = backwards ? std::pair(bound.to, bound.from) : std::pair(bound.from, bound.to);
      const double reached = furthest[near] + bound.most_ns + slack;
      if (!(reached < furthest[far])) continue;
      furthest[far] = reached;
      changed = true;
    }
    if (!changed) return furthest;
  }
  return std::nullopt;
}

// Sets offsets and uncertainties; drifts stay.
void PlaceClocks(const std::vector<ClockBound>& bounds, ClockSet& clocks) {
  for (double slack = 0;; slack = std::max(kLeastSlackNs, 2 * slack)) {
    const auto ahead = Furthest(bounds, clocks.size(), slack, /*backwards=*/false);
    const auto behind = Furthest(bounds, clocks.size(), slack, /*backwards=*/true);
    if (!ahead.has_value() || !behind.has_value()) continue;
    for (size_t rank = 0; rank < clocks.size(); ++rank) {
      RankClock& clock = clocks[rank];
      clock.known = (*ahead)[rank] < kUnbounded && (*behind)[rank] < kUnbounded;
      if (!clock.known) continue;
      clock.offset_ns = ((*ahead)[rank] - (*behind)[rank]) / 2;
      clock.uncertainty_ns = ((*ahead)[rank] + (*behind)[rank]) / 2;
    }
    return;
  }
}

// Leaves clocks as they are, and says how far they could be apart.
void LeaveClocks(ClockSet& clocks) {
  for (RankClock& clock : clocks) {
    clock.uncertainty_ns += std::abs(clock.offset_ns);
    clock.offset_ns = 0;
  }
}

bool Agree(const std::vector<Messages>& iterations) {
  return std::ranges::all_of(iterations, [](const Messages& messages) {
    return std::ranges::all_of(
        messages, [](const ClockMessage& message) { return message.arrived_ns >= message.started_ns; });
  });
}

double MedianSlope(const std::vector<std::pair<double, double>>& points) {
  std::vector<double> slopes;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      const double apart = points[j].first - points[i].first;
      if (apart > 0) slopes.push_back((points[j].second - points[i].second) / apart);
    }
  }
  return UpperMedian(slopes);
}

// Of each iteration from those around it: the median of the slopes of all pairs (Theil 1950, Sen 1968).
void MeasureDrifts(std::vector<ClockSet>& clocks) {
  const size_t ranks = clocks.front().size();
  for (size_t i = 0; i < clocks.size(); ++i) {
    const size_t first = std::min(i - std::min(i, kIterationsForDrift / 2),
                                  clocks.size() - std::min(clocks.size(), kIterationsForDrift));
    const size_t end = std::min(clocks.size(), first + kIterationsForDrift);
    for (size_t rank = 1; rank < ranks; ++rank) {
      std::vector<std::pair<double, double>> points;
      for (size_t k = first; k < end; ++k) {
        const RankClock& clock = clocks[k][rank];
        if (clock.known) points.emplace_back(static_cast<double>(clock.since_ns), clock.offset_ns);
      }
      clocks[i][rank].drift = MedianSlope(points);
    }
  }
}

// With the middle of each rank's messages as the time at which its offset is meant.
ClockSet ClocksAt(uint32_t ranks, const Messages& messages) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<std::pair<int64_t, int64_t>> spans(ranks, {kNone, std::numeric_limits<int64_t>::min()});
  const auto widen = [&](uint32_t rank, int64_t time_ns) {
    spans[rank] = {std::min(spans[rank].first, time_ns), std::max(spans[rank].second, time_ns)};
  };
  for (const ClockMessage& message : messages) {
    widen(message.from, message.started_ns);
    widen(message.to, message.arrived_ns);
  }
  ClockSet clocks(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (spans[rank].first == kNone) continue;
    clocks[rank].since_ns = spans[rank].first + (spans[rank].second - spans[rank].first) / 2;
  }
  return clocks;
}

}  // namespace

int64_t RankClock::ToReference(int64_t time_ns) const {
  return time_ns - std::llround(offset_ns + drift * static_cast<double>(time_ns - since_ns));
}

std::vector<ClockSet> AlignClocks(uint32_t ranks, const std::vector<Messages>& iterations) {
  std::vector<ClockSet> clocks;
  if (ranks == 0) return clocks;
  const auto place_all = [&] {
    for (size_t i = 0; i < iterations.size(); ++i) PlaceClocks(BoundsOf(iterations[i], clocks[i]), clocks[i]);
  };
  for (const Messages& messages : iterations) clocks.push_back(ClocksAt(ranks, messages));
  place_all();
  if (Agree(iterations)) {
    for (ClockSet& of_iteration : clocks) LeaveClocks(of_iteration);
  } else if (iterations.size() >= kFewestForDrift) {
    MeasureDrifts(clocks);
    place_all();
  }
  return clocks;
}

}  // namespace penstock::core
