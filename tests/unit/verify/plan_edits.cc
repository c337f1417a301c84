#include "tests/unit/verify/plan_edits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace penstock::core {
namespace {

std::vector<uint32_t> IdsOf(const v1::Program& program) {
  std::vector<uint32_t> ids(program.instructions_size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  return ids;
}

}  // namespace

v1::Instruction& Find(v1::Plan& plan, int rank, v1::Op op, uint32_t micro_batch, uint32_t part, int stage) {
  for (v1::Instruction& instruction : *plan.mutable_programs(rank)->mutable_instructions())
    if (instruction.op() == op && instruction.micro_batch() == micro_batch && instruction.part() == part &&
        (stage < 0 || instruction.stage() == static_cast<uint32_t>(stage)))
      return instruction;
  ADD_FAILURE() << "rank " << rank << " has no " << v1::Op_Name(op) << " of micro-batch " << micro_batch;
  return *plan.mutable_programs(rank)->mutable_instructions(0);
}

void Rearrange(v1::Plan& plan, int rank, const std::vector<uint32_t>& ids) {
  v1::Program& program = *plan.mutable_programs(rank);
  std::map<uint32_t, uint32_t> renumbered;
  for (size_t i = 0; i < ids.size(); ++i) renumbered[ids[i]] = i;
  std::vector<v1::Instruction> moved;
  for (uint32_t id : ids) {
    v1::Instruction instruction = program.instructions(id);
    instruction.set_id(renumbered[id]);
    instruction.clear_deps();
    for (uint32_t dep : program.instructions(id).deps())
      if (renumbered.count(dep)) instruction.add_deps(renumbered[dep]);
    if (instruction.op() == v1::OP_WAIT) instruction.set_transfer_id(renumbered[instruction.transfer_id()]);
    moved.push_back(instruction);
  }
  program.clear_instructions();
  for (v1::Instruction& instruction : moved) program.add_instructions()->Swap(&instruction);
}

void Remove(v1::Plan& plan, int rank, uint32_t id) {
  std::vector<uint32_t> ids = IdsOf(plan.programs(rank));
  ids.erase(ids.begin() + id);
  Rearrange(plan, rank, ids);
}

void MoveBefore(v1::Plan& plan, int rank, uint32_t id, uint32_t before) {
  std::vector<uint32_t> ids = IdsOf(plan.programs(rank));
  ids.erase(std::find(ids.begin(), ids.end(), id));
  ids.insert(std::find(ids.begin(), ids.end(), before), id);
  Rearrange(plan, rank, ids);
}

}  // namespace penstock::core
