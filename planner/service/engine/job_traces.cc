// Job: what it tells its observer of each batch on its way.
#include <optional>
#include <utility>
#include <vector>

#include "planner/service/engine/job.h"

namespace penstock {

void Job::TakeUpBatchesLocked() {
  const absl::Time now = record_.TimeOfDay();
  for (uint64_t iteration = record_.state().progress().completed(); iteration < durable_batches_; ++iteration)
    accepted_[iteration] = now;
}

void Job::NoteEndLocked(uint64_t iteration, EndedBatches& ended) {
  const auto found = accepted_.find(iteration);
  if (found == accepted_.end()) return;
  ended.emplace_back(iteration, found->second);
  accepted_.erase(found);
}

void Job::TellOfTry(uint64_t iteration, const PlanningTimes& times,
                    const absl::StatusOr<PlannedBatch>& planned) const {
  // The store cannot be read now, or nobody wants the plan any more: there will be another try, or none.
  if (absl::IsUnavailable(planned.status()) || absl::IsCancelled(planned.status())) return;
  record_.services().observer->OnPlanningTried({.job_id = record_.id(),
                                                .iteration = iteration,
                                                .status = planned.status(),
                                                .queued = times.queued,
                                                .began = times.began,
                                                .ended = record_.TimeOfDay(),
                                                .made = times.made,
                                                .plan = planned.ok() ? &planned->plan->frame() : nullptr});
}

void Job::TellOfFailures(const EndedBatches& batches, const absl::Status& why) const {
  for (const auto& [iteration, accepted] : batches) {
    record_.services().observer->OnBatchEnded({.job_id = record_.id(),
                                               .iteration = iteration,
                                               .accepted = accepted,
                                               .ended = record_.TimeOfDay(),
                                               .status = why});
  }
}

void Job::TellOfEnds(const EndedBatches& batches, const std::vector<v1::IterationSummary>& summaries) const {
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
