#include "planner/cli/up/training_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "penstock/client/refused_quota.h"
#include "planner/core/contract/look_ahead.h"

namespace penstock::cli {
namespace {

// What is planned has its costs for good. A planner first fits them to four iterations (docs/costs.md): until
// then it is given few batches, so that few are planned with costs that nobody has compared with anything.
constexpr uint64_t kUntilCostsAreFitted = 5;
constexpr uint64_t kLeastWindow = 4;
// Then it is given what ranks do in this time, or in so many times what planning an iteration takes: costs
// that are fitted hold behind that, and a planner that starts again is back before.
constexpr absl::Duration kTimeAhead = absl::Seconds(1);
constexpr int kPlanningTimesAhead = 4;
// So that a step does not block for long.
constexpr absl::Duration kWatchDeadline = absl::Seconds(2);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Milliseconds(250);
// With fewer batches ahead each is submitted as soon as there is room for it.
constexpr uint64_t kEnoughAhead = 3;

// A planner that is busy, starts again or cannot be reached for a while; nothing is wrong with the job.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

uint64_t WindowOfTimes(absl::Duration iteration, absl::Duration planning, uint64_t most) {
  const absl::Duration ahead = std::max(kTimeAhead, kPlanningTimesAhead * planning);
  const double iterations = std::ceil(absl::FDivDuration(ahead, std::max(iteration, absl::Nanoseconds(1))));
  const uint64_t least = std::min(kLeastWindow, most);
  return iterations >= static_cast<double>(most) ? most : std::max(least, static_cast<uint64_t>(iterations));
}

TrainingRun::TrainingRun(PlannerClient& client, const v1::JobSpec& job, BatchSource& source,
                         absl::Duration patience, Epochs epochs)
    : client_(client),
      job_(job),
      source_(source),
      patience_(patience),
      epochs_(epochs),
      window_(core::LookAheadOf(job)),
      next_batch_(job.first_iteration()),
      next_summary_(job.first_iteration()),
      completed_(job.first_iteration()),
      last_answer_(absl::Now()),
      last_heard_(last_answer_) {}

uint64_t TrainingRun::Window() const {
  // A window that was asked for is what is wanted.
  if (job_.look_ahead_window() != 0 || job_.fixed_costs()) return window_;
  if (completed_ < job_.first_iteration() + kUntilCostsAreFitted) return kLeastWindow;
  return WindowOfTimes(iteration_time_, planning_time_, window_);
}

bool TrainingRun::HasMore() const { return next_batch_ < feed_end_ && !fed() && !drains_; }

bool TrainingRun::MayFeed() const {
  if (!HasMore() || next_batch_ >= completed_ + Window()) return false;
  return completed_ != completed_when_refused_ || absl::Now() >= retry_at_;
}

absl::Duration TrainingRun::Pause() const {
  const bool well = heard_ && trouble_.empty() && status_.state() == v1::JOB_STATE_RUNNING;
  const bool hurries =
      HasMore() && (next_batch_ < completed_ + kEnoughAhead || pause_ > absl::ZeroDuration());
  return well && !hurries ? std::clamp(iteration_time_, kFirstPause, kLongestPause) : kFirstPause;
}

// Its queue is full, or it holds less than the window.
void TrainingRun::Refused() {
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  retry_at_ = absl::Now() + pause_;
  completed_when_refused_ = completed_;
}

void TrainingRun::FindPlace() {
  if (place_found_) return;
  place_found_ = true;
  if (status_.next_iteration() > next_batch_) next_batch_ = status_.next_iteration() - 1;
}

absl::Status TrainingRun::Feed() {
  FindPlace();
  while (MayFeed()) {
    if (!made_.has_value()) made_ = source_.Make(next_batch_);
    v1::SubmitBatchesRequest request;
    request.set_job_id(job_.job_id());
    *request.add_batches() = *made_;
    const absl::Status submitted = client_.SubmitBatches(request).status();
    if (absl::IsResourceExhausted(submitted)) {
      Refused();
      held_by_quota_ = QuotaNamedBy(submitted).has_value() ? std::string(submitted.message()) : "";
      return absl::OkStatus();
    }
    if (!submitted.ok()) return ExplainRefusal(submitted);
    held_by_quota_.clear();
    made_.reset();
    ++next_batch_;
    pause_ = absl::ZeroDuration();
    retry_at_ = absl::InfinitePast();
  }
  return absl::OkStatus();
}

void TrainingRun::Take(const v1::JobStatus& status) {
  status_ = status;
  completed_ = status_.completed_iteration();
  const bool ended_early =
      finished() && (job_.training().iterations() == 0 || completed_ < job_.training().iterations());
  drains_ = drains_ || ended_early || status_.state() == v1::JOB_STATE_DRAINING;
}

absl::Status TrainingRun::ExplainRefusal(const absl::Status& refusal) {
  if (!absl::IsFailedPrecondition(refusal)) return refusal;
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, GetJob(job_.training().iterations()));
  const v1::JobState state = job.status().state();
  if (state == v1::JOB_STATE_FAILED && epochs_ == Epochs::kMany) return absl::OkStatus();
  // Its last iterations are still to be shown: the next step looks at them.
  if (state == v1::JOB_STATE_DRAINING || state == v1::JOB_STATE_FINISHED) {
    drains_ = true;
    return absl::OkStatus();
  }
  return refusal;
}

absl::StatusOr<v1::GetJobResponse> TrainingRun::GetJob(uint64_t from_iteration) {
  v1::GetJobRequest request;
  request.set_job_id(job_.job_id());
  request.set_from_iteration(from_iteration);
  return client_.GetJob(request, kWatchDeadline);
}

absl::Status TrainingRun::Watch(const std::function<void(const v1::IterationSummary&)>& on_iteration) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse response, GetJob(next_summary_));
  if (status_.epoch() > 0 && response.status().epoch() > status_.epoch()) {
    // Where the new epoch began is not known: what it has done again may be before next_summary_.
    PENSTOCK_ASSIGN_OR_RETURN(response, GetJob(job_.first_iteration()));
    next_summary_ = std::min(next_summary_, response.status().completed_iteration());
  }
  for (const v1::IterationSummary& iteration : response.iterations()) {
    on_iteration(iteration);
    next_summary_ = iteration.iteration() + 1;
    iteration_time_ = absl::Nanoseconds(iteration.measured_ns());
    planning_time_ = absl::Nanoseconds(iteration.planning_time_ns());
  }
  Take(response.status());
  // The planner's store was restored from a backup, and knows less than was submitted since.
  if (place_found_ && status_.next_iteration() < next_batch_) {
    next_batch_ = status_.next_iteration();
    made_.reset();
  }
  if (status_.state() == v1::JOB_STATE_FAILED && epochs_ == Epochs::kOne) {
    return absl::FailedPreconditionError(status_.failure());
  }
  return absl::OkStatus();
}

absl::Duration TrainingRun::silence() const {
  return heard_ ? absl::ZeroDuration() : absl::Now() - last_heard_;
}

absl::Status TrainingRun::Step(const std::function<void(const v1::IterationSummary&)>& on_iteration) {
  absl::Status status = Watch(on_iteration);
  heard_ = !IsTransient(status);
  if (heard_) last_heard_ = absl::Now();
  if (status.ok() && !finished() && !status_.store_failure().empty())
    status = absl::UnavailableError(status_.store_failure());
  if (status.ok() && !finished() && !drains_ && status_.state() != v1::JOB_STATE_FAILED) status = Feed();
  if (!IsTransient(status)) {
    trouble_.clear();
    last_answer_ = absl::Now();
    return status;
  }
  trouble_ = std::string(status.message());
  if (absl::Now() - last_answer_ < patience_) return absl::OkStatus();
  return absl::Status(status.code(), absl::StrCat("the planner has not answered for ",
                                                  absl::FormatDuration(patience_), ": ", status.message()));
}

}  // namespace penstock::cli
