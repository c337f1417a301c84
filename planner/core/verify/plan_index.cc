#include "planner/core/verify/plan_index.h"

#include <algorithm>

namespace penstock::core::verify {
namespace {

constexpr int kKinds = 19;

// Kinds are counted through the ops in this order, `parts` of each.
struct OpParts {
  v1::Op op;
  uint32_t parts;
};
constexpr OpParts kOps[] = {
    {v1::OP_LOAD, 1},
    {v1::OP_FORWARD, 1},
    {v1::OP_BACKWARD, 1},
    {v1::OP_BACKWARD_INPUT, 1},
    {v1::OP_BACKWARD_WEIGHT, 1},
    {v1::OP_RECOMPUTE, 1},
    {v1::OP_SEND, 2},
    {v1::OP_RECV, 2},
    {v1::OP_WAIT, 4},
    {v1::OP_FREE, 3},
    {v1::OP_REDUCE_GRADIENTS, 1},
    {v1::OP_OPTIMIZER_STEP, 1},
};

}  // namespace

int KindOf(v1::Op op, uint32_t part) {
  int kind = 0;
  for (const OpParts& entry : kOps) {
    if (entry.op == op) return part < entry.parts ? kind + static_cast<int>(part) : -1;
    kind += static_cast<int>(entry.parts);
  }
  return -1;
}

PlanIndex::PlanIndex(const v1::Batch& batch, const v1::Plan& plan, StopToken stop)
    : batch_(batch),
      plan_(plan),
      stop_(stop),
      ranks_of_replica_(replicas()),
      local_stage_(static_cast<size_t>(replicas()) * stages()),
      slots_(ranks()) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const int replica = ReplicaOf(rank);
    ranks_of_replica_[replica].push_back(rank);
    for (int i = 0; i < program(rank).stages_size(); ++i)
      local_stage_[static_cast<size_t>(replica) * stages() + program(rank).stages(i)] = i;
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    const size_t micro_batches = std::max(1, MicroBatches(ReplicaOf(rank)));
    slots_[rank].assign(kKinds * program(rank).stages_size() * micro_batches, -1);
    for (const v1::Instruction& instruction : program(rank).instructions()) {
      const int kind = KindOf(instruction.op(), instruction.part());
      int32_t& slot = slots_[rank][SlotOf(rank, kind, instruction.stage(), instruction.micro_batch())];
      if (slot < 0) slot = static_cast<int32_t>(instruction.id());
    }
  }
}

size_t PlanIndex::SlotOf(int rank, int kind, uint32_t stage, uint32_t micro_batch) const {
  const size_t micro_batches = std::max(1, MicroBatches(ReplicaOf(rank)));
  const size_t local_stages = program(rank).stages_size();
  return (kind * local_stages + LocalStage(rank, stage)) * micro_batches + micro_batch;
}

bool PlanIndex::NeedsTokens(uint32_t stage) const {
  if (stage == 0 || static_cast<int>(stage) + 1 == stages()) return true;
  uint64_t before = 0;
  for (uint32_t s = 0; s < stage; ++s) before += plan_.layers_per_stage(static_cast<int>(s));
  const uint64_t encoder = plan_.model().encoder_layers();
  return before <= encoder && before + plan_.layers_per_stage(static_cast<int>(stage)) > encoder;
}

const v1::Instruction* PlanIndex::Find(int rank, v1::Op op, uint32_t stage, uint32_t micro_batch,
                                       uint32_t part) const {
  const int32_t id = slots_[rank][SlotOf(rank, KindOf(op, part), stage, micro_batch)];
  return id < 0 ? nullptr : &program(rank).instructions(id);
}

TransferEnds PlanIndex::FindTransfer(int replica, uint32_t stage, uint32_t micro_batch,
                                     TransferPart part) const {
  const uint32_t from = part == kActivation ? stage : stage + 1;
  const uint32_t to = part == kActivation ? stage + 1 : stage;
  TransferEnds ends;
  ends.send_rank = RankOf(replica, from);
  ends.recv_rank = RankOf(replica, to);
  ends.send = Find(ends.send_rank, v1::OP_SEND, from, micro_batch, part);
  ends.recv = Find(ends.recv_rank, v1::OP_RECV, to, micro_batch, part);
  return ends;
}

}  // namespace penstock::core::verify
