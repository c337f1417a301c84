// The order of a step's operations as their times tell it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "planner/core/diagnose/communication.h"
#include "planner/core/diagnose/timeline.h"

namespace penstock::core {

// Operations that one rank runs together.
struct Together {
  // In TimelineStep.operations.
  std::vector<int32_t> operations;
  int64_t end_ns = 0;
};

// A rank, and -1; or a name of communication that runs beside its passes, in an order of its own.
using Lane = std::pair<int32_t, int32_t>;

class StepLanes {
 public:
  StepLanes(const Timeline& timeline, const Communication& communication, const TimelineStep& step);

  // Runs beside the passes of its rank.
  bool IsAsynchronous(int32_t operation) const { return asynchronous_[operation]; }
  // By lane, what follows each other: of passes and what runs between them those that overlap are together.
  const std::map<Lane, std::vector<Together>>& lanes() const { return lanes_; }
  // How many of the kind the rank has; 0: none.
  size_t CountOf(int32_t rank, OperationKind kind) const;

 private:
  void Add(const std::vector<Operation>& operations, int32_t operation);

  std::vector<bool> asynchronous_;
  std::map<Lane, std::vector<Together>> lanes_;
  std::map<std::pair<int32_t, OperationKind>, size_t> counts_;
};

}  // namespace penstock::core
