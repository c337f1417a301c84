#include "planner/service/engine/job_record.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "planner/service/engine/payer.h"

namespace penstock {
namespace {

// Replaying so many events takes milliseconds.
constexpr uint64_t kEventsBetweenSnapshots = 16384;

}  // namespace

JobRecord::JobRecord(uint64_t key, JobState state, uint64_t events, const JobServices& services)
    : key_(key),
      spec_(state.RegisteredSpec()),
      id_(spec_.job_id()),
      payer_(PayerOf(spec_)),
      serialized_spec_(spec_.SerializeAsString()),
      services_(services),
      state_(std::move(state)),
      events_(events),
      snapshot_events_(events) {}

// Compared as bytes: a profile may hold NaN, which is never equal to itself.
bool JobRecord::HasSpec(const v1::JobSpec& spec) const {
  return spec.SerializeAsString() == serialized_spec_;
}

bool JobRecord::TryReserve(PlanningClass kind) const { return services_.pool->TryReserve(kind, payer_, 1); }

PlanningTicketPtr JobRecord::Run(PlanningClass kind, int64_t bytes, PlanningPool::Task task) const {
  return services_.pool->Run(
      {.kind = kind, .owner = payer_, .limit = services_.planning_limit, .bytes = bytes, .job = id_},
      [job = KeepJob(), task = std::move(task)](const PlanningTicket& ticket) { task(ticket); });
}

void JobRecord::BeginLocked(const store::v1::Event& registered) {
  services_.journal->Append(payer_, ChangeLocked(registered, {}));
  LogNewsLocked();
}

JobChange JobRecord::ChangeLocked(const store::v1::Event& event, StoredBatches batches) {
  JobChange change{.job = key_,
                   .first_sequence = ++events_,
                   .events = {event.SerializeAsString()},
                   .batches = std::move(batches)};
  if (events_ == 1) change.job_id = id_;
  return change;
}

void JobRecord::ApplyLocked(const store::v1::Event& event, JobChange* change) {
  const uint64_t first_held = state_.first_held();
  state_.Apply(event);
  if (event.worker_registered().opens_epoch())
    values_.DropReportsFrom(event.worker_registered().first_iteration());
  if (state_.first_held() == first_held) return;
  change->forget_batches_before = state_.first_held();
  values_.DropBefore(state_.first_held());
}

void JobRecord::SaveIfDueLocked(JobChange* change) {
  if (events_ - snapshot_events_ < kEventsBetweenSnapshots) return;
  snapshot_events_ = events_;
  change->snapshot = penstock::Snapshot{events_, state_.Save().SerializeAsString()};
  // What it does not say comes behind it.
  for (const store::v1::Event& carried : state_.SaveChanges()) {
    ++events_;
    change->events.push_back(carried.SerializeAsString());
  }
}

void JobRecord::AppendLocked(store::v1::Event event, StoredBatches batches, Committed committed,
                             Urgency urgency) {
  event.set_unix_ns(absl::ToUnixNanos(TimeOfDay()));
  JobChange change = ChangeLocked(event, std::move(batches));
  ApplyLocked(event, &change);
  SaveIfDueLocked(&change);
  LogNewsLocked();
  services_.journal->Append(
      payer_, std::move(change),
      committed == nullptr ? Journal::Committed()
                           : [job = KeepJob(), committed = std::move(committed)] { committed(); },
      urgency);
}

void JobRecord::LogNewsLocked() {
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

const v1::CostProfile& JobRecord::CostsInEffectLocked() const {
  const store::v1::CostsRevised* const costs = state_.LastCosts();
  return costs == nullptr ? spec_.profile() : costs->profile();
}

const v1::CostProfile& JobRecord::CostsOfLocked(uint64_t iteration) const {
  const store::v1::CostsRevised* const costs = state_.CostsOf(iteration);
  return costs == nullptr ? spec_.profile() : costs->profile();
}

v1::JobSpec JobRecord::SpecLocked(const v1::CostProfile& profile) const {
  v1::JobSpec spec = spec_;
  *spec.mutable_profile() = profile;
  *spec.mutable_strategies() = state_.spec().strategies();
  return spec;
}

void JobRecord::DeleteLocked() {
  deleted_ = true;
  services_.journal->Append(payer_, {.job = key_, .job_id = id_, .remove = true});
}

absl::Status JobRecord::DeletedError() const {
  return absl::NotFoundError(absl::StrCat("job '", id_, "' was deleted"));
}

absl::Status JobRecord::StoppedError() { return absl::UnavailableError("the planner stops; try again"); }

absl::Status JobRecord::CheckLiveLocked() const {
  if (deleted_) return DeletedError();
  if (stopped_) return StoppedError();
  return services_.journal->health();
}

}  // namespace penstock
