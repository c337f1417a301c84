// The summaries of the iterations that a job has completed, ascending; the newest are kept, and of these the
// newest with what they say layer by layer.
//
// A new epoch that begins with an earlier iteration does it and what follows again: their summaries are put
// aside. They are true after all where an epoch begins behind them before any was done again: a rank that
// looked for a checkpoint too early opened an epoch, which failed at once because others have a newer one.
//
//   SummaryHistory history;
//   history.Add(summary);                 // of each iteration as it is completed
//   history.BeginAt(first_iteration);     // a new epoch
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

class SummaryHistory {
 public:
  static constexpr size_t kKept = 4096;
  // With expert_layers: a kilobyte or two each of models with some dozens of layers.
  static constexpr size_t kKeptWithLayers = 256;

  SummaryHistory() = default;
  // As saved, of a job whose ranks have all reported what is before `completed`: what follows is put aside.
  SummaryHistory(const store::v1::JobSnapshot& saved, uint64_t completed);

  // Of the iteration behind the last one. What was put aside is forgotten.
  void Add(v1::IterationSummary summary);
  // A new epoch begins with this iteration.
  void BeginAt(uint64_t first_iteration);

  const std::deque<v1::IterationSummary>& summaries() const { return summaries_; }
  // With what is put aside.
  void Save(store::v1::JobSnapshot* saved) const;

 private:
  std::deque<v1::IterationSummary> summaries_;
  // Ascending, behind those.
  std::deque<v1::IterationSummary> put_aside_;
};

}  // namespace penstock
