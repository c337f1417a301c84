// Collects the violations that the rules find, and names instructions in their messages.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::core::verify {

// The numbers of the rules (check_plan.h).
enum Rule {
  kStructure = 0,
  kCoverage = 1,
  kTransfers = 2,
  kDependencies = 3,
  kLifecycle = 4,
  kCollectives = 5,
  kMemory = 6,
  kTokens = 7,
  kPredictions = 8,
};
inline constexpr int kRules = 9;

class Report {
 public:
  // About the plan as a whole, or about what `message` names.
  void Add(Rule rule, const std::string& message) { Append(rule, -1, -1, message); }
  // About a rank; the message is put behind "rank R: ".
  void AddAt(Rule rule, int rank, const std::string& message);
  // About an instruction; the message is put behind "rank R, instruction I (OP ...): ".
  void AddAt(Rule rule, int rank, const v1::Instruction& instruction, const std::string& message);

  int count(Rule rule) const { return counts_[rule]; }
  std::vector<Violation> Take() { return std::move(violations_); }

 private:
  void Append(Rule rule, int64_t rank, int64_t instruction, std::string message);

  std::array<int, kRules> counts_{};
  std::vector<Violation> violations_;
};

// "instruction 7 (SEND activation, micro-batch 2, stage 1)".
std::string Describe(const v1::Instruction& instruction);

// "FORWARD" for OP_FORWARD; "op 99" for a number that the contract does not know.
std::string OpName(v1::Op op);

}  // namespace penstock::core::verify
