#include "planner/core/verify/plan_index.h"

#include <algorithm>

namespace penstock::core::verify {
namespace {

constexpr int kKinds = 21;

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
    {v1::OP_RESHARD, 2},
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
      meshes_(ReplicaMeshes(plan)),
      place_of_rank_(ranks(), 0),
      stage_group_of_rank_(ranks(), 0),
      shares_(replicas()),
      ranks_of_replica_(replicas()),
      local_stage_(replicas()),
      slots_(ranks()) {
  ListPlaces();
  ListShares();
  for (int replica = 0; replica < replicas(); ++replica) local_stage_[replica].resize(StagesOf(replica));
  for (int rank = 0; rank < ranks(); ++rank) {
    const int replica = ReplicaOf(rank);
    ranks_of_replica_[replica].push_back(rank);
    for (int i = 0; i < program(rank).stages_size(); ++i) local_stage_[replica][program(rank).stages(i)] = i;
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

void PlanIndex::ListPlaces() {
  for (const v1::ReplicaTopology& replica : plan_.topology().replicas()) {
    for (const v1::StageTopology& stage : replica.stages()) {
      for (int place = 0; place < stage.ranks_size(); ++place) place_of_rank_[stage.ranks(place)] = place;
    }
  }
  const int before = has_shares() ? 1 : StagesOf(0) * static_cast<int>(MeshOf(0).tensors) + replicas();
  for (int group = before; group < plan_.groups_size(); ++group) {
    for (const uint32_t rank : plan_.groups(group).ranks())
      stage_group_of_rank_[rank] = static_cast<uint32_t>(group);
  }
}

void PlanIndex::ListShares() {
  for (int replica = 0; replica < replicas(); ++replica) {
    for (const v1::MicroBatch& micro_batch : plan_.replicas(replica).micro_batches()) {
      if (stopped()) return;
      const std::vector<Share> shares = SharesOf(batch_, plan_, micro_batch, MeshOf(replica).contexts);
      shares_[replica].insert(shares_[replica].end(), shares.begin(), shares.end());
    }
  }
}

size_t PlanIndex::SlotOf(int rank, int kind, uint32_t stage, uint32_t micro_batch) const {
  const size_t micro_batches = std::max(1, MicroBatches(ReplicaOf(rank)));
  const size_t local_stages = program(rank).stages_size();
  return (kind * local_stages + LocalStage(rank, stage)) * micro_batches + micro_batch;
}

bool PlanIndex::NeedsTokens(int replica, uint32_t stage) const {
  const ReplicaMesh& mesh = MeshOf(replica);
  if (stage == 0 || static_cast<int>(stage) + 1 == mesh.stages()) return true;
  uint64_t before = 0;
  for (uint32_t s = 0; s < stage; ++s) before += mesh.layers(s);
  const uint64_t encoder = plan_.model().encoder_layers();
  return before <= encoder && before + mesh.layers(stage) > encoder;
}

bool PlanIndex::EmbedsTarget(int replica, uint32_t stage) const {
  const v1::ReplicaTopology& shape = plan_.topology().replicas(replica);
  const auto decoders = [&](uint32_t s) { return shape.stages(static_cast<int>(s)).decoder_layers(); };
  return decoders(stage) > 0 && (stage == 0 || decoders(stage - 1) == 0);
}

const v1::Instruction* PlanIndex::Find(int rank, v1::Op op, uint32_t stage, uint32_t micro_batch,
                                       uint32_t part) const {
  const int32_t id = slots_[rank][SlotOf(rank, KindOf(op, part), stage, micro_batch)];
  return id < 0 ? nullptr : &program(rank).instructions(id);
}

TransferEnds PlanIndex::FindTransfer(int replica, uint32_t stage, uint32_t micro_batch, TransferPart part,
                                     int place) const {
  const uint32_t from = part == kActivation ? stage : stage + 1;
  const uint32_t to = part == kActivation ? stage + 1 : stage;
  TransferEnds ends;
  ends.send_rank = RankOf(replica, from, place);
  ends.recv_rank = RankOf(replica, to, place);
  ends.send = Find(ends.send_rank, v1::OP_SEND, from, micro_batch, part);
  ends.recv = Find(ends.recv_rank, v1::OP_RECV, to, micro_batch, part);
  return ends;
}

}  // namespace penstock::core::verify
