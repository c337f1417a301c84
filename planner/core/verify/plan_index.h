// A plan whose structure is sound, with instructions findable by key and stages by rank.
//
// Built only after CheckStructure found nothing fatal: indices need no further range checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/verify/replica_mesh.h"
#include "planner/core/verify/share.h"

namespace penstock::core::verify {

// `part` of WAIT and FREE (plan.proto, Instruction.part).
enum WaitPart : uint32_t {
  kWaitReceivedActivation,
  kWaitReceivedGradient,
  kWaitSentActivation,
  kWaitSentGradient
};
enum FreePart : uint32_t { kFreeOutputActivation, kFreeInputGradient, kFreeLoadedTokens };
// `part` of SEND and RECV.
enum TransferPart : uint32_t { kActivation, kGradient };
// `part` of RESHARD.
enum ReshardPart : uint32_t { kParametersToStages, kGradientsToShares };

// Position of (op, part) among the kinds of instruction that a plan may hold, or -1 if it may not hold it.
int KindOf(v1::Op op, uint32_t part);

inline bool IsTransfer(v1::Op op) { return op == v1::OP_SEND || op == v1::OP_RECV; }

// What belongs to no micro-batch.
inline bool IsOfWholeIteration(v1::Op op) {
  return op == v1::OP_REDUCE_GRADIENTS || op == v1::OP_RESHARD || op == v1::OP_OPTIMIZER_STEP;
}

// FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT or RECOMPUTE.
inline bool IsPass(v1::Op op) {
  return op == v1::OP_FORWARD || op == v1::OP_BACKWARD || op == v1::OP_BACKWARD_INPUT ||
         op == v1::OP_BACKWARD_WEIGHT || op == v1::OP_RECOMPUTE;
}

// Both ends of the way from one stage to another: the instruction is null where the plan lacks it.
struct TransferEnds {
  int send_rank = 0;
  int recv_rank = 0;
  const v1::Instruction* send = nullptr;
  const v1::Instruction* recv = nullptr;
};

class PlanIndex {
 public:
  // Both must outlive the index. Rules leave their loops when `stop` has stopped them.
  PlanIndex(const v1::Batch& batch, const v1::Plan& plan, StopToken stop = {});

  const v1::Batch& batch() const { return batch_; }
  const v1::Plan& plan() const { return plan_; }
  bool stopped() const { return stop_.stopped(); }
  // Parameters are in shares, one a rank; all ranks meet in group 0.
  bool has_shares() const { return plan_.options().parameter_shares(); }
  // Passes are FORWARD alone, and nothing comes behind them.
  bool forward_only() const { return plan_.forward_only(); }
  int ranks() const { return plan_.programs_size(); }
  int replicas() const { return plan_.replicas_size(); }
  const ReplicaMesh& MeshOf(int replica) const { return meshes_[replica]; }
  int StagesOf(int replica) const { return MeshOf(replica).stages(); }
  const v1::Program& program(int rank) const { return plan_.programs(rank); }
  int ReplicaOf(int rank) const { return static_cast<int>(program(rank).replica()); }
  int MicroBatches(int replica) const { return plan_.replicas(replica).micro_batches_size(); }
  const ReplicaMesh& MeshOfRank(int rank) const { return MeshOf(ReplicaOf(rank)); }
  // The rank of `replica` that holds `stage`, by its place in the stage group.
  int RankOf(int replica, uint32_t stage, int place = 0) const {
    return static_cast<int>(plan_.topology().replicas(replica).stages(static_cast<int>(stage)).ranks(place));
  }
  // A rank's place in its stage group, and the context and tensor rank that it is there.
  int PlaceOf(int rank) const { return place_of_rank_[rank]; }
  uint32_t ContextOf(int rank) const {
    return static_cast<uint32_t>(PlaceOf(rank)) / MeshOfRank(rank).tensors;
  }
  uint32_t TensorOf(int rank) const {
    return static_cast<uint32_t>(PlaceOf(rank)) % MeshOfRank(rank).tensors;
  }
  // Indices into Plan.groups: of those who reduce a stage with this rank, of those who step with it, and,
  // where stage groups have several ranks, of its stage group.
  uint32_t ReduceGroupOf(int rank, uint32_t stage) const {
    return stage * MeshOfRank(rank).tensors + TensorOf(rank);
  }
  uint32_t StepGroupOf(int rank) const {
    if (has_shares()) return 0;
    const ReplicaMesh& mesh = MeshOfRank(rank);
    return static_cast<uint32_t>(mesh.stages()) * mesh.tensors + static_cast<uint32_t>(ReplicaOf(rank));
  }
  uint32_t StageGroupOf(int rank) const { return stage_group_of_rank_[rank]; }
  // What a context rank has of a micro-batch.
  const Share& ShareOf(int replica, uint32_t micro_batch, uint32_t context) const {
    return shares_[replica][static_cast<size_t>(micro_batch) * MeshOf(replica).contexts + context];
  }
  // Ranks of a replica, ascending.
  const std::vector<int>& RanksOf(int replica) const { return ranks_of_replica_[replica]; }
  // Position of `stage` among the stages of `rank`, which has it.
  int LocalStage(int rank, uint32_t stage) const { return local_stage_[ReplicaOf(rank)][stage]; }
  // Whether `stage` and the next one are on different ranks of a replica, so that tensors travel between
  // them.
  bool CrossesRanks(int replica, uint32_t stage) const {
    return RankOf(replica, stage) != RankOf(replica, stage + 1);
  }

  // Whether the stage embeds tokens, or needs them for the loss: it is the first one, the first one with a
  // decoder layer, or the last one.
  bool NeedsTokens(int replica, uint32_t stage) const;

  // Whether it embeds the target: a GPT's first stage, a T5's first one with a decoder layer.
  bool EmbedsTarget(int replica, uint32_t stage) const;

  uint32_t LowestStageOf(int rank) const {
    return *std::min_element(program(rank).stages().begin(), program(rank).stages().end());
  }

  // The (first) instruction with this key, or null. `stage` must be on `rank`.
  const v1::Instruction* Find(int rank, v1::Op op, uint32_t stage, uint32_t micro_batch,
                              uint32_t part = 0) const;
  // The (first) RESHARD of this part, or null.
  const v1::Instruction* FindReshard(int rank, ReshardPart part) const {
    return Find(rank, v1::OP_RESHARD, LowestStageOf(rank), 0, part);
  }

  // The transfer over the boundary between `stage` and `stage` + 1 of the ranks at this place of their
  // groups: the activation goes up, the gradient down.
  TransferEnds FindTransfer(int replica, uint32_t stage, uint32_t micro_batch, TransferPart part,
                            int place) const;

 private:
  void ListPlaces();
  void ListShares();
  size_t SlotOf(int rank, int kind, uint32_t stage, uint32_t micro_batch) const;

  const v1::Batch& batch_;
  const v1::Plan& plan_;
  const StopToken stop_;
  const std::vector<ReplicaMesh> meshes_;
  std::vector<int> place_of_rank_;
  std::vector<uint32_t> stage_group_of_rank_;
  // Of each replica: [micro-batch * contexts + context rank].
  std::vector<std::vector<Share>> shares_;
  std::vector<std::vector<int>> ranks_of_replica_;
  // By replica and stage.
  std::vector<std::vector<int>> local_stage_;
  // For each rank: instruction id by (kind, local stage, micro-batch), or -1.
  std::vector<std::vector<int32_t>> slots_;
};

}  // namespace penstock::core::verify
