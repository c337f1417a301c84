// Changes of jobs that wait to be written, and which of them come next: so that nobody waits for the large
// changes of somebody else.
//
//   ChangeQueue queue;
//   queue.Push("owner mary", {.change = ..., .bytes = 2'000'000});
//   queue.Push("owner bob", {.change = ..., .bytes = 300});
//   std::vector<QueuedChange> group = queue.Take(1 << 20);  // bob's, and mary's in the next
//
// Owners that have something waiting get equal shares of the bytes that are written, and the jobs of an owner
// equal shares of the owner's: next is whose share would first be enough for its next change if all were
// written side by side (weighted fair queueing; Demers, Keshav and Shenker 1989). Who comes to the queue owes
// nothing and has nothing saved, so a small change of an owner that writes little comes before all large
// ones. Nothing starves: what is written before a change brings its turn closer.
//
// Why this order is as safe as that of the calls, whatever prefix of it a crash leaves in the store:
// - A job is the fold of its own events alone, and the changes of a job keep the order of their calls, so the
//   store has a prefix of them for each job: its registration first, its removal last.
// - Nothing that is stored of one job says anything of another, but its name: a job may be registered by the
//   name of one that was removed, and only one of them may be there when a planner starts. So a registration
//   waits for the removals of its name that were asked for before it.
// - Who is answered has waited for all changes of its own job (Journal::WhenDurable), which are those that
//   follow from what it asked for.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "planner/service/store/event_store.h"

namespace penstock {

struct QueuedChange {
  JobChange change;
  std::function<void()> committed = nullptr;
  size_t bytes = 0;
  absl::Time appended = absl::InfiniteFuture();
};

class ChangeQueue {
 public:
  // `owner`: of the change's job, the same for all changes of the job.
  void Push(const std::string& owner, QueuedChange change);

  // Takes out what is written next, in its order: one change, and more as long as all together have at most
  // `most_bytes`. Empty where nothing waits.
  std::vector<QueuedChange> Take(size_t most_bytes);

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // When the change was appended that has waited longest; the infinite future where nothing waits.
  absl::Time oldest() const;

 private:
  struct Numbered {
    QueuedChange queued;
    // In the order of Push.
    uint64_t number = 0;
  };
  // Of one job.
  struct Line {
    // In order; empty for one that has had more than others.
    std::deque<Numbered> changes;
    // Bytes that the job has had, those included that it is taken to have had when it came.
    double had = 0;
  };
  struct Owner {
    // By job.
    std::map<uint64_t, Line> lines;
    // Of them, with changes.
    size_t waiting = 0;
    // As of a line.
    double had = 0;
    // What each of its jobs would have had by now that waits since the first came: with so much, others come.
    double clock = 0;
  };
  struct Place {
    Owner* owner = nullptr;
    Line* line = nullptr;
    // What it will have had, and who comes first of equals.
    std::pair<double, uint64_t> turn;
  };

  // Of one owner, and of all; null: none may be taken.
  Place NextOf(Owner& owner);
  Place Next();
  // A registration whose name belongs to a job that is yet to be removed.
  bool MustWait(const Numbered& change) const;
  QueuedChange Pop(const Place& place);
  // Jobs and owners that owe nothing.
  void Forget();

  std::map<std::string, Owner> owners_;
  // Of them, with changes; and as of an owner's jobs.
  size_t waiting_ = 0;
  double clock_ = 0;
  // By name of the job: the numbers of removals that wait.
  std::map<std::string, std::set<uint64_t>> removals_;
  uint64_t last_number_ = 0;
  size_t size_ = 0;
};

}  // namespace penstock
