// Writes what happens to jobs into the store, behind the back of who decided it.
//
//   Journal journal({}, store);
//   journal.Append("owner mary", change, [] { ... it is durable ... });
//   journal.WhenDurable(change.job, [](absl::Status status) { ... answer the client ... });
//   journal.Stop(absl::Seconds(2));
//
// A change is queued at once and written by one thread, together with others that were queued while the
// write before it ran (group commit). So nobody waits for a disk but those who must not be answered before
// their change is durable, and they wait without a thread. Owners share the bytes that are written
// (change_queue.h, which says why that order is safe): a small change waits for the transaction that is being
// written, and for nothing that another owner has queued. When the store fails the same transaction is tried
// again, with growing pauses, until it works: changes are never dropped, and those of a job never reordered,
// but whoever waits is told UNAVAILABLE, and nothing more should be decided (health()). Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/sync/sync.h"
#include "planner/service/journal/change_queue.h"
#include "planner/service/store/event_store.h"

namespace penstock {

// How soon a change has to be written. What ranks report waits a little for what comes soon: so an iteration
// takes few transactions, each of which is a write to the disk.
// kLater: nobody waits for it, and it may wait long for something that is written anyway.
enum class Urgency : uint8_t { kNow, kSoon, kLater };

struct JournalOptions {
  // Of changes that wait to be written: beyond it health() is UNAVAILABLE.
  size_t max_waiting_bytes = size_t{256} << 20;
  // Of one transaction, unless one change has more: so long everybody else waits.
  size_t max_group_bytes = size_t{1} << 20;
  // So long at most changes wait that are to be written soon, where nothing urgent comes.
  absl::Duration patience = absl::Milliseconds(20);
  // And those that are to be written later.
  absl::Duration long_patience = absl::Milliseconds(500);
  absl::Duration shortest_pause = absl::Milliseconds(20);
  absl::Duration longest_pause = absl::Seconds(1);
};

class Journal {
 public:
  using Committed = std::function<void()>;
  using Durable = std::function<void(absl::Status)>;

  // `store` must outlive the journal.
  Journal(const JournalOptions& options, EventStore* store);
  // Stops without waiting.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // `owner`: who shares the store with others, the same for all changes of a job. `committed` is called once
  // the change is durable, by the journal's thread and without a lock held; never when the store fails for
  // good. Changes of a job are written in the order of the calls.
  void Append(const std::string& owner, JobChange change, Committed committed = nullptr,
              Urgency urgency = Urgency::kNow);

  // What is appended is to be written now.
  void Hurry();

  // `durable` is called when all that was appended of the job before is durable and its `committed` calls
  // have returned, so that who is answered finds what follows from a change done: at once, by this thread,
  // when that is so already. With UNAVAILABLE when the store fails meanwhile: what was asked for may still
  // take effect later.
  void WhenDurable(uint64_t job, Durable durable, Urgency urgency = Urgency::kNow);

  // OK while changes are written. Else UNAVAILABLE with the store's error, or that it is too far behind:
  // decide nothing that would have to be written.
  absl::Status health() const;

  // How far the store is behind.
  struct Backlog {
    // Changes that are not durable, and their bytes.
    size_t changes = 0;
    size_t bytes = 0;
    // How long the oldest of them has waited.
    absl::Duration age;
  };
  Backlog backlog() const;

  // Somebody else writes the store, another planner that leads now: nothing is written any more.
  bool fenced() const;

  // Writes what waits for at most `deadline`, then gives up, and stops a store that hangs. Idempotent.
  void Stop(absl::Duration deadline);

 private:
  struct Waiter {
    // Of the job's last change before it.
    uint64_t position = 0;
    Durable durable;
  };
  // Changes of a job: how many were appended, and how many of them are durable, with `committed` called,
  // since it last had none that waits.
  struct Progress {
    uint64_t appended = 0;
    uint64_t durable = 0;
    std::deque<Waiter> waiters;
  };

  void Run();
  // Waits for work; false when it is time to end.
  bool AwaitWork();
  // Fills group_ where the one before it is written.
  absl::Span<const JobChange> NextGroup();
  void Written();
  // Tells everybody who waits; true when it may be tried again.
  bool Failed(const absl::Status& status);
  void AdvanceLocked(uint64_t job, std::vector<Waiter>* reached) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Waiter> TakeAllWaitersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const JournalOptions options_;
  EventStore* const store_;

  mutable Mutex mutex_;
  CondVar changed_;
  CondVar stop_asked_;
  CondVar end_reached_;
  ChangeQueue queue_ ABSL_GUARDED_BY(mutex_);
  // Something in the queue is to be written now, or somebody waits for what is there.
  bool urgent_ ABSL_GUARDED_BY(mutex_) = false;
  // When the first of what waits is to be written at the latest.
  absl::Time write_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // Of the queue and the group.
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Taken out of the queue to be written; empty between two writes. How many, and when the first of them was
  // appended, is for others to see.
  std::vector<JobChange> group_;
  std::vector<Committed> group_committed_;
  size_t group_bytes_ = 0;
  size_t writing_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time writing_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // By job, of those with changes that are not durable.
  std::map<uint64_t, Progress> progress_ ABSL_GUARDED_BY(mutex_);
  // Of the last write; OK again as soon as one succeeds.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Stop()'s deadline is over, or the store failed for good.
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
