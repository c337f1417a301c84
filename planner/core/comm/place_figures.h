// What the instructions of a position take, in time and bytes, on one rank of its stage group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "planner/core/comm/build_programs.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

class PlaceFigures {
 public:
  // `first_pass` is the first of this position's joint passes among the collectives; of no use where one rank
  // holds a stage.
  PlaceFigures(const CostModel& costs, const ReplicaPipeline& pipeline, const Topology& topology, int rank,
               int32_t first_pass);

  // Fills in durations, bytes and collectives of the position's next instruction. What a pass exchanges goes
  // to `exchanges`. Transfers get theirs from BuildPrograms, which knows both ends.
  void Fill(Instruction* instruction, std::vector<PassExchange>* exchanges);

  // Bytes of what this rank sends over the boundary after the stage.
  int64_t BoundaryBytes(int stage, int32_t micro_batch) const;
  // Between this rank and its like in the next or previous group.
  int64_t TransferNs(int stage, int32_t micro_batch, int other_rank) const;

 private:
  size_t At(const Instruction& instruction) const {
    return pipeline_.costs.at(instruction.micro_batch, instruction.stage);
  }
  bool is_group() const { return !pipeline_.contexts.empty(); }
  size_t ContextAt(size_t at) const { return at * costs_.group().context + place_.context; }
  const StageMemory& MemoryAt(size_t at) const { return pipeline_.memory[ContextAt(at)]; }

  void FillForward(Instruction* forward);
  // BACKWARD or BACKWARD_INPUT.
  void FillBackward(Instruction* backward);
  void FillWeight(Instruction* weight);
  void FillFree(Instruction* free) const;
  void FillStep(Instruction* step) const;
  // Of a group: the rank's own time, what it exchanges, and that all start together.
  void MakeJoint(int64_t own_ns, const PassExchange* exchange, Instruction* pass,
                 std::vector<PassExchange>* exchanges);

  const CostModel& costs_;
  const ReplicaPipeline& pipeline_;
  int rank_;
  RankPlace place_;
  int32_t next_pass_;
};

}  // namespace penstock::core
