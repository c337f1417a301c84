#include "planner/core/calibrate/durations.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/status/status_macros.h"
#include "planner/core/contract/micro_batch_shares.h"

namespace penstock::core {
namespace {

StageRecompute RecomputeAt(const v1::MicroBatch& micro_batch, int stage) {
  if (stage >= micro_batch.recompute_size()) return {};
  return {.selective = static_cast<int32_t>(micro_batch.recompute(stage).selective_layers()),
          .full = static_cast<int32_t>(micro_batch.recompute(stage).full_layers())};
}

class DurationSetter {
 public:
  DurationSetter(const v1::Plan& plan, const CostModel& costs, ProgramSet* programs)
      : plan_(plan), costs_(costs), programs_(*programs) {}

  absl::Status Run(const Batch& batch) {
    PENSTOCK_RETURN_IF_ERROR(ReadLayers(batch));
    for (int rank = 0; rank < programs_.ranks(); ++rank) {
      for (int32_t i = programs_.rank_begin[rank]; i < programs_.rank_begin[rank + 1]; ++i)
        Set(rank, &programs_.instructions[i]);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadLayers(const Batch& batch) {
    for (const v1::Replica& replica : plan_.replicas()) {
      auto& of_replica = layers_.emplace_back();
      for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
        for (const uint32_t sample : micro_batch.samples()) {
          if (sample >= batch.samples.size())
            return absl::InvalidArgumentError("plan.replicas: a sample that the batch lacks");
        }
        PENSTOCK_ASSIGN_OR_RETURN(
            const MicroBatchShares shares,
            SharesOfMicroBatch(micro_batch, batch, costs_.nodes(), costs_.group().context));
        auto& of_micro_batch = of_replica.emplace_back();
        for (const Share& share : shares.computed) {
          if (!costs_.Layers(share, &of_micro_batch.emplace_back()))
            return absl::InvalidArgumentError("plan.replicas: a micro-batch outside of the profile");
        }
      }
    }
    return absl::OkStatus();
  }

  // A group takes as long as its slowest rank.
  int64_t PassNs(int replica, const Instruction& instruction) const {
    const v1::MicroBatch& micro_batch = plan_.replicas(replica).micro_batches(instruction.micro_batch);
    const StageRecompute recompute = RecomputeAt(micro_batch, instruction.stage);
    int64_t longest = 0;
    for (const LayerCosts& layers : layers_[replica][instruction.micro_batch]) {
      int64_t time = 0;
      if (instruction.op == Op::kForward) time = costs_.ForwardNs(instruction.stage, layers);
      if (instruction.op == Op::kBackwardWeight) time = costs_.WeightNs(instruction.stage, layers);
      if (instruction.op == Op::kBackward) time = costs_.BackwardNs(instruction.stage, layers, recompute);
      if (instruction.op == Op::kBackwardInput) {
        time = costs_.BackwardNs(instruction.stage, layers, recompute) -
               costs_.WeightNs(instruction.stage, layers);
      }
      longest = std::max(longest, time);
    }
    return longest;
  }

  void Set(int rank, Instruction* instruction) const {
    const RankPlace place = costs_.topology().PlaceOf(rank);
    if (IsPass(instruction->op)) {
      instruction->duration_ns = PassNs(place.replica, *instruction);
    } else if (instruction->op == Op::kSend || instruction->op == Op::kRecv) {
      const Transfer& transfer = programs_.transfers[instruction->joint];
      instruction->duration_ns = costs_.TransferNs(transfer.bytes, transfer.from_rank, transfer.to_rank);
    } else if (instruction->op == Op::kReduceGradients) {
      instruction->duration_ns = costs_.ReduceNs(instruction->stage, place.tensor);
    } else if (instruction->op == Op::kOptimizerStep) {
      instruction->duration_ns = costs_.StepNs(rank);
    }
  }

  const v1::Plan& plan_;
  const CostModel& costs_;
  ProgramSet& programs_;
  // By replica, micro-batch and context rank.
  std::vector<std::vector<std::vector<LayerCosts>>> layers_;
};

}  // namespace

absl::Status SetDurations(const v1::Plan& plan, const Batch& batch, const CostModel& costs,
                          ProgramSet* programs) {
  return DurationSetter(plan, costs, programs).Run(batch);
}

}  // namespace penstock::core
