#include "planner/cli/up/supervisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

// Of the planner among the cluster's processes.
constexpr absl::string_view kPlannerName = "planner";
// Short, because no process is watched meanwhile.
constexpr absl::Duration kTellDeadline = absl::Milliseconds(500);

bool IsForming(const v1::JobStatus& job) {
  return job.state() == v1::JOB_STATE_FAILED || job.state() == v1::JOB_STATE_REGISTERED;
}

}  // namespace

absl::Status Supervisor::Step(const RunView& view, absl::Time now) {
  if (view.furthest > furthest_) policy_.OnProgress();
  furthest_ = std::max(furthest_, view.furthest);
  PENSTOCK_RETURN_IF_ERROR(TakeDeaths(view, now));
  KillWhatHangs(view, now);
  return RestartWhatIsDue(now);
}

absl::Status Supervisor::TakeDeaths(const RunView& view, absl::Time now) {
  // One that is dead is told nothing.
  bool planner_answers = view.silence == absl::ZeroDuration();
  for (const EndedProcess& ended : cluster_.Ended()) {
    if (due_.contains(ended.name)) continue;
    if (!ended.worth_restarting) {
      // Started again, it cannot do what it did: its device is gone.
      if (policy_.HasDied(ended.name)) given_up_ = ended.rank;
      return absl::AbortedError(absl::StrCat(ended.name, " is not started again: it would end the same"));
    }
    const absl::StatusOr<absl::Duration> pause = policy_.OnDeath(ended.name);
    if (!pause.ok()) {
      given_up_ = ended.rank;
      return pause.status();
    }
    options_.say(
        absl::StrCat(ended.name, " ", ended.how, ": starting it again",
                     *pause > absl::ZeroDuration() ? absl::StrCat(" in ", absl::FormatDuration(*pause)) : "",
                     " (", policy_.restarts(), " of ", policy_.most(), " restarts)"));
    due_[ended.name] = now + *pause;
    if (planner_answers) planner_answers = TellPlanner(ended, view.job);
  }
  return absl::OkStatus();
}

bool Supervisor::TellPlanner(const EndedProcess& ended, const v1::JobStatus& job) {
  // The planner itself, which comes first of all.
  if (!ended.rank.has_value()) return false;
  for (const v1::WorkerStatus& worker : job.workers()) {
    if (worker.rank() != *ended.rank) continue;
    const std::optional<uint64_t> incarnation = cluster_.IncarnationOf(worker.rank(), worker.incarnation());
    // One that never joined, after one that the planner knows is lost.
    if (!incarnation.has_value()) return true;
    v1::HeartbeatRequest request;
    request.set_job_id(options_.job_id);
    request.set_rank(worker.rank());
    request.set_incarnation(*incarnation);
    request.set_epoch(job.epoch());
    request.set_failure(absl::StrCat("its process ", ended.how));
    // It is noticed without this, too, later.
    return !absl::IsDeadlineExceeded(client_.Heartbeat(request, kTellDeadline).status());
  }
  return true;
}

absl::Status Supervisor::RestartWhatIsDue(absl::Time now) {
  for (auto it = due_.begin(); it != due_.end();) {
    if (now < it->second) {
      ++it;
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(cluster_.Restart(it->first));
    if (it->first == kPlannerName) planner_begun_ = now;
    it = due_.erase(it);
  }
  return absl::OkStatus();
}

bool Supervisor::WasLost(const v1::WorkerStatus& worker, const v1::JobStatus& job) const {
  const auto silent = [&](const v1::WorkerStatus& other) {
    return absl::Milliseconds(other.heartbeat_age_ms()) >= options_.heartbeat_timeout;
  };
  // All at once: it was the planner that stood still.
  return job.state() == v1::JOB_STATE_FAILED && silent(worker) &&
         !std::all_of(job.workers().begin(), job.workers().end(), silent);
}

bool Supervisor::IsMissing(uint32_t rank, const v1::JobStatus& job, absl::Time now) {
  const bool registered = std::any_of(job.workers().begin(), job.workers().end(),
                                      [&](const v1::WorkerStatus& worker) { return worker.rank() == rank; });
  const bool missing =
      job.state() == v1::JOB_STATE_FAILED || (job.state() == v1::JOB_STATE_REGISTERED && !registered);
  if (!missing || !cluster_.IsRunning(rank)) {
    missing_.erase(rank);
    return false;
  }
  return now - missing_.try_emplace(rank, now).first->second > options_.join_timeout;
}

void Supervisor::KillWhatHangs(const RunView& view, absl::Time now) {
  if (view.silence > options_.planner_timeout && now - planner_begun_ > options_.planner_timeout) {
    if (cluster_.KillPlanner()) {
      planner_begun_ = now;
      options_.say(absl::StrCat("planner has not answered for ",
                                absl::FormatDuration(options_.planner_timeout), ": it is ended"));
    }
    // What it said last is old.
    missing_.clear();
    return;
  }
  if (view.silence > absl::ZeroDuration() || !IsForming(view.job)) return missing_.clear();
  for (const v1::WorkerStatus& worker : view.job.workers()) {
    if (WasLost(worker, view.job)) Kill(worker.rank(), "gives no sign of life");
  }
  for (uint32_t rank = 0; rank < cluster_.workers(); ++rank) {
    if (IsMissing(rank, view.job, now)) Kill(rank, "has not joined the others");
  }
}

void Supervisor::Kill(uint32_t rank, const std::string& why) {
  if (!cluster_.KillWorker(rank)) return;
  missing_.erase(rank);
  options_.say(absl::StrCat("worker-", rank, " ", why, ": it is ended"));
}

}  // namespace penstock::cli
