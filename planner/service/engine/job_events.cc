// Job: from a decision to an event.
#include <utility>

#include "common/logging/logging.h"
#include "planner/service/engine/job.h"

namespace penstock {
namespace {

// Replaying so many events takes milliseconds.
constexpr uint64_t kEventsBetweenSnapshots = 16384;

}  // namespace

JobChange Job::ChangeLocked(const store::v1::Event& event, StoredBatches batches) {
  JobChange change{.job = key_,
                   .first_sequence = ++events_,
                   .events = {event.SerializeAsString()},
                   .batches = std::move(batches)};
  if (events_ == 1) change.job_id = id_;
  return change;
}

void Job::ApplyLocked(const store::v1::Event& event) {
  state_.Apply(event);
  if (event.worker_registered().opens_epoch()) {
    const uint64_t first = event.worker_registered().first_iteration();
    values_.DropReportsFrom(first);
    sent_.assign(sent_.size(), first);
  }
}

void Job::RecordLocked(store::v1::Event event, StoredBatches batches, Committed committed, Urgency urgency) {
  event.set_unix_ns(absl::ToUnixNanos(services_.clock->TimeOfDay()));
  JobChange change = ChangeLocked(event, std::move(batches));
  const uint64_t first_held = state_.first_held();
  ApplyLocked(event);
  if (state_.first_held() != first_held) {
    change.forget_batches_before = state_.first_held();
    values_.DropBefore(state_.first_held());
    wanted_.erase(wanted_.begin(), wanted_.lower_bound(state_.first_held()));
    lost_plans_.erase(lost_plans_.begin(), lost_plans_.lower_bound(state_.first_held()));
  }
  if (events_ - snapshot_events_ >= kEventsBetweenSnapshots) {
    snapshot_events_ = events_;
    change.snapshot = penstock::Snapshot{events_, state_.Save().SerializeAsString()};
    // What it does not say comes behind it.
    for (const store::v1::Event& carried : state_.SaveChanges()) {
      ++events_;
      change.events.push_back(carried.SerializeAsString());
    }
  }
  LogNewsLocked();
  services_.journal->Append(
      payer_, std::move(change),
      committed == nullptr
          ? Journal::Committed()
          : [self = shared_from_this(), committed = std::move(committed)] { committed(*self); },
      urgency);
}

void Job::LogNewsLocked() {
  const Membership& membership = state_.membership();
  if (membership.ready() && logged_ready_epoch_ != membership.epoch()) {
    logged_ready_epoch_ = membership.epoch();
    LogInfo("all workers are there",
            {{"job", id_}, {"epoch", membership.epoch()}, {"ranks", state_.ranks()}});
  }
  if (std::string failure = membership.failure(); failure != logged_failure_) {
    logged_failure_ = std::move(failure);
    if (!logged_failure_.empty()) {
      LogError("epoch failed", {{"job", id_}, {"epoch", membership.epoch()}, {"reason", logged_failure_}});
    }
  }
  if (state_.finished() && !logged_finished_) {
    logged_finished_ = true;
    LogInfo("job finished", {{"job", id_}, {"iterations", state_.progress().completed()}});
  }
}

}  // namespace penstock
