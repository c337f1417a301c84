#include "planner/service/standby/standby_reader.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"

namespace penstock {
namespace {

absl::Status Stopped() { return absl::CancelledError("the planner stops; try again"); }

}  // namespace

StandbyReader::StandbyReader(Open open, const SteadyClock* clock, const StandbyReaderOptions& options)
    : open_(std::move(open)), clock_(clock), options_(options), thread_([this] { Run(); }) {}

StandbyReader::~StandbyReader() { Stop(); }

void StandbyReader::Stop() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    if (store_ != nullptr) store_->Stop();
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void StandbyReader::Forget() {
  MutexLock lock(&mutex_);
  forgotten_ = true;
  last_ = nullptr;
  failure_ = absl::OkStatus();
  next_read_ = absl::InfinitePast();
  changed_.SignalAll();
}

absl::StatusOr<StandbyReader::Jobs> StandbyReader::LastLocked() const {
  if (last_ == nullptr) return failure_;
  return Jobs{.jobs = last_, .age = clock_->Now() - last_begin_};
}

void StandbyReader::Read(Done done) {
  absl::StatusOr<Jobs> answer = Stopped();
  {
    MutexLock lock(&mutex_);
    if (!stopped_) {
      // Otherwise nothing is there yet, and the thread is told to read.
      const bool is_there = last_ != nullptr || !failure_.ok();
      if (is_there && clock_->Now() < next_read_) {
        answer = LastLocked();
      } else if (waiting_.size() < options_.waiting) {
        waiting_.push_back(std::move(done));
        changed_.SignalAll();
        return;
      } else {
        answer = absl::ResourceExhaustedError("too many ask this standby; try again");
      }
    }
  }
  done(std::move(answer));
}

bool StandbyReader::AwaitWork() {
  MutexLock lock(&mutex_);
  while (!stopped_ && !forgotten_ && waiting_.empty()) changed_.Wait(&mutex_);
  return !stopped_;
}

void StandbyReader::CloseIfForgotten() {
  std::unique_ptr<EventStore> closed;
  MutexLock lock(&mutex_);
  if (std::exchange(forgotten_, false)) closed = std::move(store_);
}

absl::Status StandbyReader::OpenStore() {
  {
    MutexLock lock(&mutex_);
    if (store_ != nullptr) return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<EventStore> opened, open_());
  MutexLock lock(&mutex_);
  if (stopped_) return Stopped();
  store_ = std::move(opened);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const StoredJobs>> StandbyReader::ReadNow() {
  PENSTOCK_RETURN_IF_ERROR(OpenStore());
  EventStore* store = nullptr;
  {
    MutexLock lock(&mutex_);
    store = store_.get();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StoredJob> stored, store->Load());
  PENSTOCK_ASSIGN_OR_RETURN(StoredJobs jobs, StoredJobs::From(stored));
  return std::make_shared<const StoredJobs>(std::move(jobs));
}

void StandbyReader::Keep(absl::Time begin, absl::StatusOr<std::shared_ptr<const StoredJobs>> read) {
  std::vector<Done> waiting;
  absl::StatusOr<Jobs> answer = Stopped();
  {
    MutexLock lock(&mutex_);
    failure_ = read.status();
    if (read.ok()) {
      last_ = *std::move(read);
      last_begin_ = begin;
    }
    const absl::Duration took = clock_->Now() - begin;
    next_read_ = begin + std::max(options_.pause, took * (1 + options_.pause_per_read));
    waiting.swap(waiting_);
    answer = LastLocked();
    // This planner leads since.
    if (forgotten_) last_ = nullptr;
  }
  for (const Done& done : waiting) done(answer);
}

void StandbyReader::Run() {
  NameThisThread("standby");
  while (AwaitWork()) {
    CloseIfForgotten();
    {
      MutexLock lock(&mutex_);
      if (waiting_.empty()) continue;
    }
    const absl::Time begin = clock_->Now();
    Keep(begin, ReadNow());
  }
  std::vector<Done> waiting;
  {
    MutexLock lock(&mutex_);
    waiting.swap(waiting_);
  }
  for (const Done& done : waiting) done(Stopped());
}

}  // namespace penstock
