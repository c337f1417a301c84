// Which of a job's strategies its iterations run on, and from which iteration on.
//
//   StrategyChanges changes(spec.strategies_size());
//   changes.Apply(event);          // StrategiesChanged
//   changes.NumbersOf(iteration);  // {0, 2}
//
// Strategies are only ever added, so a number means the same in all plans of a job. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <vector>

#include "penstock/store/v1/job_log.pb.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

class StrategyChanges {
 public:
  // Ascending.
  using Numbers = std::vector<uint32_t>;

  // `registered`: how many the job was registered with; 0: it has none, but its mesh.
  explicit StrategyChanges(int registered) : registered_(static_cast<uint32_t>(registered)) {}

  uint32_t registered() const { return registered_; }

  void Apply(const store::v1::StrategiesChanged& event);
  // Iterations before it are of no interest any more.
  void ForgetBefore(uint64_t first_held);

  // Empty where the job has none.
  Numbers NumbersOf(uint64_t iteration) const;
  // Of iterations that are planned from now on, and since which one they hold; 0: since ever.
  Numbers now() const;
  uint64_t from_iteration() const { return changes_.empty() ? 0 : changes_.back().from_iteration(); }
  // All that iterations have from this one on.
  std::set<Numbers> HeldFrom(uint64_t iteration) const;

  // What leads from the registered strategies to these: the changes, those that are forgotten in the first
  // one that is not.
  const std::deque<store::v1::StrategiesChanged>& changes() const { return changes_; }

 private:
  Numbers AsRegistered() const;

  const uint32_t registered_;
  // Ascending by their first iterations, all of which differ.
  std::deque<store::v1::StrategiesChanged> changes_;
};

// Whether both say the same of an iteration: degrees that are 0 stand for 1.
bool IsSameStrategy(const v1::Strategy& a, const v1::Strategy& b);

// What a job with these strategies would have to be told so that its next iterations run on the wanted ones:
// the numbers of each of them, in their order, and those that it does not have yet.
struct WantedStrategies {
  std::vector<uint32_t> numbers;
  std::vector<v1::Strategy> added;
};
WantedStrategies NumberStrategies(const google::protobuf::RepeatedPtrField<v1::Strategy>& known,
                                  const google::protobuf::RepeatedPtrField<v1::Strategy>& wanted);

}  // namespace penstock
