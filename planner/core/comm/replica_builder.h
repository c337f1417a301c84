// Programs of the ranks of one replica, under construction.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "planner/core/comm/build_programs.h"
#include "planner/core/schedule/pipeline_timeline.h"

namespace penstock::core {

// A rank's program with ids and deps of its own.
struct RankProgram {
  std::vector<Instruction> instructions;
  std::vector<int32_t> deps;
  // Id of the rank's last BACKWARD, or -1.
  int32_t last_backward = -1;

  // Returns the id. `deps` may hold -1 for "none".
  int32_t Add(Instruction instruction, std::initializer_list<int32_t> instruction_deps);
};

class ReplicaBuilder {
 public:
  ReplicaBuilder(const CostModel& costs, const ReplicaPipeline& pipeline);

  // Consumes the timeline, then gives back what is still lent out.
  void Build(const std::vector<PipelineEvent>& events);

  // By position in the pipeline. Transfer positions (`send`, `recv`) are ids within the rank's program.
  std::vector<RankProgram>& programs() { return programs_; }
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
    int32_t backward = -1;
  };
  // A buffer that is lent to a SEND.
  struct Lent {
    int32_t send = 0;
    int32_t micro_batch = 0;
    bool gradient = false;
    bool ended = false;
    int64_t bytes = 0;
  };

  PassIds& Ids(const PipelineEvent& event) {
    return ids_[pipeline_.costs.at(event.micro_batch, event.stage)];
  }
  void StartPass(const PipelineEvent& event);
  void EndPass(const PipelineEvent& event);
  void StartTransfer(const PipelineEvent& event);
  void EndTransfer(const PipelineEvent& event);
  // WAIT and FREE for the SENDs that have ended, or for all.
  void GiveBack(int stage, bool all);
  int32_t Wait(int stage, int32_t micro_batch, WaitPart part, int32_t transfer);

  const CostModel& costs_;
  const ReplicaPipeline& pipeline_;
  std::vector<RankProgram> programs_;
  std::vector<Transfer> transfers_;
  std::vector<PassIds> ids_;
  std::vector<std::vector<Lent>> lent_;
  // Transfers so far over each link, by direction.
  std::vector<int32_t> activations_;
  std::vector<int32_t> gradients_;
};

}  // namespace penstock::core
