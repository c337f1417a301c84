// What an audit has found so far.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/core/audit/audit_plan.h"

namespace penstock::core {

// Violations of rule 9, at most kMostListed of them.
class AuditList {
 public:
  // Of the plan, of a rank or of an instruction of it.
  void Add(std::string message, int64_t rank = -1, int64_t instruction = -1) {
    if (violations_.size() < kMostListed)
      violations_.push_back({kCostsRule, rank, instruction, std::move(message)});
  }
  bool empty() const { return violations_.empty(); }
  std::vector<Violation> Take() { return std::move(violations_); }

 private:
  std::vector<Violation> violations_;
};

}  // namespace penstock::core
