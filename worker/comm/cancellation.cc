#include "worker/comm/cancellation.h"

#include "absl/strings/str_cat.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// What an abort has to say is of no interest: the waiter asks for the status anyway.
void AbortWork(const Cancellation::Work& work) {
  RunTorch("abort", [&] { work->abort(); }).IgnoreError();
}

}  // namespace

absl::Status Cancellation::status() const {
  MutexLock lock(&mutex_);
  if (!cancelled_) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("communication was aborted: ", reason_));
}

void Cancellation::Add(const Work& work) {
  {
    MutexLock lock(&mutex_);
    pending_.insert(work);
    if (!cancelled_) return;
  }
  AbortWork(work);
}

void Cancellation::Remove(const Work& work) {
  MutexLock lock(&mutex_);
  pending_.erase(work);
}

bool Cancellation::Begin(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (cancelled_) return false;
  cancelled_ = true;
  reason_ = reason;
  return true;
}

void Cancellation::AbortPending() {
  std::set<Work> pending;
  {
    MutexLock lock(&mutex_);
    pending = pending_;
  }
  for (const Work& work : pending) AbortWork(work);
}

}  // namespace penstock::worker
