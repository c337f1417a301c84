#include "planner/core/audit/audit_costs.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "planner/core/contract/micro_batch_shares.h"
#include "planner/core/contract/passes.h"
#include "planner/core/contract/reduce_durations.h"
#include "planner/core/contract/transfer_ends.h"
#include "planner/core/model/share.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {
namespace {

// What one context rank has of a micro-batch.
struct ShareCosts {
  Share share;
  LayerCosts layers;
};

// What a pass takes: time of the rank alone, what it exchanges in it, and bytes when it starts and when it
// ends.
struct PassCost {
  int64_t own_ns = 0;
  PassExchange exchange;
  int64_t acquired_bytes = 0;
  int64_t released_bytes = 0;
};

StageRecompute RecomputeOf(const v1::MicroBatch& micro_batch, int stage) {
  const v1::StageRecompute& recompute = micro_batch.recompute(stage);
  return {.selective = static_cast<int32_t>(recompute.selective_layers()),
          .full = static_cast<int32_t>(recompute.full_layers())};
}

class CostsAudit {
 public:
  CostsAudit(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs,
             const ReshardDurations& reshards, AuditList* list)
      : plan_(plan), batch_(batch), job_(job), costs_(costs), reshards_(reshards), list_(*list) {}

  void Run() {
    for (int replica = 0; replica < plan_.replicas_size(); ++replica) {
      std::vector<std::vector<ShareCosts>>& of_replica = micro_batches_.emplace_back();
      for (int m = 0; m < plan_.replicas(replica).micro_batches_size(); ++m)
        of_replica.push_back(ListMicroBatch(replica, m));
    }
    if (!list_.empty()) return;
    reduce_ns_ = ReduceDurationsOf(plan_, costs_);
    for (const v1::Program& program : plan_.programs()) CheckProgram(program);
  }

 private:
  std::vector<ShareCosts> ListMicroBatch(int replica, int m) {
    const v1::MicroBatch& micro_batch = plan_.replicas(replica).micro_batches(m);
    const std::string name = absl::StrCat("replica ", replica, ", micro-batch ", m, ": ");
    const absl::StatusOr<SharesInParts> shares =
        ComputedShares(micro_batch, batch_, costs_.nodes(), costs_.group().context, job_.windows);
    if (!shares.ok()) {
      list_.Add(absl::StrCat(name, shares.status().message()));
      return {};
    }
    std::vector<ShareCosts> result;
    for (size_t context = 0; context < shares->whole.size(); ++context) {
      ShareCosts& costs = result.emplace_back();
      costs.share = shares->whole[context];
      if (!costs_.Layers(costs.share, shares->parts[context], shares->whole_backward, &costs.layers))
        list_.Add(absl::StrCat(name, "its shape is outside of the profile"));
    }
    return result;
  }

  void CheckProgram(const v1::Program& program) {
    const auto rank = static_cast<int>(program.rank());
    const auto expect = [&](const char* field, int64_t found, int64_t expected) {
      if (found != expected)
        list_.Add(absl::StrCat("rank ", rank, ": ", field, " is ", found, ", expected ", expected), rank);
    };
    place_ = job_.topology.PlaceOf(rank);
    expect("static_memory_bytes", program.static_memory_bytes(), costs_.StaticBytesOfRank(rank));
    expect("memory_limit_bytes", program.memory_limit_bytes(), job_.memory_limits.Of(rank));
    for (const v1::Instruction& instruction : program.instructions()) CheckInstruction(program, instruction);
  }

  void CheckInstruction(const v1::Program& program, const v1::Instruction& instruction) {
    switch (instruction.op()) {
      case v1::OP_SEND:
      case v1::OP_RECV:
        return CheckTransfer(program, instruction);
      case v1::OP_REDUCE_GRADIENTS:
        return CheckReduce(program, instruction);
      case v1::OP_RESHARD:
        return CheckReshard(program, instruction);
      case v1::OP_OPTIMIZER_STEP:
        return CheckStep(program, instruction);
      default:
        if (IsPass(instruction.op())) CheckPass(program, instruction);
    }
  }

  void Expect(const v1::Program& program, const v1::Instruction& instruction, const char* field,
              int64_t found, int64_t expected) {
    if (found == expected) return;
    list_.Add(
        absl::StrCat("rank ", program.rank(), ", instruction ", instruction.id(), " (",
                     v1::Op_Name(instruction.op()).substr(3), ", micro-batch ", instruction.micro_batch(),
                     ", stage ", instruction.stage(), "): ", field, " is ", found, ", expected ", expected),
        program.rank(), instruction.id());
  }

  // What the rank's context rank, or another one of its stage group, has of the micro-batch.
  const ShareCosts& CostsOf(const v1::Instruction& instruction, int context) const {
    return micro_batches_[place_.replica][instruction.micro_batch()][context];
  }

  // Of what the rank sends over the boundary after the stage.
  int64_t BoundaryBytes(int stage, const Share& share) const {
    if (stage < 0 || stage + 1 >= costs_.stages()) return 0;
    return costs_.BoundaryBytes(stage, share.sums, place_.tensor);
  }

  void CheckTransfer(const v1::Program& program, const v1::Instruction& instruction) {
    const bool upper_end = (instruction.op() == v1::OP_RECV) == (instruction.part() == 0);
    const int lower = static_cast<int>(instruction.stage()) - (upper_end ? 1 : 0);
    const int64_t bytes = BoundaryBytes(lower, CostsOf(instruction, place_.context).share);
    Expect(program, instruction, "transfer.bytes", static_cast<int64_t>(instruction.transfer().bytes()),
           bytes);
    const TransferEnds ends = EndsOfTransfer(static_cast<int>(program.rank()), instruction);
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
           costs_.TransferNs(bytes, ends.from, ends.to));
  }

  void CheckReduce(const v1::Program& program, const v1::Instruction& instruction) {
    const auto stage = static_cast<int>(instruction.stage());
    Expect(program, instruction, "collective.bytes", static_cast<int64_t>(instruction.collective().bytes()),
           costs_.ParameterBytes(stage));
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
           reduce_ns_[stage * costs_.group().tensor + place_.tensor]);
  }

  void CheckReshard(const v1::Program& program, const v1::Instruction& instruction) {
    Expect(program, instruction, "collective.bytes", static_cast<int64_t>(instruction.collective().bytes()),
           reshard_bytes_);
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
           instruction.part() == kGradientsToShares ? reshards_.gradients_ns : reshards_.parameters_ns);
  }

  void CheckStep(const v1::Program& program, const v1::Instruction& instruction) {
    Expect(program, instruction, "collective.bytes", static_cast<int64_t>(instruction.collective().bytes()),
           costs_.StepBytes());
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
           costs_.StepNs(static_cast<int>(program.rank())));
  }

  void CheckPass(const v1::Program& program, const v1::Instruction& instruction) {
    const PassCost cost = CostOf(instruction, place_.context);
    int64_t longest = cost.own_ns;
    for (int context = 0; context < costs_.group().context; ++context) {
      if (context != place_.context) longest = std::max(longest, CostOf(instruction, context).own_ns);
    }
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(), longest);
    Expect(program, instruction, "memory_acquired_bytes", instruction.memory_acquired_bytes(),
           cost.acquired_bytes);
    Expect(program, instruction, "memory_released_bytes", instruction.memory_released_bytes(),
           cost.released_bytes);
    if (costs_.group().ranks() > 1) CheckOwn(program, instruction, cost);
  }

  void CheckOwn(const v1::Program& program, const v1::Instruction& pass, const PassCost& cost) {
    const v1::PassExchange& exchange = pass.exchange();
    const auto expect = [&](const char* field, int64_t found, int64_t expected) {
      Expect(program, pass, field, found, expected);
    };
    expect("own_duration_ns", pass.own_duration_ns(), cost.own_ns);
    expect("exchange.tensor_bytes", static_cast<int64_t>(exchange.tensor_bytes()),
           cost.exchange.tensor_bytes);
    expect("exchange.tensor_ns", exchange.tensor_ns(), cost.exchange.tensor_ns);
    expect("exchange.context_sent_bytes", static_cast<int64_t>(exchange.context_sent_bytes()),
           cost.exchange.context_sent_bytes);
    expect("exchange.context_received_bytes", static_cast<int64_t>(exchange.context_received_bytes()),
           cost.exchange.context_received_bytes);
    expect("exchange.context_ns", exchange.context_ns(), cost.exchange.context_ns);
    expect("exchange.context_exposed_ns", exchange.context_exposed_ns(), cost.exchange.context_exposed_ns);
    expect("exchange.expert_bytes", static_cast<int64_t>(exchange.expert_bytes()),
           cost.exchange.expert_bytes);
    expect("exchange.expert_ns", exchange.expert_ns(), cost.exchange.expert_ns);
    expect("exchange.expert_exposed_ns", exchange.expert_exposed_ns(), cost.exchange.expert_exposed_ns);
    expect("exchange.products_beside_return", exchange.products_beside_return(),
           cost.exchange.products_beside_return);
    expect("exchange.products_beside_arrival", exchange.products_beside_arrival(),
           cost.exchange.products_beside_arrival);
    expect("exchange.others_beside_arrival", exchange.others_beside_arrival() ? 1 : 0,
           cost.exchange.others_beside_arrival ? 1 : 0);
  }

  // The table of execution.md, section 8, and the times of section 7, for the share of a context rank.
  PassCost CostOf(const v1::Instruction& pass, int context) const {
    const ShareCosts& of = CostsOf(pass, context);
    const auto stage = static_cast<int>(pass.stage());
    const StageRecompute recompute = RecomputeOf(
        plan_.replicas(place_.replica).micro_batches(static_cast<int>(pass.micro_batch())), stage);
    const StageMemory memory = costs_.Memory(stage, of.share);
    const int64_t stored = costs_.StoredBytes(stage, memory, recompute);
    const int64_t kept = costs_.PutAsideBytes(stage, memory);
    const int64_t input = BoundaryBytes(stage - 1, of.share), output = BoundaryBytes(stage, of.share);
    const int64_t forward_peak = memory.forward_peak(), alone = memory.forward_alone_peak();
    const int64_t peak = costs_.BackwardPeak(stage, memory, recompute);
    const int64_t input_peak = costs_.InputBackwardPeak(stage, memory);
    const auto slowed = [&](int64_t ns) {
      return costs_.slow_groups().Slowed(ns, place_.replica, place_.position, context);
    };
    const int64_t backward_ns = slowed(costs_.BackwardNs(stage, of.layers, recompute));
    const int64_t weight_ns = slowed(costs_.WeightNs(stage, of.layers));
    const PassExchange backward_exchange = costs_.BackwardExchange(stage, of.layers, recompute);
    switch (pass.op()) {
      case v1::OP_FORWARD:
        return {slowed(costs_.ForwardNs(stage, of.layers)), costs_.ForwardExchange(stage, of.layers),
                plan_.forward_only() ? alone + output : stored + output + forward_peak,
                plan_.forward_only() ? alone + input : forward_peak};
      case v1::OP_BACKWARD:
        return {backward_ns, backward_exchange, peak + input, peak + stored + input + output};
      case v1::OP_BACKWARD_INPUT:
        return {backward_ns - weight_ns, backward_exchange,
                input_peak + input + std::max<int64_t>(0, kept - stored),
                input_peak + std::max<int64_t>(0, stored - kept) + input + output};
      default:
        return {weight_ns, {}, 0, kept};
    }
  }

  const v1::Plan& plan_;
  const Batch& batch_;
  const Job& job_;
  const CostModel& costs_;
  const ReshardDurations reshards_;
  AuditList& list_;
  // Of the program that is looked at.
  RankPlace place_;
  // By replica, position in it and context rank.
  std::vector<std::vector<std::vector<ShareCosts>>> micro_batches_;
  // Of each stage, and in it of each tensor rank.
  std::vector<int64_t> reduce_ns_;
  const int64_t reshard_bytes_ = costs_.ReshardBytes();
};

}  // namespace

void AuditCosts(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs,
                const ReshardDurations& reshards, AuditList* list) {
  CostsAudit(plan, batch, job, costs, reshards, list).Run();
}

}  // namespace penstock::core
