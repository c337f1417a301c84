#include "planner/service/engine/job_traces.h"

namespace penstock {

void JobTraces::TakeUpBatchesLocked() {
  const absl::Time now = record_.TimeOfDay();
  for (uint64_t iteration = record_.state().progress().completed();
       iteration < record_.state().admission().next_iteration(); ++iteration)
    accepted_[iteration] = now;
}

void JobTraces::NoteEndLocked(uint64_t iteration, EndedBatches& ended) {
  const auto found = accepted_.find(iteration);
  if (found == accepted_.end()) return;
  ended.emplace_back(iteration, found->second);
  accepted_.erase(found);
}

void JobTraces::TellOfTry(uint64_t iteration, const PlanningTimes& times, const absl::Status& status,
                          const v1::Plan* plan) const {
  // The store cannot be read now, or nobody wants the plan any more: there will be another try, or none.
  if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return;
  record_.services().observer->OnPlanningTried({.job_id = record_.id(),
                                                .iteration = iteration,
                                                .status = status,
                                                .queued = times.queued,
                                                .began = times.began,
                                                .ended = record_.TimeOfDay(),
                                                .made = times.made,
                                                .plan = plan});
}

void JobTraces::TellOfFailures(const EndedBatches& batches, const absl::Status& why) const {
  for (const auto& [iteration, accepted] : batches) {
    record_.services().observer->OnBatchEnded({.job_id = record_.id(),
                                               .iteration = iteration,
                                               .accepted = accepted,
                                               .ended = record_.TimeOfDay(),
                                               .status = why});
  }
}

void JobTraces::TellOfEnds(const EndedBatches& batches,
                           const std::vector<v1::IterationSummary>& summaries) const {
  for (const auto& [iteration, accepted] : batches) {
    for (const v1::IterationSummary& summary : summaries) {
      if (summary.iteration() != iteration) continue;
      record_.services().observer->OnBatchEnded({.job_id = record_.id(),
                                                 .iteration = iteration,
                                                 .accepted = accepted,
                                                 .ended = record_.TimeOfDay(),
                                                 .status = absl::OkStatus(),
                                                 .summary = &summary});
    }
  }
}

}  // namespace penstock
