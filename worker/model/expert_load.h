// How evenly a router spreads rows over experts: what is counted while a layer's passes run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::worker {

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

  // Rows of the fullest expert over the even share since the last call; 0: there were none.
  double TakeRatio() {
    const double most =
        rows_.empty() ? 0 : static_cast<double>(*std::max_element(rows_.begin(), rows_.end()));
    const double ratio = even_ > 0 ? most / even_ : 0;
    rows_.clear();
    even_ = 0;
    return ratio;
  }

 private:
  std::vector<int64_t> rows_;
  double even_ = 0;
};

}  // namespace penstock::worker
