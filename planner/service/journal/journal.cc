#include "planner/service/journal/journal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"

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

void Journal::Append(JobChange change, Committed committed) {
  const size_t bytes = BytesOf(change);
  const absl::Time now = absl::Now();
  MutexLock lock(&mutex_);
  entries_.push_back({std::move(change), std::move(committed), bytes, now});
  waiting_bytes_ += bytes;
  ++appended_;
  changed_.SignalAll();
}

void Journal::WhenDurable(Durable durable) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (durable_ < appended_) {
      if (failure_.ok() && !ended_) {
        waiters_.push_back({appended_, std::move(durable)});
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
  if (entries_.empty()) return {};
  return {entries_.size(), waiting_bytes_, absl::Now() - entries_.front().appended};
}

bool Journal::fenced() const {
  MutexLock lock(&mutex_);
  return absl::IsAborted(failure_);
}

void Journal::Run() {
  while (AwaitWork()) {
    const std::vector<JobChange> group = NextGroup();
    const absl::Status status = store_->Commit(group);
    if (status.ok()) {
      Written(group.size());
    } else if (!Failed(status)) {
      break;
    }
  }
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    end_reached_.SignalAll();
    waiters = TakeWaitersLocked(appended_);
  }
  for (const Waiter& waiter : waiters) waiter.durable(absl::UnavailableError("the planner stops; try again"));
}

bool Journal::AwaitWork() {
  MutexLock lock(&mutex_);
  while (entries_.empty() && !stopping_) changed_.Wait(&mutex_);
  return !entries_.empty() && !given_up_;
}

std::vector<JobChange> Journal::NextGroup() {
  MutexLock lock(&mutex_);
  std::vector<JobChange> group;
  size_t bytes = 0;
  for (const Entry& entry : entries_) {
    if (!group.empty() && bytes + entry.bytes > options_.max_group_bytes) break;
    bytes += entry.bytes;
    group.push_back(entry.change);
  }
  return group;
}

std::vector<Journal::Waiter> Journal::TakeWaitersLocked(uint64_t position) {
  std::vector<Waiter> taken;
  while (!waiters_.empty() && waiters_.front().position <= position) {
    taken.push_back(std::move(waiters_.front()));
    waiters_.pop_front();
  }
  return taken;
}

void Journal::Written(size_t count) {
  std::vector<Committed> committed;
  bool mended = false;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < count; ++i) {
      waiting_bytes_ -= entries_.front().bytes;
      if (entries_.front().committed) committed.push_back(std::move(entries_.front().committed));
      entries_.pop_front();
    }
    mended = !failure_.ok();
    failure_ = absl::OkStatus();
    pause_ = options_.shortest_pause;
  }
  if (mended) LogInfo("the store is written again", {});
  for (const Committed& done : committed) done();
  std::vector<Waiter> waiters;
  {
    MutexLock lock(&mutex_);
    durable_ += count;
    waiters = TakeWaitersLocked(durable_);
  }
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
    waiters = TakeWaitersLocked(appended_);
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
