// The steps of a timeline, played again with other times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/core/diagnose/cause.h"
#include "planner/core/diagnose/step_graph.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// What an activity takes instead; by step and activity.
using Mend = std::function<double(size_t step, size_t activity, double duration_ns)>;

class StepReplays {
 public:
  // `timeline` must live as long. Possible errors: INVALID_ARGUMENT (no steps; a step whose operations wait
  // for each other in a circle).
  static absl::StatusOr<StepReplays> Of(const Timeline& timeline);

  const Timeline& timeline() const { return *timeline_; }
  const std::vector<StepGraph>& graphs() const { return graphs_; }
  size_t steps() const { return graphs_.size(); }

  const Activity& ActivityOf(size_t step, size_t activity) const {
    return graphs_[step].activities[activity];
  }
  const Operation& OperationOf(size_t step, size_t activity) const {
    return timeline_->steps[step].operations[ActivityOf(step, activity).operation];
  }
  double NanosecondsOf(size_t step, size_t activity) const {
    return static_cast<double>(graphs_[step].durations_ns[activity]);
  }
  bool IsPass(size_t step, size_t activity) const {
    return !ActivityOf(step, activity).host && IsPassKind(OperationOf(step, activity).kind);
  }
  template <typename Do>
  void ForActivities(Do visit) const {
    for (size_t step = 0; step < graphs_.size(); ++step) {
      for (size_t activity = 0; activity < graphs_[step].activities.size(); ++activity) visit(step, activity);
    }
  }
  // Passes alone, with what they took and their operation.
  template <typename Do>
  void ForPasses(Do visit) const {
    ForActivities([&](size_t step, size_t i) {
      if (IsPass(step, i)) visit(step, i, OperationOf(step, i));
    });
  }

  // Means over the steps, nanoseconds.
  double measured_ns() const { return measured_ns_; }
  double replayed_ns() const { return replayed_ns_; }
  // The mean over the steps of |replayed / measured - 1|.
  double error() const { return error_; }

  // The mean step with other times, nanoseconds.
  double MeanWith(const Mend& mend) const;
  // The share of the steps' time that is saved with them.
  double GainOf(const Mend& mend) const;

 private:
  StepReplays() = default;
  void Replay();

  const Timeline* timeline_ = nullptr;
  std::vector<StepGraph> graphs_;
  double measured_ns_ = 0;
  double replayed_ns_ = 0;
  double error_ = 0;
};

// Causes that are found one after the other.
class Causes {
 public:
  explicit Causes(const StepReplays& replays) : replays_(replays) {}

  // If what mends it gains enough.
  void Add(Cause cause, const Mend& mend, double least_gain = kLeastShownGain) {
    cause.gain = replays_.GainOf(mend);
    if (cause.gain >= least_gain) causes_.push_back(std::move(cause));
  }
  // With the gain that it has: no replay mends it.
  void AddWithoutReplay(Cause cause) { causes_.push_back(std::move(cause)); }

  std::vector<Cause> Take() { return std::move(causes_); }

 private:
  const StepReplays& replays_;
  std::vector<Cause> causes_;
};

// Of candidates those that lost most, largest first: so many are replayed.
template <typename Key>
std::vector<Key> WorstOf(const std::map<Key, double>& lost) {
  constexpr size_t kMostCandidates = 4;
  std::vector<std::pair<Key, double>> worst(lost.begin(), lost.end());
  std::stable_sort(worst.begin(), worst.end(),
                   [](const auto& one, const auto& other) { return one.second > other.second; });
  if (worst.size() > kMostCandidates) worst.resize(kMostCandidates);
  std::vector<Key> keys;
  for (const auto& [key, value] : worst) keys.push_back(key);
  return keys;
}

}  // namespace penstock::core
