// A step as a graph of activities that wait for each other: how long it takes when some of them take another
// time.
//
//   ReplayGraph graph;
//   const int32_t pass = graph.Add({begin}, pass_activity);
//   graph.Order();
//   graph.Finish(durations);  // the longest path
//
// The replay of dPRO (Hu et al., MLSys 2022, section 4.3), where a device or link that is taken is an edge,
// too.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace penstock::core {

class ReplayGraph {
 public:
  // Ends when all of `after` have ended and then `activity` has taken its time; -1: no time. The node's
  // number.
  int32_t Add(absl::Span<const int32_t> after, int32_t activity);
  int32_t Add(std::initializer_list<int32_t> after, int32_t activity) {
    return Add(absl::MakeConstSpan(after.begin(), after.size()), activity);
  }
  // One more node to wait for.
  void WaitFor(int32_t node, int32_t after) { edges_.push_back({after, node}); }

  // Before replays. Possible errors: INVALID_ARGUMENT (nodes wait for each other in a circle).
  absl::Status Order();

  // When the last node ends. `durations`: by activity, nanoseconds.
  int64_t Finish(absl::Span<const int64_t> durations) const;
  // The activities that decide when the last node ends, in time's order.
  std::vector<int32_t> CriticalPath(absl::Span<const int64_t> durations) const;

 private:
  struct Edge {
    int32_t from = 0;
    int32_t to = 0;
  };

  std::vector<int64_t> Ends(absl::Span<const int64_t> durations) const;
  absl::Span<const int32_t> Before(int32_t node) const {
    return absl::MakeConstSpan(before_).subspan(before_begin_[node],
                                                before_begin_[node + 1] - before_begin_[node]);
  }

  // By node.
  std::vector<int32_t> activities_;
  std::vector<Edge> edges_;
  // Once ordered: nodes so that each follows what it waits for, and what each waits for.
  std::vector<int32_t> order_;
  std::vector<int32_t> before_;
  std::vector<int32_t> before_begin_;
};

}  // namespace penstock::core
