#include "planner/service/journal/journal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/sync/thread_name.h"

namespace penstock {
namespace {

size_t BytesOf(const JobChange& change) {
  size_t bytes = sizeof(JobChange);
  for (const std::string& event : change.events) bytes += event.size();
  for (const auto& [iteration, batch] : change.batches) bytes += batch.size();
  if (change.snapshot.has_value()) bytes += change.snapshot->bytes.size();
  return bytes;
}

// A full disk gets room again and a server comes back; a store that somebody else writes, or that is damaged,
// does not mend itself.
bool MayMend(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsFailedPrecondition(status);
}

absl::Status Unavailable(const absl::Status& status) {
  return absl::UnavailableError(
      absl::StrCat("the planner's store cannot be written: ", status.message(), "; try again"));
}

}  // namespace

Journal::Journal(const JournalOptions& options, EventStore* store)
    : options_(options), store_(store), pause_(options.shortest_pause), thread_([this] { Run(); }) {}

Journal::~Journal() { Stop(absl::ZeroDuration()); }

void Journal::Append(const std::string& owner, JobChange change, Committed committed, Urgency urgency) {
  const size_t bytes = BytesOf(change);
  const uint64_t job = change.job;
  const absl::Time now = absl::Now();
  MutexLock lock(&mutex_);
  queue_.Push(owner, {std::move(change), std::move(committed), bytes, now});
  waiting_bytes_ += bytes;
  ++progress_[job].appended;
  urgent_ = urgent_ || urgency == Urgency::kNow;
  // Whoever is patient is written with the group, and wakes nobody who would be awake by then.
  const absl::Time write_by = now + (urgency == Urgency::kLater ? options_.long_patience : options_.patience);
  if (write_by < write_by_ || urgent_) changed_.SignalAll();
  write_by_ = std::min(write_by_, write_by);
}

void Journal::Hurry() {
  MutexLock lock(&mutex_);
  urgent_ = waiting_bytes_ > 0;
  changed_.SignalAll();
}

void Journal::WhenDurable(uint64_t job, Durable durable, Urgency urgency) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (const auto progress = progress_.find(job); progress != progress_.end()) {
      if (failure_.ok() && !ended_) {
        progress->second.waiters.push_back({progress->second.appended, std::move(durable)});
        if (urgency == Urgency::kNow) {
          urgent_ = true;
          changed_.SignalAll();
        }
        return;
      }
      status = Unavailable(failure_.ok() ? absl::UnavailableError("the planner stops") : failure_);
    }
  }
  durable(status);
}

absl::Status Journal::health() const {
  MutexLock lock(&mutex_);
  if (!failure_.ok()) return Unavailable(failure_);
  if (stopping_) return absl::UnavailableError("the planner stops; try again");
  if (waiting_bytes_ <= options_.max_waiting_bytes) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the planner's store is ", waiting_bytes_, " bytes behind; try again in a moment"));
}

Journal::Backlog Journal::backlog() const {
  MutexLock lock(&mutex_);
  if (waiting_bytes_ == 0) return {};
  return {writing_ + queue_.size(), waiting_bytes_, absl::Now() - std::min(writing_since_, queue_.oldest())};
}

bool Journal::fenced() const {
  MutexLock lock(&mutex_);
  return absl::IsAborted(failure_);
}

void Journal::Run() {
  NameThisThread("journal");
  while (AwaitWork()) {
    const absl::Status status = store_->Commit(NextGroup());
    if (status.ok()) {
      Written();
    } else if (!Failed(status)) {
      break;
    }
  }
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    end_reached_.SignalAll();
    waiters = TakeAllWaitersLocked();
  }
  for (const Waiter& waiter : waiters) waiter.durable(absl::UnavailableError("the planner stops; try again"));
}

bool Journal::AwaitWork() {
  MutexLock lock(&mutex_);
  while (waiting_bytes_ == 0 && !stopping_) changed_.Wait(&mutex_);
  // What failed is tried again after pauses of its own.
  while (group_.empty() && !urgent_ && !stopping_) {
    const absl::Duration left = write_by_ - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitWithTimeout(&mutex_, left);
  }
  return waiting_bytes_ > 0 && !given_up_;
}

absl::Span<const JobChange> Journal::NextGroup() {
  // One that failed is written again as it was: it may have taken effect.
  if (!group_.empty()) return group_;
  MutexLock lock(&mutex_);
  for (QueuedChange& queued : queue_.Take(options_.max_group_bytes)) {
    group_bytes_ += queued.bytes;
    writing_since_ = std::min(writing_since_, queued.appended);
    group_.push_back(std::move(queued.change));
    group_committed_.push_back(std::move(queued.committed));
  }
  writing_ = group_.size();
  // What one group does not hold is written at once.
  urgent_ = urgent_ && !queue_.empty();
  if (queue_.empty()) write_by_ = absl::InfiniteFuture();
  return group_;
}

void Journal::AdvanceLocked(uint64_t job, std::vector<Waiter>* reached) {
  const auto found = progress_.find(job);
  Progress& progress = found->second;
  ++progress.durable;
  while (!progress.waiters.empty() && progress.waiters.front().position <= progress.durable) {
    reached->push_back(std::move(progress.waiters.front()));
    progress.waiters.pop_front();
  }
  if (progress.durable == progress.appended) progress_.erase(found);
}

std::vector<Journal::Waiter> Journal::TakeAllWaitersLocked() {
  std::vector<Waiter> taken;
  for (auto& [job, progress] : progress_) {
    std::move(progress.waiters.begin(), progress.waiters.end(), std::back_inserter(taken));
    progress.waiters.clear();
  }
  return taken;
}

void Journal::Written() {
  bool mended = false;
  {
    MutexLock lock(&mutex_);
    mended = !failure_.ok();
    failure_ = absl::OkStatus();
    pause_ = options_.shortest_pause;
  }
  if (mended) LogInfo("the store is written again", {});
  for (const Committed& committed : group_committed_)
    if (committed != nullptr) committed();
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mutex_);
    for (const JobChange& change : group_) AdvanceLocked(change.job, &waiters);
    waiting_bytes_ -= group_bytes_;
    writing_ = 0;
    writing_since_ = absl::InfiniteFuture();
  }
  group_.clear();
  group_committed_.clear();
  group_bytes_ = 0;
  for (const Waiter& waiter : waiters) waiter.durable(absl::OkStatus());
}

bool Journal::Failed(const absl::Status& status) {
  const bool may_mend = MayMend(status);
  std::vector<Waiter> waiters;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    news = failure_.code() != status.code();
    failure_ = status;
    waiters = TakeAllWaitersLocked();
  }
  if (news) {
    LogError(may_mend ? "the store cannot be written; trying again" : "the store cannot be written any more",
             {{"reason", status.ToString()}});
  }
  for (const Waiter& waiter : waiters) waiter.durable(Unavailable(status));
  MutexLock lock(&mutex_);
  if (!may_mend) given_up_ = true;
  if (!given_up_ && !stopping_) stop_asked_.WaitWithTimeout(&mutex_, pause_);
  pause_ = std::min(2 * pause_, options_.longest_pause);
  return !given_up_;
}

void Journal::Stop(absl::Duration deadline) {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    stop_asked_.SignalAll();
  }
  if (!thread_.joinable()) return;
  const absl::Time end = absl::Now() + deadline;
  bool ended = false;
  {
    MutexLock lock(&mutex_);
    while (!ended_ && absl::Now() < end) end_reached_.WaitWithTimeout(&mutex_, end - absl::Now());
    ended = ended_;
    given_up_ = true;
  }
  if (!ended) store_->Stop();
  thread_.join();
}

}  // namespace penstock
