#include "planner/core/audit/audit_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::core {
namespace {

bool IsPass(v1::Op op) {
  return op == v1::OP_FORWARD || op == v1::OP_BACKWARD || op == v1::OP_BACKWARD_INPUT ||
         op == v1::OP_BACKWARD_WEIGHT;
}

StageRecompute RecomputeOf(const v1::MicroBatch& micro_batch, int stage) {
  const v1::StageRecompute& recompute = micro_batch.recompute(stage);
  return {.selective = static_cast<int32_t>(recompute.selective_layers()),
          .full = static_cast<int32_t>(recompute.full_layers())};
}

// What a pass takes: time, and bytes when it starts and when it ends.
struct PassCost {
  int64_t duration_ns = 0;
  int64_t acquired_bytes = 0;
  int64_t released_bytes = 0;
};

class Audit {
 public:
  Audit(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs)
      : plan_(plan), batch_(batch), job_(job), costs_(costs) {}

  std::vector<Violation> Run() {
    if (TopologyToProto(job_.topology).SerializeAsString() != plan_.topology().SerializeAsString()) {
      Fail("topology is not that of options.layers_per_stage and options.rank_of_stage");
      return std::move(violations_);
    }
    CheckFamily();
    for (int replica = 0; replica < plan_.replicas_size(); ++replica) ListReplica(replica);
    if (!violations_.empty()) return std::move(violations_);
    for (int stage = 0; stage < costs_.stages(); ++stage) reduce_ns_.push_back(costs_.ReduceNs(stage));
    for (const v1::Program& program : plan_.programs()) CheckProgram(program);
    return std::move(violations_);
  }

 private:
  struct MicroBatchCosts {
    const v1::MicroBatch* proto = nullptr;
    TokenSums sums;
    LayerCosts layers;
  };

  void Fail(std::string message, int64_t rank = -1, int64_t instruction = -1) {
    if (violations_.size() < kMostListed)
      violations_.push_back({kCostsRule, rank, instruction, std::move(message)});
  }

  void CheckFamily() {
    const v1::Schedule allowed = plan_.options().schedule();
    const bool split = plan_.schedule() == v1::SCHEDULE_SPLIT_BACKWARD;
    const bool may_split = allowed == v1::SCHEDULE_UNSPECIFIED || allowed == v1::SCHEDULE_AUTO ||
                           allowed == v1::SCHEDULE_SPLIT_BACKWARD;
    const bool one_forward_one_backward = allowed == v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
    if ((split && !may_split) || (one_forward_one_backward && plan_.schedule() == v1::SCHEDULE_READY_FIRST))
      Fail(absl::StrCat("schedule is ", v1::Schedule_Name(plan_.schedule()), ", which options.schedule, ",
                        v1::Schedule_Name(allowed), ", excludes"));
  }

  void ListReplica(int replica) {
    std::vector<MicroBatchCosts>& list = micro_batches_.emplace_back();
    for (int m = 0; m < plan_.replicas(replica).micro_batches_size(); ++m) {
      const v1::MicroBatch& micro_batch = plan_.replicas(replica).micro_batches(m);
      const std::string name = absl::StrCat("replica ", replica, ", micro-batch ", m, ": ");
      MicroBatchCosts& costs = list.emplace_back();
      costs.proto = &micro_batch;
      costs.sums = Sums(micro_batch);
      if (!costs_.Layers(costs.sums, &costs.layers))
        Fail(absl::StrCat(name, "its shape is outside of the profile"));
      CheckLayout(micro_batch, name);
      for (int stage = 0; stage < costs_.stages(); ++stage) CheckRecompute(micro_batch, stage, name);
    }
  }

  TokenSums Sums(const v1::MicroBatch& micro_batch) const {
    const absl::Span<const uint32_t> samples(micro_batch.samples().data(), micro_batch.samples_size());
    const TokenSums packed = SumsOf(samples, batch_.samples, Layout::kPacked);
    if (micro_batch.layout() == v1::LAYOUT_PACKED) return packed;
    return PaddedSums(static_cast<int32_t>(micro_batch.rows()),
                      static_cast<int32_t>(micro_batch.source_length()),
                      static_cast<int32_t>(micro_batch.target_length()), packed.loss);
  }

  void CheckLayout(const v1::MicroBatch& micro_batch, const std::string& name) {
    const v1::Layout layout = micro_batch.layout();
    bool allowed = layout != v1::LAYOUT_CONCATENATED;
    if (job_.policy == Policy::kPadding) allowed = layout == v1::LAYOUT_PADDED;
    if (job_.policy == Policy::kConcatenated) allowed = layout == v1::LAYOUT_CONCATENATED;
    if (job_.policy == Policy::kPacked || job_.policy == Policy::kTokenBudget)
      allowed = layout == v1::LAYOUT_PACKED;
    if (job_.policy == Policy::kDynamic && job_.layout == LayoutChoice::kPadded)
      allowed = layout == v1::LAYOUT_PADDED;
    if (job_.policy == Policy::kDynamic && job_.layout == LayoutChoice::kPacked)
      allowed = layout == v1::LAYOUT_PACKED;
    if (!allowed)
      Fail(absl::StrCat(name, "its layout is ", v1::Layout_Name(layout), ", which options.policy, ",
                        v1::Policy_Name(plan_.options().policy()), ", does not make"));
  }

  void CheckRecompute(const v1::MicroBatch& micro_batch, int stage, const std::string& name) {
    const StageRecompute found = RecomputeOf(micro_batch, stage);
    const int32_t layers = costs_.stage(stage).layers();
    const auto expect = [&](int32_t selective, int32_t full) {
      if (found.selective == selective && found.full == full) return;
      Fail(absl::StrCat(name, "stage ", stage, " recomputes ", found.selective, " layers selectively and ",
                        found.full, " in full, options.recompute asks for ", selective, " and ", full));
    };
    if (job_.recompute == RecomputeMode::kNone) expect(0, 0);
    if (job_.recompute == RecomputeMode::kSelective) expect(layers, 0);
    if (job_.recompute == RecomputeMode::kFull) expect(0, layers);
    if (found.selective > 0 && !costs_.has_selective())
      Fail(absl::StrCat(name, "stage ", stage,
                        " recomputes selectively, for which the profile has no figures"));
  }

  void CheckProgram(const v1::Program& program) {
    const auto rank = static_cast<int>(program.rank());
    const RankPlace place = job_.topology.PlaceOf(rank);
    const auto expect = [&](const char* field, int64_t found, int64_t expected) {
      if (found != expected)
        Fail(absl::StrCat("rank ", rank, ": ", field, " is ", found, ", expected ", expected), rank);
    };
    expect("static_memory_bytes", program.static_memory_bytes(), costs_.RankStaticBytes(place.position));
    expect("memory_limit_bytes", program.memory_limit_bytes(), job_.memory_limit_bytes);
    for (const v1::Instruction& instruction : program.instructions()) CheckInstruction(program, instruction);
  }

  void CheckInstruction(const v1::Program& program, const v1::Instruction& instruction) {
    const auto stage = static_cast<int>(instruction.stage());
    switch (instruction.op()) {
      case v1::OP_SEND:
      case v1::OP_RECV:
        return CheckTransfer(program, instruction);
      case v1::OP_REDUCE_GRADIENTS:
        Expect(program, instruction, "collective.bytes",
               static_cast<int64_t>(instruction.collective().bytes()), costs_.ParameterBytes(stage));
        return Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
                      reduce_ns_[stage]);
      case v1::OP_OPTIMIZER_STEP:
        return CheckStep(program, instruction);
      default:
        if (IsPass(instruction.op())) CheckPass(program, instruction);
    }
  }

  void Expect(const v1::Program& program, const v1::Instruction& instruction, const char* field,
              int64_t found, int64_t expected) {
    if (found == expected) return;
    Fail(absl::StrCat("rank ", program.rank(), ", instruction ", instruction.id(), " (",
                      v1::Op_Name(instruction.op()).substr(3), ", micro-batch ", instruction.micro_batch(),
                      ", stage ", instruction.stage(), "): ", field, " is ", found, ", expected ", expected),
         program.rank(), instruction.id());
  }

  void CheckTransfer(const v1::Program& program, const v1::Instruction& instruction) {
    const bool upper_end = (instruction.op() == v1::OP_RECV) == (instruction.part() == 0);
    const int lower = static_cast<int>(instruction.stage()) - (upper_end ? 1 : 0);
    const MicroBatchCosts& micro_batch = micro_batches_[program.replica()][instruction.micro_batch()];
    const int64_t bytes = costs_.BoundaryBytes(lower, micro_batch.sums);
    Expect(program, instruction, "transfer.bytes", static_cast<int64_t>(instruction.transfer().bytes()),
           bytes);
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
           costs_.TransferNs(bytes, static_cast<int>(program.rank()),
                             static_cast<int>(instruction.transfer().peer())));
  }

  void CheckStep(const v1::Program& program, const v1::Instruction& instruction) {
    Expect(program, instruction, "collective.bytes", static_cast<int64_t>(instruction.collective().bytes()),
           costs_.StepBytes());
    int64_t duration = 0;
    for (const uint32_t stage : program.stages()) duration += costs_.OptimizerNs(static_cast<int>(stage));
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(), duration);
  }

  void CheckPass(const v1::Program& program, const v1::Instruction& instruction) {
    const PassCost cost = CostOf(instruction, micro_batches_[program.replica()][instruction.micro_batch()]);
    Expect(program, instruction, "expected_duration_ns", instruction.expected_duration_ns(),
           cost.duration_ns);
    Expect(program, instruction, "memory_acquired_bytes", instruction.memory_acquired_bytes(),
           cost.acquired_bytes);
    Expect(program, instruction, "memory_released_bytes", instruction.memory_released_bytes(),
           cost.released_bytes);
  }

  // The table of execution.md, section 8.
  PassCost CostOf(const v1::Instruction& pass, const MicroBatchCosts& micro_batch) const {
    const auto stage = static_cast<int>(pass.stage());
    const StageRecompute recompute = RecomputeOf(*micro_batch.proto, stage);
    const StageMemory memory = costs_.Memory(stage, micro_batch.sums);
    const int64_t stored = costs_.StoredBytes(stage, memory, recompute);
    const int64_t kept = costs_.PutAsideBytes(stage, memory);
    const int64_t backward_ns = costs_.BackwardNs(stage, micro_batch.layers, recompute);
    const int64_t weight_ns = costs_.WeightNs(stage, micro_batch.layers);
    switch (pass.op()) {
      case v1::OP_FORWARD:
        return {costs_.ForwardNs(stage, micro_batch.layers), stored + memory.output, 0};
      case v1::OP_BACKWARD:
        return {backward_ns, memory.peak + memory.input, memory.peak + stored + memory.input + memory.output};
      case v1::OP_BACKWARD_INPUT:
        return {backward_ns - weight_ns, memory.peak + memory.input + std::max<int64_t>(0, kept - stored),
                memory.peak + std::max<int64_t>(0, stored - kept) + memory.input + memory.output};
      default:
        return {weight_ns, 0, kept};
    }
  }

  const v1::Plan& plan_;
  const Batch& batch_;
  const Job& job_;
  const CostModel& costs_;
  // By replica and position.
  std::vector<std::vector<MicroBatchCosts>> micro_batches_;
  // Of each stage, over all replicas: computed once, not for each of their ranks.
  std::vector<int64_t> reduce_ns_;
  std::vector<Violation> violations_;
};

}  // namespace

absl::StatusOr<std::vector<Violation>> AuditPlan(const v1::Batch& batch, const v1::Plan& plan,
                                                 const v1::CostProfile& profile) {
  if (plan.profile_version() != profile.version()) {
    return std::vector<Violation>{{kCostsRule, -1, -1,
                                   absl::StrCat("profile_version is ", plan.profile_version(),
                                                ", that of the profile ", profile.version())}};
  }
  v1::JobSpec spec;
  spec.set_job_id("audit");
  *spec.mutable_model() = plan.model();
  *spec.mutable_mesh() = plan.mesh();
  *spec.mutable_planning() = plan.options();
  *spec.mutable_profile() = profile;
  PENSTOCK_ASSIGN_OR_RETURN(const Job job, JobFromProto(spec));
  PENSTOCK_ASSIGN_OR_RETURN(Profile known, ProfileFromProto(profile, job.architecture));
  PENSTOCK_ASSIGN_OR_RETURN(const Batch samples, BatchFromProto(batch, job));
  const CostModel costs(std::move(known), job);
  return Audit(plan, samples, job, costs).Run();
}

}  // namespace penstock::core
