#include "worker/runtime/background_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/sync/thread_name.h"

namespace penstock::worker {

BackgroundWriter::BackgroundWriter() : thread_([this] { Run(); }) {}

BackgroundWriter::~BackgroundWriter() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void BackgroundWriter::Add(Task task) {
  MutexLock lock(&mutex_);
  if (!status_.ok()) return;
  tasks_.push_back(std::move(task));
  changed_.SignalAll();
}

bool BackgroundWriter::busy() const {
  MutexLock lock(&mutex_);
  return running_ || !tasks_.empty();
}

absl::Status BackgroundWriter::status() const {
  MutexLock lock(&mutex_);
  return status_;
}

absl::Status BackgroundWriter::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(&mutex_);
  while ((running_ || !tasks_.empty()) && absl::Now() < deadline) {
    changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
  }
  if (!status_.ok() || (!running_ && tasks_.empty())) return status_;
  return absl::DeadlineExceededError(
      absl::StrCat("the disk has not taken the checkpoint within ", absl::FormatDuration(timeout)));
}

void BackgroundWriter::Run() {
  NameThisThread("file-writer");
  for (;;) {
    Task task;
    {
      MutexLock lock(&mutex_);
      while (!stopped_ && tasks_.empty()) changed_.Wait(&mutex_);
      if (stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      running_ = true;
    }
    const absl::Status status = task();
    // What it held goes before it counts as done.
    task = nullptr;
    MutexLock lock(&mutex_);
    running_ = false;
    status_.Update(status);
    if (!status_.ok()) tasks_.clear();
    changed_.SignalAll();
  }
}

}  // namespace penstock::worker
