// Judges a plan by the rules that make it safe to run, without knowing how it was made.
//
// The checker works on the contract's messages alone and shares no code with what builds plans, so that a
// fault of the planner cannot hide itself. No plan, however damaged, makes it crash.
//
//   std::vector<Violation> violations = CheckPlan(batch, plan);
//   if (!violations.empty()) return ViolationsToStatus(violations);
//
// The rules (violations carry the number; proto/penstock/v1/execution.md has the whole text):
//   0  structure: sizes, ranges, ids, keys, topology, content hash: what the other rules need to look at the
//   plan 1  coverage: every sample in exactly one micro-batch; no replica empty when there are enough samples
//   2  transfers: SEND and RECV agree and are listed in one order; blocking transfers end without deadlock
//   3  dependencies: deps exist, are acyclic with stream order, and order all data flow
//   4  lifecycle: one FORWARD and one backward pass each, in an order of the plan's schedule, then
//   REDUCE_GRADIENTS,
//      then OPTIMIZER_STEP
//   5  collectives: the ranks of a group issue the same collectives in the same order
//   6  memory: within the limit in every order that streams and deps allow, and all of it given back
//   7  tokens: shapes and token counts add up, so that gradients are weighted by the whole global batch
//   8  predictions: expected times, makespan, bubbles and peaks are those of the model of execution
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/stop.h"

namespace penstock::core {

// One broken rule.
struct Violation {
  // 0 to 8, see above.
  int rule = 0;
  // Where; -1 when it concerns no rank or no instruction.
  int64_t rank = -1;
  int64_t instruction = -1;
  // A whole sentence for people: where, what is wrong, what was expected.
  std::string message;
};

// Every violation, by rule, a wrong content hash last; empty for a valid plan. At most 32 of one rule are
// listed. A plan whose structure is too damaged to judge further gets violations of rule 0 alone. Takes time
// linear in the size of the plan. Thread-safe.
std::vector<Violation> CheckPlan(const v1::Batch& batch, const v1::Plan& plan);
// The same; CANCELLED when `stop` says so.
absl::StatusOr<std::vector<Violation>> CheckPlan(const v1::Batch& batch, const v1::Plan& plan,
                                                 StopToken stop);

// "coverage" for 1, and so on, those of planner/core/audit included; "unknown" outside 0 to 10.
const char* RuleName(int rule);

// OK when there are none, else INTERNAL with the first violation and how many there are.
absl::Status ViolationsToStatus(const std::vector<Violation>& violations);

}  // namespace penstock::core
