// Which operations of different ranks are one, and which run beside passes: told by the times of a whole
// timeline.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// The ranks that an operation joins: also what is called an optimizer step may wait for others.
enum class Scope : uint8_t { kRank, kReplica, kStage, kAll };

class Communication {
 public:
  explicit Communication(const Timeline& timeline);

  // Of the n-th operation of a name: those with one key are one.
  int64_t KeyOf(const Timeline& timeline, const Operation& operation) const;
  // Whether operations of the name run beside passes of their rank.
  bool IsAsynchronous(int32_t name) const { return asynchronous_[name]; }
  // How far apart two ranks see the end of a transfer, typically; nanoseconds.
  int64_t clock_noise_ns() const { return clock_noise_ns_; }

 private:
  void FindAsynchronous(const Timeline& timeline);
  void MeasureClocks(const Timeline& timeline);
  Scope ScopeOf(const Timeline& timeline, int32_t name) const;

  std::vector<bool> asynchronous_;
  std::vector<Scope> scopes_;
  int64_t clock_noise_ns_ = 0;
};

// By operation of the step: whether it is communication that a pass of its rank covers in large part.
std::vector<bool> RunsBesidePasses(const Timeline& timeline, const TimelineStep& step);

// Sends and receives of neighbours for the same micro-batch, or the n-th ones: by position in the step's
// operations.
struct MatchedTransfer {
  int32_t sender = 0;
  int32_t receiver = 0;
};
std::vector<MatchedTransfer> MatchTransfers(const Timeline& timeline, const TimelineStep& step);

}  // namespace penstock::core
