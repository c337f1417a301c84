#include "worker/agent/heartbeat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"
#include "worker/agent/call_times.h"

namespace penstock::worker {
namespace {

constexpr absl::Duration kFormingInterval = absl::Milliseconds(100);

// Errors that a planner which comes back may cure.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsCancelled(status);
}

}  // namespace

Heartbeat::Heartbeat(PlannerLink& link, WorkerIdentity self, HeartbeatOptions options,
                     FailureHandler on_failure)
    : link_(link),
      self_(std::move(self)),
      options_(std::move(options)),
      on_failure_(std::move(on_failure)),
      last_answer_(absl::Now()),
      retry_(kFirstRetry, kLongestRetry),
      thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  Join();
}

void Heartbeat::Join() {
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Announce(const std::string& rendezvous_address) {
  MutexLock lock(&mutex_);
  rendezvous_address_ = rendezvous_address;
}

absl::StatusOr<Rendezvous> Heartbeat::WaitUntilReady(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while (failure_.ok() && !ready_.has_value() && absl::Now() < deadline) {
    changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
  }
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (ready_.has_value()) return *ready_;
  return absl::DeadlineExceededError(absl::StrCat("not all ranks of job '", self_.job_id,
                                                  "' have registered within ", absl::FormatDuration(timeout),
                                                  ": start the missing workers"));
}

absl::StatusOr<BeatAnswer> Heartbeat::SendNow(Beat beat, absl::Duration timeout) {
  const absl::StatusOr<BeatAnswer> answer = link_.Heartbeat(self_, beat, timeout);
  TakeAnswer(answer);
  return answer;
}

void Heartbeat::Pause(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  MutexLock lock(&mutex_);
  while (!stopping_ && failure_.ok() && absl::Now() < end)
    changed_.WaitWithTimeout(&mutex_, end - absl::Now());
}

void Heartbeat::SendUntilAnswered(const Beat& beat, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  Backoff retry(kFirstRetry, kLongestRetry);
  while (failure().ok()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration() || !IsTransient(SendNow(beat, std::min(kCallTimeout, left)).status()))
      return;
    Pause(retry.Next());
  }
}

absl::Status Heartbeat::ReportFailure(const absl::Status& failure, absl::Duration timeout) {
  {
    MutexLock lock(&mutex_);
    // What the planner knows already is what came first.
    PENSTOCK_RETURN_IF_ERROR(failure_);
    failed_as_ = failure.code();
  }
  SendUntilAnswered({.failure = std::string(failure.message())}, timeout);
  const absl::Status verdict = this->failure();
  return verdict.ok() ? failure : verdict;
}

void Heartbeat::TakeAnswer(const absl::StatusOr<BeatAnswer>& answer) {
  absl::StatusCode failed_as;
  {
    MutexLock lock(&mutex_);
    failed_as = failed_as_;
  }
  if (answer.ok()) {
    MutexLock lock(&mutex_);
    last_answer_ = absl::Now();
    retry_.Reset();
    if (answer->state == EpochState::kReady) ready_ = answer->rendezvous;
    changed_.SignalAll();
  }
  if (answer.ok() && answer->state == EpochState::kFailed) {
    Fail(absl::Status(failed_as, absl::StrCat("the epoch has failed: ", answer->failure)));
  }
  if (!answer.ok() && !IsTransient(answer.status())) Fail(answer.status());
}

void Heartbeat::Fail(const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    failure_ = reason;
    changed_.SignalAll();
  }
  on_failure_(reason);
}

absl::Status Heartbeat::failure() const {
  MutexLock lock(&mutex_);
  return failure_;
}

absl::Duration Heartbeat::IntervalLocked() {
  if (!ready_.has_value()) return std::min(kFormingInterval, options_.interval);
  const bool silent = absl::Now() - last_answer_ > options_.interval * 2;
  return silent ? std::min(retry_.Next(), options_.interval) : options_.interval;
}

void Heartbeat::Run() {
  NameThisThread("heartbeat");
  for (;;) {
    Beat beat;
    {
      MutexLock lock(&mutex_);
      const absl::Time next = absl::Now() + IntervalLocked();
      while (!stopping_ && failure_.ok() && absl::Now() < next) {
        changed_.WaitWithTimeout(&mutex_, next - absl::Now());
      }
      if (stopping_ || !failure_.ok()) return;
      beat.rendezvous_address = rendezvous_address_;
    }
    const absl::StatusOr<BeatAnswer> answer = SendNow(std::move(beat), kCallTimeout);
    absl::Duration silence;
    {
      MutexLock lock(&mutex_);
      silence = absl::Now() - last_answer_;
    }
    if (!answer.ok() && silence > options_.planner_timeout) {
      Fail(absl::DeadlineExceededError(
          absl::StrCat("the planner at ", options_.planner, " has not answered for ",
                       absl::FormatDuration(options_.planner_timeout), ": ", answer.status().message())));
    }
  }
}

}  // namespace penstock::worker
