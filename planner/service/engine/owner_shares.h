// Whose turn it is among owners whose tasks wait for threads: whoever has computed least, so that owners
// that always have something waiting get the same time, however long their tasks take (start-time fair
// queueing; Goyal, Vin and Cheng 1996).
//
//   auto next = shares.Next(owners.begin(), owners.end(), /*short_alone=*/false);
//   const uint64_t task = shares.Begin(next->first, owners.begin(), owners.end());
//   ... shares.SetComputed(task, so_far);  // before the next decision, for each task that runs
//   shares.End(task, in_all);
//
// Time is what a task computes, not how long it holds its thread: where threads share a core, a task holds
// one for as long as others compute, too. It is known when the task ends: until then its owner is charged
// what its last one took, or what this one has taken so far where that is more. Not thread-safe.
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
  // Whose tasks take longer has no share of the thread for short ones.
  static constexpr absl::Duration kLong = absl::Milliseconds(500);

  // What the owner is charged: what it has computed, or as much as those who wait have had anyway, so that
  // who comes anew owes nothing and has nothing saved; and what its tasks that run are expected to take.
  absl::Duration TotalOf(const std::string& owner) const;

  // Of the owners [begin, end) of a map, by name, those that have `tasks`: the first whose turn it is, by
  // time and then by `turn`. `short_alone`: of those that are known to have short tasks alone and that are
  // not ahead. The end: none.
  template <typename Iterator>
  Iterator Next(Iterator begin, Iterator end, bool short_alone) const {
    const Iterator least = Least(begin, end, [](const std::string&) { return true; });
    if (!short_alone || least == end) return least;
    // The owner that is first gets nothing while the long tasks of others run: so much is nobody's fault.
    absl::Duration longest;
    for (Iterator owner = begin; owner != end; ++owner)
      if (!owner->second.tasks.empty()) longest = std::max(longest, LastOf(owner->first));
    const absl::Duration most = TotalOf(least->first) + longest + kLong;
    return Least(begin, end,
                 [&](const std::string& owner) { return IsShort(owner) && TotalOf(owner) <= most; });
  }

  // A task of the owner, which is among [begin, end) and counts as waiting still, begins. Returns its number.
  template <typename Iterator>
  uint64_t Begin(const std::string& owner, Iterator begin, Iterator end) {
    absl::Duration least = absl::InfiniteDuration();
    for (Iterator one = begin; one != end; ++one)
      if (!one->second.tasks.empty()) least = std::min(least, SpentBy(one->first));
    return Begin(owner, least);
  }
  // What it has computed so far. Never falls.
  void SetComputed(uint64_t task, absl::Duration so_far) { running_.at(task).computed = so_far; }
  // It has ended.
  void End(uint64_t task, absl::Duration computed);

 private:
  // What an owner has computed, and what its last task did.
  struct Use {
    absl::Duration ended;
    absl::Duration last;
    // Of its tasks so far; older ones count less and less.
    absl::Duration longest;
  };

  // A task that computes.
  struct Task {
    std::string owner;
    absl::Duration computed;
    // To take, and charged in advance.
    absl::Duration expected;
  };

  // `least`: what the owners that wait have computed at least. Not what they are charged: who is charged too
  // much in advance would lose what it gets back.
  uint64_t Begin(const std::string& owner, absl::Duration least);
  // Without what its tasks that run are expected to take yet.
  absl::Duration SpentBy(const std::string& owner) const;
  absl::Duration ComputedBy(const std::string& owner, const Use& use) const;
  // Owners that owe nothing.
  void Forget();
  absl::Duration LastOf(const std::string& owner) const;
  // Who has not computed yet may be anything.
  bool IsShort(const std::string& owner) const;

  template <typename Iterator, typename Predicate>
  Iterator Least(Iterator begin, Iterator end, Predicate may) const {
    Iterator next = end;
    std::pair<absl::Duration, uint64_t> least;
    for (Iterator owner = begin; owner != end; ++owner) {
      if (owner->second.tasks.empty() || !may(owner->first)) continue;
      const std::pair<absl::Duration, uint64_t> own(TotalOf(owner->first), owner->second.turn);
      if (next != end && own >= least) continue;
      next = owner;
      least = own;
    }
    return next;
  }

  // Of owners that have computed more than `counted_`; what anyone computed below it is forgotten.
  std::map<std::string, Use> uses_;
  // What those who wait have had at least. Never falls.
  absl::Duration counted_;
  // By number.
  std::map<uint64_t, Task> running_;
  uint64_t last_task_ = 0;
};

}  // namespace penstock
