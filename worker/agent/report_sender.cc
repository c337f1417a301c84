#include "worker/agent/report_sender.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/backoff/backoff.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"
#include "worker/agent/call_times.h"

namespace penstock::worker {
namespace {

constexpr size_t kMostUnsent = 16;

}  // namespace

ReportSender::ReportSender(PlannerLink& link, WorkerIdentity self, FailureHandler on_failure)
    : link_(link),
      self_(std::move(self)),
      on_failure_(std::move(on_failure)),
      queue_(kMostUnsent),
      thread_([this] { Run(); }) {}

ReportSender::~ReportSender() {
  Stop(absl::CancelledError("the report sender has ended"));
  Join();
}

void ReportSender::Join() {
  if (thread_.joinable()) thread_.join();
}

absl::Status ReportSender::Send(IterationReport report) {
  {
    MutexLock lock(&mutex_);
    ++unsent_;
  }
  return queue_.Push(std::move(report));
}

absl::Status ReportSender::Flush(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while (stopped_.ok() && unsent_ > 0 && absl::Now() < deadline) {
    changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
  }
  PENSTOCK_RETURN_IF_ERROR(stopped_);
  if (unsent_ == 0) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(unsent_, " reports have not reached the planner within ", absl::FormatDuration(timeout)));
}

uint64_t ReportSender::delivered() const {
  MutexLock lock(&mutex_);
  return delivered_;
}

void ReportSender::Stop(const absl::Status& reason) {
  queue_.Close(reason);
  MutexLock lock(&mutex_);
  if (stopped_.ok()) stopped_ = reason;
  changed_.SignalAll();
}

absl::Status ReportSender::Deliver(const IterationReport& report) {
  Backoff retry(kFirstRetry, kLongestRetry);
  for (;;) {
    const absl::Status status = link_.Report(self_, report, kCallTimeout);
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
    const absl::Time next = absl::Now() + retry.Next();
    MutexLock lock(&mutex_);
    while (stopped_.ok() && absl::Now() < next) changed_.WaitWithTimeout(&mutex_, next - absl::Now());
    PENSTOCK_RETURN_IF_ERROR(stopped_);
  }
}

absl::Status ReportSender::SendLeft(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  Join();
  std::deque<IterationReport> left = queue_.TakeLeft();
  {
    MutexLock lock(&mutex_);
    if (interrupted_.has_value()) left.push_front(*std::exchange(interrupted_, std::nullopt));
  }
  for (const IterationReport& report : left) {
    const absl::Duration time = deadline - absl::Now();
    if (time <= absl::ZeroDuration()) return absl::DeadlineExceededError("reports are left");
    PENSTOCK_RETURN_IF_ERROR(link_.Report(self_, report, std::min(time, kCallTimeout)));
  }
  return absl::OkStatus();
}

void ReportSender::Run() {
  NameThisThread("reports");
  for (;;) {
    absl::StatusOr<IterationReport> report = queue_.Pop();
    if (!report.ok()) return;
    const absl::Status status = Deliver(*report);
    if (!status.ok()) {
      {
        MutexLock lock(&mutex_);
        interrupted_ = *std::move(report);
      }
      on_failure_(status);
      return;
    }
    MutexLock lock(&mutex_);
    --unsent_;
    delivered_ = report->iteration + 1;
    changed_.SignalAll();
  }
}

}  // namespace penstock::worker
