// Rule 0: instructions carry the messages of their op and no others.
#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

void Expect(bool wanted, bool found, const char* field, int rank, const v1::Instruction& instruction,
            Report& report) {
  if (wanted != found)
    report.AddAt(kStructure, rank, instruction,
                 absl::StrCat(field, found ? " is set, which this op does not have" : " is not set"));
}

// `group_ranks`: of a stage group. Passes of several ranks are collectives.
void CheckInstruction(int rank, const v1::Instruction& instruction, uint32_t group_ranks, Report& report) {
  const v1::Op op = instruction.op();
  const bool transfers = op == v1::OP_SEND || op == v1::OP_RECV;
  const bool joint = group_ranks > 1 && IsPass(op);
  const bool collective = joint || IsOfWholeIteration(op);
  Expect(transfers, instruction.has_transfer(), "transfer", rank, instruction, report);
  Expect(collective, instruction.has_collective(), "collective", rank, instruction, report);
  if (!joint) {
    Expect(false, instruction.own_duration_ns() != 0, "own_duration_ns", rank, instruction, report);
    Expect(false, instruction.has_exchange(), "exchange", rank, instruction, report);
  }
  if (op != v1::OP_WAIT)
    Expect(false, instruction.transfer_id() != 0, "transfer_id", rank, instruction, report);
  Expect(false, instruction.parts() != 0, "parts", rank, instruction, report);
}

}  // namespace

void CheckFields(const v1::Plan& plan, Report& report) {
  const std::vector<ReplicaMesh> meshes = ReplicaMeshes(plan);
  for (int rank = 0; rank < plan.programs_size(); ++rank) {
    const auto group_ranks = static_cast<uint32_t>(meshes[plan.programs(rank).replica()].group_ranks());
    for (const v1::Instruction& instruction : plan.programs(rank).instructions())
      CheckInstruction(rank, instruction, group_ranks, report);
  }
}

}  // namespace penstock::core::verify
