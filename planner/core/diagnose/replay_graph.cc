#include "planner/core/diagnose/replay_graph.h"

#include <algorithm>

namespace penstock::core {

int32_t ReplayGraph::Add(absl::Span<const int32_t> after, int32_t activity) {
  const auto node = static_cast<int32_t>(activities_.size());
  activities_.push_back(activity);
  for (const int32_t before : after) WaitFor(node, before);
  return node;
}

absl::Status ReplayGraph::Order() {
  const size_t nodes = activities_.size();
  before_begin_.assign(nodes + 1, 0);
  std::vector<std::vector<int32_t>> after(nodes);
  for (const Edge& edge : edges_) {
    ++before_begin_[edge.to + 1];
    after[edge.from].push_back(edge.to);
  }
  for (size_t i = 0; i < nodes; ++i) before_begin_[i + 1] += before_begin_[i];
  before_.resize(edges_.size());
  std::vector<int32_t> filled = before_begin_;
  for (const Edge& edge : edges_) before_[filled[edge.to]++] = edge.from;

  std::vector<int32_t> waits(nodes);
  order_.clear();
  for (size_t i = 0; i < nodes; ++i) {
    waits[i] = before_begin_[i + 1] - before_begin_[i];
    if (waits[i] == 0) order_.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < order_.size(); ++i) {
    for (const int32_t next : after[order_[i]]) {
      if (--waits[next] == 0) order_.push_back(next);
    }
  }
  if (order_.size() < nodes) return absl::InvalidArgumentError("operations wait for each other in a circle");
  return absl::OkStatus();
}

std::vector<int64_t> ReplayGraph::Ends(absl::Span<const int64_t> durations) const {
  std::vector<int64_t> ends(activities_.size(), 0);
  for (const int32_t node : order_) {
    int64_t begin = 0;
    for (const int32_t before : Before(node)) begin = std::max(begin, ends[before]);
    ends[node] = begin + (activities_[node] < 0 ? 0 : durations[activities_[node]]);
  }
  return ends;
}

int64_t ReplayGraph::Finish(absl::Span<const int64_t> durations) const {
  const std::vector<int64_t> ends = Ends(durations);
  return ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end());
}

std::vector<int32_t> ReplayGraph::CriticalPath(absl::Span<const int64_t> durations) const {
  const std::vector<int64_t> ends = Ends(durations);
  std::vector<int32_t> path;
  if (ends.empty()) return path;
  auto node = static_cast<int32_t>(std::max_element(ends.begin(), ends.end()) - ends.begin());
  for (;;) {
    if (activities_[node] >= 0) path.push_back(activities_[node]);
    const absl::Span<const int32_t> before = Before(node);
    if (before.empty()) break;
    node = *std::max_element(before.begin(), before.end(),
                             [&](int32_t one, int32_t other) { return ends[one] < ends[other]; });
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace penstock::core
