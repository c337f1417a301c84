#include "planner/service/state/summary_history.h"

#include <utility>

namespace penstock {

SummaryHistory::SummaryHistory(const store::v1::JobSnapshot& saved, uint64_t completed)
    : summaries_(saved.summaries().begin(), saved.summaries().end()) {
  BeginAt(completed);
}

void SummaryHistory::Add(v1::IterationSummary summary) {
  put_aside_.clear();
  summaries_.push_back(std::move(summary));
  if (summaries_.size() > kKept) summaries_.pop_front();
  if (summaries_.size() > kKeptWithLayers)
    summaries_[summaries_.size() - kKeptWithLayers - 1].clear_expert_layers();
}

void SummaryHistory::BeginAt(uint64_t first_iteration) {
  while (!summaries_.empty() && summaries_.back().iteration() >= first_iteration) {
    put_aside_.push_front(std::move(summaries_.back()));
    summaries_.pop_back();
  }
  while (!put_aside_.empty() && put_aside_.front().iteration() < first_iteration) {
    summaries_.push_back(std::move(put_aside_.front()));
    put_aside_.pop_front();
  }
}

void SummaryHistory::Save(store::v1::JobSnapshot* saved) const {
  for (const v1::IterationSummary& summary : summaries_) *saved->add_summaries() = summary;
  for (const v1::IterationSummary& summary : put_aside_) *saved->add_summaries() = summary;
}

}  // namespace penstock
