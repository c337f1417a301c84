// How evenly a router spreads rows over experts: what is counted while a layer's passes run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace penstock::worker {

// Of the layers of a rank.
struct ExpertLoads {
  // Rows of the fullest expert over an even share, of the layer where that is most; 0: there were none.
  double fullest = 0;
  // Of each layer that has experts, from the lowest up: the rows that came to this rank's, and those that
  // came to the fullest of them.
  std::vector<uint64_t> rows = {};
  std::vector<uint64_t> fullest_rows = {};
  // Where experts take so many rows of a sample at most: those that tokens of this rank asked for, and those
  // of them that were not taken. Of passes that ran again to recompute, again.
  uint64_t routed = 0;
  uint64_t dropped = 0;
};

// Of one layer, on one rank. Not thread-safe.
class ExpertLoad {
 public:
  // Of a micro-batch: `rows` of each of the rank's experts, from all ranks, and what each would have if the
  // rows were spread evenly (as many tokens on every rank).
  void Add(const std::vector<int64_t>& rows, double even) {
    rows_.resize(rows.size(), 0);
    for (size_t i = 0; i < rows.size(); ++i) rows_[i] += rows[i];
    even_ += even;
  }

  void AddRouted(int64_t routed, int64_t dropped) {
    routed_ += static_cast<uint64_t>(routed);
    dropped_ += static_cast<uint64_t>(dropped);
  }

  // Adds what came since the last call.
  void TakeTo(ExpertLoads& loads) {
    const int64_t most = rows_.empty() ? 0 : *std::max_element(rows_.begin(), rows_.end());
    if (even_ > 0) loads.fullest = std::max(loads.fullest, static_cast<double>(most) / even_);
    loads.rows.push_back(static_cast<uint64_t>(std::accumulate(rows_.begin(), rows_.end(), int64_t{0})));
    loads.fullest_rows.push_back(static_cast<uint64_t>(most));
    loads.routed += std::exchange(routed_, 0);
    loads.dropped += std::exchange(dropped_, 0);
    rows_.clear();
    even_ = 0;
  }

 private:
  std::vector<int64_t> rows_;
  double even_ = 0;
  uint64_t routed_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace penstock::worker
