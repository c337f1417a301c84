// Whose turn it is among owners whose tasks wait for threads: whoever has computed least, so that owners
// that always have something waiting get the same time, however long their tasks take (start-time fair
// queueing; Goyal, Vin and Cheng 1996).
//
//   auto next = shares.Next(owners.begin(), owners.end());
//   const uint64_t task = shares.Begin(next->first, owners.begin(), owners.end());
//   ... shares.SetComputed(task, so_far);  // before the next decision, for each task that has begun
//   ... shares.GoOn(owners.begin(), owners.end());  // of one that has waited since, in its owner's turn
//   shares.End(task, in_all);
//
// Owners are elements of a map by name, with `waits()` (a task of theirs waits for a thread) and `turn` (who
// is first of those that have computed as much). Time is what a task computes, not how long it holds its
// thread: where threads share a core, a task holds one for as long as others compute, too. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace penstock {

class OwnerShares {
 public:
  // What the owner has computed, or as much as those who wait have had anyway, so that who comes anew owes
  // nothing and has nothing saved.
  absl::Duration TotalOf(const std::string& owner) const;

  // Of the owners [begin, end) that wait, the one whose turn it is. The end: none.
  template <typename Iterator>
  Iterator Next(Iterator begin, Iterator end) const {
    return Next(begin, end, [](const auto&) { return true; });
  }
  // The same of those for which `may` holds.
  template <typename Iterator, typename Predicate>
  Iterator Next(Iterator begin, Iterator end, Predicate may) const {
    Iterator next = end;
    std::pair<absl::Duration, uint64_t> least;
    for (Iterator owner = begin; owner != end; ++owner) {
      if (!owner->second.waits() || !may(owner->second)) continue;
      const std::pair<absl::Duration, uint64_t> own(TotalOf(owner->first), owner->second.turn);
      if (next != end && own >= least) continue;
      next = owner;
      least = own;
    }
    return next;
  }

  // A task of the owner, which is among [begin, end) and counts as waiting still, begins. Returns its number.
  template <typename Iterator>
  uint64_t Begin(const std::string& owner, Iterator begin, Iterator end) {
    GoOn(begin, end);
    return Begin(owner);
  }
  // One that has begun goes on, whose owner counts as waiting still.
  template <typename Iterator>
  void GoOn(Iterator begin, Iterator end) {
    const Iterator least = Next(begin, end);
    if (least != end) counted_ = std::max(counted_, TotalOf(least->first));
  }
  // What it has computed so far. Never falls.
  void SetComputed(uint64_t task, absl::Duration so_far) { begun_.at(task).computed = so_far; }
  // It has ended.
  void End(uint64_t task, absl::Duration computed);

 private:
  // One that has begun and not ended.
  struct Task {
    std::string owner;
    absl::Duration computed;
  };

  uint64_t Begin(const std::string& owner);
  // With what its tasks that have not ended computed.
  absl::Duration ComputedBy(const std::string& owner, absl::Duration ended) const;
  // Owners that owe nothing.
  void Forget();

  // What the tasks of an owner that have ended computed: of those that have computed more than `counted_`;
  // what anyone computed below it is forgotten.
  std::map<std::string, absl::Duration> ended_;
  // What those who wait have had at least. Never falls.
  absl::Duration counted_;
  // By number.
  std::map<uint64_t, Task> begun_;
  uint64_t last_task_ = 0;
};

}  // namespace penstock
