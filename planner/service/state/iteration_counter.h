// Counts iterations that are done in any order: how far are all of them done without a gap?
//
//   IterationCounter planned(/*first=*/10);
//   planned.Add(11);
//   planned.next();   // 10: still missing
//   planned.Add(10);
//   planned.next();   // 12
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>

#include "penstock/store/v1/job_log.pb.h"

namespace penstock {

class IterationCounter {
 public:
  explicit IterationCounter(uint64_t first) : next_(first) {}
  explicit IterationCounter(const store::v1::IterationsDone& saved)
      : next_(saved.next()), beyond_(saved.beyond().begin(), saved.beyond().end()) {}

  // The first iteration that is not done.
  uint64_t next() const { return next_; }

  bool Contains(uint64_t iteration) const { return iteration < next_ || beyond_.count(iteration) > 0; }

  // False when it was done already.
  bool Add(uint64_t iteration) {
    if (Contains(iteration)) return false;
    beyond_.insert(iteration);
    SkipTo(next_);
    return true;
  }

  // Starts anew: everything before `first` is done, nothing after it.
  void Reset(uint64_t first) {
    next_ = first;
    beyond_.clear();
  }

  // Everything before `first` counts as done.
  void SkipTo(uint64_t first) {
    next_ = std::max(next_, first);
    beyond_.erase(beyond_.begin(), beyond_.lower_bound(next_));
    while (!beyond_.empty() && *beyond_.begin() == next_) {
      beyond_.erase(beyond_.begin());
      ++next_;
    }
  }

  store::v1::IterationsDone Save() const {
    store::v1::IterationsDone saved;
    saved.set_next(next_);
    saved.mutable_beyond()->Add(beyond_.begin(), beyond_.end());
    return saved;
  }

 private:
  uint64_t next_;
  // Done, but not all before them.
  std::set<uint64_t> beyond_;
};

}  // namespace penstock
