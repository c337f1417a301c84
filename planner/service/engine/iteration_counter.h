// Counts iterations that are done in any order: how far are all of them done without a gap?
//
//   IterationCounter planned(/*first=*/10);
//   planned.Add(11);
//   planned.next();   // 10: still missing
//   planned.Add(10);
//   planned.next();   // 12
#pragma once

#include <cstdint>
#include <set>

namespace penstock {

class IterationCounter {
 public:
  explicit IterationCounter(uint64_t first) : next_(first) {}

  // The first iteration that is not done.
  uint64_t next() const { return next_; }

  bool Contains(uint64_t iteration) const { return iteration < next_ || beyond_.count(iteration) > 0; }

  // False when it was done already.
  bool Add(uint64_t iteration) {
    if (Contains(iteration)) return false;
    beyond_.insert(iteration);
    while (!beyond_.empty() && *beyond_.begin() == next_) {
      beyond_.erase(beyond_.begin());
      ++next_;
    }
    return true;
  }

  // Starts anew: everything before `first` is done, nothing after it.
  void Reset(uint64_t first) {
    next_ = first;
    beyond_.clear();
  }

 private:
  uint64_t next_;
  // Done, but not all before them.
  std::set<uint64_t> beyond_;
};

}  // namespace penstock
