// Which iterations each rank has reported. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/store/v1/job_log.pb.h"
#include "planner/service/state/iteration_counter.h"

namespace penstock {

class Progress {
 public:
  Progress(uint32_t ranks, uint64_t first)
      : reported_(ranks, IterationCounter(first)), last_reported_(ranks, -1) {}
  explicit Progress(const store::v1::JobSnapshot& saved)
      : reported_(saved.reported().begin(), saved.reported().end()),
        last_reported_(saved.last_reported().begin(), saved.last_reported().end()) {}

  // The first iteration that not every rank has reported.
  uint64_t completed() const {
    const auto slowest = std::min_element(reported_.begin(), reported_.end(),
                                          [](const auto& a, const auto& b) { return a.next() < b.next(); });
    return slowest->next();
  }

  bool IsReported(uint32_t rank, uint64_t iteration) const { return reported_[rank].Contains(iteration); }
  void Report(uint32_t rank, uint64_t iteration) {
    reported_[rank].Add(iteration);
    last_reported_[rank] = std::max(last_reported_[rank], static_cast<int64_t>(iteration));
  }
  // The last iteration that the rank reported in this epoch, or -1.
  int64_t last_reported(uint32_t rank) const { return last_reported_[rank]; }

  // A new epoch: all ranks do `first` and what follows (again).
  void Restart(uint64_t first) {
    for (IterationCounter& counter : reported_) counter.Reset(first);
    std::fill(last_reported_.begin(), last_reported_.end(), -1);
  }

  void Save(store::v1::JobSnapshot* saved) const {
    for (const IterationCounter& counter : reported_) *saved->add_reported() = counter.Save();
    saved->mutable_last_reported()->Add(last_reported_.begin(), last_reported_.end());
  }

 private:
  // By rank.
  std::vector<IterationCounter> reported_;
  std::vector<int64_t> last_reported_;
};

}  // namespace penstock
