// Programs of the positions of one replica, under construction: instructions, their order and deps. What they
// take, in time and bytes, is filled in for each rank of a position's stage group (place_figures.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {

// A rank's program with ids and deps of its own.
struct RankProgram {
  std::vector<Instruction> instructions;
  std::vector<int32_t> deps;
  // Ids of its REDUCE_GRADIENTS, or of the RESHARD of its gradients.
  std::vector<int32_t> reductions;
  // Id of the latest instruction of the compute stream; -1 before the first.
  int32_t last_compute = -1;
  bool has_passes = false;

  // Returns the id. `instruction_deps` may hold -1 for "none".
  int32_t Add(Instruction instruction, absl::Span<const int32_t> instruction_deps);
};

class ReplicaBuilder {
 public:
  ReplicaBuilder(const CostModel& costs, const ReplicaPipeline& pipeline);

  // Consumes the timeline, then gives back what is still lent out and ends the programs. False when a stage
  // has not run all its passes, or when it is stopped.
  bool Build(const std::vector<PipelineEvent>& events, StopToken stop = {});

  // By position in the pipeline. Transfers are between positions, and their `send` and `recv` ids within the
  // programs; they have no bytes yet.
  const std::vector<RankProgram>& programs() const { return programs_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }

 private:
  // Ids that later instructions of the micro-batch on this stage refer to.
  struct PassIds {
    int32_t load = -1;
    int32_t receive_activation = -1;
    int32_t receive_gradient = -1;
    int32_t wait_activation = -1;
    int32_t wait_gradient = -1;
    int32_t forward = -1;
    // BACKWARD or BACKWARD_INPUT.
    int32_t backward = -1;
  };
  // A buffer that is lent to a SEND.
  struct Lent {
    int32_t send = 0;
    int32_t stage = 0;
    int32_t micro_batch = 0;
    bool gradient = false;
    // Its place in `transfers_`.
    int32_t transfer = 0;
  };

  size_t At(int stage, int32_t micro_batch) const { return pipeline_.costs.at(micro_batch, stage); }
  PassIds& Ids(int stage, int32_t micro_batch) { return ids_[At(stage, micro_batch)]; }
  RankProgram& ProgramOf(int stage) { return programs_[costs_.position_of(stage)]; }
  // Whether `stage` and the next one are on different ranks.
  bool Crosses(int stage) const { return costs_.position_of(stage) != costs_.position_of(stage + 1); }

  void StartPass(const PipelineEvent& event);
  void EndPass(const PipelineEvent& event);
  void EndForward(int stage, int32_t micro_batch);
  // BACKWARD or BACKWARD_INPUT.
  void EndBackward(PassKind kind, int stage, int32_t micro_batch);
  void EndWeight(int stage, int32_t micro_batch);
  // After the last pass of a micro-batch on a stage.
  void Finish(int stage, int32_t micro_batch, int32_t last_pass);
  void StartTransfer(const PipelineEvent& event);
  // Reduces the gradients of the stages that are done, the last stage first. With shares, and where passes
  // are forward only, nothing is reduced: they are done, and that is all.
  void Reduce();
  // With shares: brings parameters to the position's stages, and gradients back.
  void Begin(int position);
  void BringBack(int position);
  int LowestStage(int position) const;
  // WAIT and FREE for the SENDs of a rank that have ended, or for all.
  void GiveBack(int rank, bool all);
  int32_t Wait(int stage, int32_t micro_batch, WaitPart part, int32_t transfer);

  const CostModel& costs_;
  const ReplicaPipeline& pipeline_;
  std::vector<RankProgram> programs_;
  std::vector<Transfer> transfers_;
  std::vector<PassIds> ids_;
  // By rank.
  std::vector<std::vector<Lent>> lent_;
  // Of each transfer, and the one under way over each boundary.
  std::vector<uint8_t> transfer_ended_;
  std::vector<int32_t> under_way_;
  // Transfers so far, [from_rank * ranks + to_rank].
  std::vector<int32_t> sequences_;
  // Of each stage: last passes that micro-batches have yet to run and gradients that it has yet to send, and
  // the id of its latest such pass.
  std::vector<int32_t> open_;
  std::vector<int32_t> last_backward_;
  int next_reduction_;
};

}  // namespace penstock::core
