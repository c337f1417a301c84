#include "planner/core/verify/timeline.h"

#include <algorithm>
#include <array>

namespace penstock::core::verify {
namespace {

// A rank's collectives in a group are counted in the order of its program: none has a number above its own
// place there. What lies beyond has a wrong sequence (rule 5).
bool MayHaveSequence(const v1::Instruction& collective) {
  return collective.collective().sequence() <= collective.id();
}

}  // namespace

OtherEnd FindOtherEnd(const PlanIndex& index, int rank, const v1::Instruction& transfer) {
  const bool upper_end = (transfer.op() == v1::OP_RECV) == (transfer.part() == kActivation);
  if (upper_end && transfer.stage() == 0) return {};
  const uint32_t lower = upper_end ? transfer.stage() - 1 : transfer.stage();
  if (lower + 1 >= static_cast<uint32_t>(index.MeshOfRank(rank).stages())) return {};
  const TransferEnds ends =
      index.FindTransfer(index.ReplicaOf(rank), lower, transfer.micro_batch(),
                         static_cast<TransferPart>(transfer.part()), index.PlaceOf(rank));
  if (transfer.op() == v1::OP_SEND) return {ends.recv_rank, ends.recv};
  return {ends.send_rank, ends.send};
}

Timeline::Timeline(const PlanIndex& index)
    : index_(index), ready_ns_(index.ranks()), collective_ns_(index.plan().groups_size()) {
  for (int rank = 0; rank < index.ranks(); ++rank) ListRank(rank);
}

void Timeline::ListRank(int rank) {
  const v1::Program& program = index_.program(rank);
  std::array<int64_t, v1::Stream_ARRAYSIZE> stream_end = {};
  ready_ns_[rank].reserve(program.instructions_size());
  for (const v1::Instruction& instruction : program.instructions()) {
    int64_t& before = stream_end[v1::Stream_IsValid(instruction.stream()) ? instruction.stream() : 0];
    int64_t ready = before;
    for (const uint32_t dep : instruction.deps()) {
      if (dep < instruction.id()) ready = std::max(ready, EndOf(program.instructions(static_cast<int>(dep))));
    }
    before = std::max(before, EndOf(instruction));
    ready_ns_[rank].push_back(ready);
    if (!instruction.has_collective()) continue;
    const v1::Collective& collective = instruction.collective();
    if (collective.group() >= collective_ns_.size() || !MayHaveSequence(instruction)) continue;
    std::vector<int64_t>& group = collective_ns_[collective.group()];
    if (group.size() <= collective.sequence()) group.resize(collective.sequence() + 1, 0);
    group[collective.sequence()] = std::max(group[collective.sequence()], ready);
  }
}

int64_t Timeline::StartOf(int rank, const v1::Instruction& instruction) const {
  int64_t start = ready_ns_[rank][instruction.id()];
  if (IsTransfer(instruction.op())) {
    const OtherEnd other = FindOtherEnd(index_, rank, instruction);
    if (other.instruction != nullptr) start = std::max(start, ready_ns_[other.rank][other.instruction->id()]);
  } else if (instruction.has_collective()) {
    const v1::Collective& collective = instruction.collective();
    if (collective.group() < collective_ns_.size() &&
        collective.sequence() < collective_ns_[collective.group()].size()) {
      start = std::max(start, collective_ns_[collective.group()][collective.sequence()]);
    }
  }
  return start;
}

}  // namespace penstock::core::verify
