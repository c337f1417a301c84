// Judges a plan by the seven rules that make it safe to run, without knowing how it was made.
//
// The checker works on the contract's messages alone and shares no code with what builds plans, so that a
// fault of the planner cannot hide itself. No plan, however damaged, makes it crash.
//
//   std::vector<Violation> violations = CheckPlan(batch, plan);
//   if (!violations.empty()) return ViolationsToStatus(violations);
//
// The rules (violations carry the number):
//   0  structure      sizes, ranges, ids, keys: what the other rules need to be able to look at the plan
//   1  coverage       every sample in exactly one micro-batch; no replica empty when there are enough samples
//   2  transfers      SEND and RECV agree and are listed in one order; blocking transfers end without
//   deadlock 3  dependencies   deps exist, are acyclic with stream order, and order all data flow 4 lifecycle
//   one FORWARD and one backward pass each, then REDUCE_GRADIENTS, then OPTIMIZER_STEP 5  collectives    the
//   ranks of a group issue the same collectives in the same order 6  memory         within the limit at every
//   instruction, and all of it given back 7  tokens         shapes and token counts add up, so that gradients
//   are weighted by the whole global batch
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// One broken rule.
struct Violation {
  // 0 to 7, see above.
  int rule = 0;
  // Where; -1 when it concerns no rank or no instruction.
  int64_t rank = -1;
  int64_t instruction = -1;
  // A whole sentence for people: where, what is wrong, what was expected.
  std::string message;
};

// Every violation, by rule; empty for a valid plan. At most 32 of one rule are listed. A plan whose structure
// is too damaged to judge further gets violations of rule 0 alone. Takes time linear in the size of the plan.
// Thread-safe.
std::vector<Violation> CheckPlan(const v1::Batch& batch, const v1::Plan& plan);

// "coverage" for 1, and so on; "unknown" outside 0 to 7.
const char* RuleName(int rule);

// OK when there are none, else INTERNAL with the first violation and how many there are.
absl::Status ViolationsToStatus(const std::vector<Violation>& violations);

}  // namespace penstock::core
