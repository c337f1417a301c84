#include "tests/unit/worker/runtime/hand_made_programs.h"

#include <algorithm>

#include "worker/model/boundary_shape.h"
#include "worker/model/parameters.h"
#include "worker/model/token_batch.h"

namespace penstock::worker {
namespace {

class Maker {
 public:
  Maker(const JobConfig& job, const HandMadeIteration& iteration, uint32_t rank)
      : job_(job), iteration_(iteration), topology_(job.topology) {
    program_.iteration = iteration.iteration;
    program_.rank = rank;
    program_.stages = topology_.StagesOf(rank);
    program_.layers_per_stage = iteration.layers_per_stage;
    program_.loss_tokens = iteration.loss_tokens;
    for (uint32_t i = 0; i < topology_.replicas.size(); ++i) {
      const RankGroup ranks = topology_.PipelineGroup(topology_.replicas[i].stages[0].ranks[0]);
      if (std::ranges::find(ranks, rank) != ranks.end()) program_.replica = i;
    }
    program_.micro_batches = iteration.micro_batches[program_.replica];
    if (job.parameter_shares)
      program_.groups = {topology_.WorldGroup(), topology_.WorldGroup()};
    else
      program_.groups = {topology_.GradientGroups(rank).front(), topology_.PipelineGroup(rank)};
    program_.groups.push_back(topology_.StageGroupOf(rank));
    stage_ = program_.stages.front();
  }

  Program Make() {
    const auto count = static_cast<uint32_t>(program_.micro_batches.size());
    if (job_.parameter_shares) AddReshard(ReshardPart::kParameters);
    for (uint32_t i = 0; i < count; ++i) AddForward(i);
    for (uint32_t i = 0; i < count; ++i) AddBackward(i);
    const uint32_t reduction =
        job_.parameter_shares ? AddReshard(ReshardPart::kGradients) : Add(Op::kReduceGradients, 0).id;
    Instruction& step = Add(Op::kOptimizerStep, 0);
    step.group = 1;
    step.deps = {reduction};
    return program_;
  }

 private:
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == program_.layers_per_stage.size(); }

  Instruction& Add(Op op, uint32_t micro_batch) {
    Instruction& instruction = program_.instructions.emplace_back();
    instruction.id = static_cast<uint32_t>(program_.instructions.size() - 1);
    instruction.op = op;
    instruction.stage = stage_;
    instruction.micro_batch = micro_batch;
    return instruction;
  }

  uint32_t AddReshard(ReshardPart part) {
    Instruction& reshard = Add(Op::kReshard, 0);
    reshard.stream = Stream::kCollective;
    reshard.part = static_cast<uint32_t>(part);
    return reshard.id;
  }

  void AddPass(Op op, uint32_t micro_batch) {
    Instruction& pass = Add(op, micro_batch);
    pass.joint = program_.groups[2].size() > 1;
    pass.group = 2;
  }

  // With the rank of equal place in `stage`; of the boundary below the higher of both.
  uint32_t AddTransfer(Op op, TransferKind kind, uint32_t stage, uint32_t micro_batch) {
    const auto& stages = topology_.replicas[program_.replica].stages;
    const auto place = std::ranges::find(stages[stage_].ranks, program_.rank) - stages[stage_].ranks.begin();
    const StageRange above = StageRangeOf(program_.layers_per_stage, std::max(stage, stage_));
    Instruction& transfer = Add(op, micro_batch);
    transfer.transfer = static_cast<uint32_t>(program_.transfers.size());
    program_.transfers.push_back({.peer = stages[stage].ranks[static_cast<size_t>(place)],
                                  .kind = kind,
                                  .shape = BoundaryShape(program_.micro_batches[micro_batch], job_.model,
                                                         above.first_layer, topology_.PlaceOf(program_.rank)),
                                  .dtype = job_.model.dtype,
                                  .sequence = micro_batch});
    return transfer.id;
  }

  void AddReceive(TransferKind kind, uint32_t stage, uint32_t micro_batch) {
    const uint32_t id = AddTransfer(Op::kRecv, kind, stage, micro_batch);
    Add(Op::kWait, micro_batch).transfer = id;
  }

  void AddForward(uint32_t micro_batch) {
    if (TokenNeedsOf(job_.model, StageRangeOf(program_.layers_per_stage, stage_)).any())
      Add(Op::kLoad, micro_batch);
    if (!first()) AddReceive(TransferKind::kActivation, stage_ - 1, micro_batch);
    AddPass(Op::kForward, micro_batch);
    if (!last()) AddTransfer(Op::kSend, TransferKind::kActivation, stage_ + 1, micro_batch);
  }

  void AddBackward(uint32_t micro_batch) {
    if (!last()) AddReceive(TransferKind::kGradient, stage_ + 1, micro_batch);
    // Both kinds in one iteration.
    if (micro_batch % 2 == 0) {
      AddPass(Op::kBackward, micro_batch);
    } else {
      AddPass(Op::kBackwardInput, micro_batch);
      AddPass(Op::kBackwardWeight, micro_batch);
    }
    if (!first()) AddTransfer(Op::kSend, TransferKind::kGradient, stage_ - 1, micro_batch);
  }

  const JobConfig& job_;
  const HandMadeIteration& iteration_;
  const Topology& topology_;
  Program program_;
  uint32_t stage_ = 0;
};

}  // namespace

Program HandMadeProgram(const JobConfig& job, const HandMadeIteration& iteration, uint32_t rank) {
  return Maker(job, iteration, rank).Make();
}

}  // namespace penstock::worker
