#include "planner/core/partition/groups.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "planner/core/partition/first_fit.h"

namespace penstock::core {
namespace {

// Of the mean load.
constexpr double kEndsHeadStart = 0.75;

// `group` is one of the groups or the next.
void Put(uint32_t sample, size_t group, Groups* groups) {
  if (group == groups->size()) groups->emplace_back();
  (*groups)[group].push_back(sample);
}

}  // namespace

std::vector<uint32_t> DescendingOrder(absl::Span<const double> sizes) {
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  return order;
}

Groups FixedSizeGroups(int samples, int size) {
  Groups groups;
  for (int begin = 0; begin < samples; begin += size) {
    std::vector<uint32_t> group(std::min(size, samples - begin));
    std::iota(group.begin(), group.end(), begin);
    groups.push_back(std::move(group));
  }
  return groups;
}

Groups BudgetGroups(absl::Span<const double> sizes, double cap) {
  Groups groups;
  double used = 0;
  for (uint32_t sample = 0; sample < sizes.size(); ++sample) {
    if (groups.empty() || used + sizes[sample] > cap) {
      groups.emplace_back();
      used = 0;
    }
    groups.back().push_back(sample);
    used += sizes[sample];
  }
  return groups;
}

Groups FirstFitDecreasing(absl::Span<const double> sizes, double cap) {
  Groups groups;
  FirstFit bins(sizes.size(), {cap, 0});
  for (const uint32_t sample : DescendingOrder(sizes)) Put(sample, bins.Place({sizes[sample], 0}), &groups);
  return groups;
}

Groups FirstFitRows(absl::Span<const SampleTokens> samples, RowLengths row) {
  Groups rows;
  FirstFit bins(samples.size(), {static_cast<double>(row.source), static_cast<double>(row.target)});
  for (uint32_t sample = 0; sample < samples.size(); ++sample) {
    const FirstFit::Size size = {static_cast<double>(samples[sample].source),
                                 static_cast<double>(samples[sample].target)};
    Put(sample, bins.Place(size), &rows);
  }
  return rows;
}

Groups CutOrder(absl::Span<const uint32_t> order, absl::Span<const int> ends) {
  Groups groups;
  groups.reserve(ends.size());
  int begin = 0;
  for (const int end : ends) {
    const absl::Span<const uint32_t> part = order.subspan(begin, end - begin);
    groups.emplace_back(part.begin(), part.end());
    begin = end;
  }
  return groups;
}

Groups Join(const Groups& groups, int size) {
  Groups joined;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i % size == 0) joined.emplace_back();
    joined.back().insert(joined.back().end(), groups[i].begin(), groups[i].end());
  }
  return joined;
}

Groups BalancedGroups(absl::Span<const double> sizes, int count, bool small_ends) {
  return BalancedGroups(sizes, DescendingOrder(sizes), count, small_ends);
}

Groups BalancedGroups(absl::Span<const double> sizes, absl::Span<const uint32_t> descending, int count,
                      bool small_ends) {
  Groups groups(std::min<size_t>(count, sizes.size()));
  using Load = std::pair<double, uint32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  // A group that is to be small starts with a load that it does not have.
  double head_start = 0;
  if (small_ends && groups.size() >= 4) {
    for (const double size : sizes) head_start += size;
    head_start *= kEndsHeadStart / static_cast<double>(groups.size());
  }
  for (uint32_t group = 0; group < groups.size(); ++group) {
    const bool end = group == 0 || group + 1 == groups.size();
    loads.push({end ? head_start : 0, group});
  }
  for (const uint32_t sample : descending) {
    const auto [load, group] = loads.top();
    loads.pop();
    groups[group].push_back(sample);
    loads.push({load + sizes[sample], group});
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const auto& group) { return group.empty(); }),
               groups.end());
  return groups;
}

Groups BalancedGroups(absl::Span<const double> sizes, absl::Span<const double> speeds) {
  return BalancedGroups(sizes, speeds, [](uint32_t, size_t) { return true; });
}

Groups BalancedGroups(absl::Span<const double> sizes, absl::Span<const double> speeds, MayTake may_take) {
  Groups groups(speeds.size());
  std::vector<double> loads(speeds.size(), 0);
  size_t empty = groups.size();
  size_t left = sizes.size();
  // The group that would be done first, of those that `is_asked`; as many as there are groups: none.
  const auto first_of = [&](uint32_t sample, auto is_asked) {
    size_t first = groups.size();
    double first_end = 0;
    for (size_t group = 0; group < groups.size(); ++group) {
      if (!is_asked(group)) continue;
      const double end = (loads[group] + sizes[sample]) / speeds[group];
      if (first < groups.size() && end >= first_end) continue;
      first = group;
      first_end = end;
    }
    return first;
  };
  for (const uint32_t sample : DescendingOrder(sizes)) {
    const bool only_empty = left-- <= empty;
    const auto takes = [&](size_t group) { return may_take(sample, group); };
    size_t first = groups.size();
    if (only_empty)
      first = first_of(sample, [&](size_t group) { return groups[group].empty() && takes(group); });
    if (first == groups.size()) first = first_of(sample, takes);
    if (first == groups.size()) first = first_of(sample, [](size_t) { return true; });
    if (groups[first].empty()) --empty;
    groups[first].push_back(sample);
    loads[first] += sizes[sample];
  }
  return groups;
}

Groups WeightedGroups(absl::Span<const double> sizes, absl::Span<const uint32_t> descending,
                      absl::Span<const double> weights) {
  return WeightedGroups(sizes, descending, weights, [](uint32_t, size_t) { return true; });
}

Groups WeightedGroups(absl::Span<const double> sizes, absl::Span<const uint32_t> descending,
                      absl::Span<const double> weights, MayTake may_take) {
  const double total = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  const double all_weights = std::accumulate(weights.begin(), weights.end(), 0.0);
  using Lack = std::pair<double, uint32_t>;
  std::priority_queue<Lack> lacks;
  for (uint32_t group = 0; group < weights.size(); ++group) {
    lacks.push({total * weights[group] / all_weights, group});
  }
  Groups groups(weights.size());
  // Those that lack more than the one that takes a sample.
  std::vector<Lack> passed;
  for (const uint32_t sample : descending) {
    while (!lacks.empty() && !may_take(sample, lacks.top().second)) {
      passed.push_back(lacks.top());
      lacks.pop();
    }
    if (lacks.empty()) {
      lacks.push(passed.front());
      passed.erase(passed.begin());
    }
    const auto [lack, group] = lacks.top();
    lacks.pop();
    groups[group].push_back(sample);
    lacks.push({lack - sizes[sample], group});
    for (const Lack& one : passed) lacks.push(one);
    passed.clear();
  }
  return groups;
}

}  // namespace penstock::core
