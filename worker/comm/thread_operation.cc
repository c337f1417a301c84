#include "worker/comm/thread_operation.h"

#include <chrono>
#include <optional>
#include <utility>

#include "common/sync/sync.h"

namespace penstock::worker {
namespace {

// What thread and waiter share.
class Outcome {
 public:
  void Set(const absl::Status& status, const HostSpan& span) {
    MutexLock lock(&mutex_);
    status_ = status;
    span_ = span;
    changed_.SignalAll();
  }

  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!span_.has_value()) changed_.Wait(&mutex_);
    return status_;
  }

  std::optional<HostSpan> span() {
    MutexLock lock(&mutex_);
    return span_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // Has a value when the operation has ended.
  std::optional<HostSpan> span_ ABSL_GUARDED_BY(mutex_);
};

class ThreadOperation : public PendingTransfer {
 public:
  explicit ThreadOperation(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}
  absl::Status Wait() override { return outcome_->Wait(); }
  std::optional<HostSpan> span() const override { return outcome_->span(); }

 private:
  const std::shared_ptr<Outcome> outcome_;
};

}  // namespace

std::unique_ptr<PendingTransfer> StartOn(TaskThread& thread, std::function<absl::Status()> operation) {
  auto outcome = std::make_shared<Outcome>();
  thread.Add([outcome, operation = std::move(operation)] {
    HostSpan span = {.start = std::chrono::steady_clock::now()};
    const absl::Status status = operation();
    span.end = std::chrono::steady_clock::now();
    outcome->Set(status, span);
  });
  return std::make_unique<ThreadOperation>(outcome);
}

}  // namespace penstock::worker
