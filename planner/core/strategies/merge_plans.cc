#include "planner/core/strategies/merge_plans.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "planner/core/contract/passes.h"
#include "planner/core/contract/reshard_durations.h"

namespace penstock::core {
namespace {

// Of a plan with shares: all ranks, before the stage groups.
constexpr uint32_t kAllRanks = 0;

bool BringsGradients(const v1::Instruction& instruction) {
  return instruction.op() == v1::OP_RESHARD && instruction.part() == 1;
}

// When the gradients of all its ranks are there.
int64_t GradientsReady(const v1::Plan& plan) {
  for (const v1::Instruction& instruction : plan.programs(0).instructions())
    if (BringsGradients(instruction)) return instruction.expected_start_ns();
  return 0;
}

// Ranks, replicas, samples and groups as all meshes together count them.
void Renumber(uint32_t first_rank, uint32_t first_replica, uint32_t groups_before, const MeshPlan& mesh,
              v1::Plan* plan) {
  for (v1::Replica& replica : *plan->mutable_replicas())
    for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches())
      for (uint32_t& sample : *micro_batch.mutable_samples()) sample = mesh.samples[sample];
  for (v1::ReplicaTopology& replica : *plan->mutable_topology()->mutable_replicas())
    for (v1::StageTopology& stage : *replica.mutable_stages())
      for (uint32_t& rank : *stage.mutable_ranks()) rank += first_rank;
  for (v1::CollectiveGroup& group : *plan->mutable_groups())
    for (uint32_t& rank : *group.mutable_ranks()) rank += first_rank;
  for (v1::Program& program : *plan->mutable_programs()) {
    program.set_rank(program.rank() + first_rank);
    program.set_replica(program.replica() + first_replica);
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      if (instruction.has_transfer())
        instruction.mutable_transfer()->set_peer(instruction.transfer().peer() + first_rank);
      if (instruction.has_collective() && instruction.collective().group() != kAllRanks)
        instruction.mutable_collective()->set_group(instruction.collective().group() + groups_before);
    }
  }
}

bool HasPass(const v1::Program& program) {
  return std::ranges::any_of(program.instructions(),
                             [](const v1::Instruction& instruction) { return IsPass(instruction.op()); });
}

bool HasPass(const v1::Plan& plan) {
  return std::ranges::any_of(plan.programs(), [](const v1::Program& program) { return HasPass(program); });
}

int64_t ParametersNs(const v1::Plan& plan) { return plan.programs(0).instructions(0).expected_duration_ns(); }

// That of the plan whose passes hide least. Of plans without a pass all have the same.
int64_t LongestParametersNs(const std::vector<MeshPlan>& plans) {
  int64_t longest = -1;
  for (const MeshPlan& mesh : plans)
    if (HasPass(mesh.plan)) longest = std::max(longest, ParametersNs(mesh.plan));
  return longest >= 0 ? longest : ParametersNs(plans.front().plan);
}

// Has the RESHARD of parameters take so long, and passes begin as much later or earlier.
void BeginAt(int64_t parameters_ns, v1::Plan* plan) {
  const int64_t before_ns = ParametersNs(*plan);
  const int64_t later_ns = parameters_ns - before_ns;
  for (v1::Program& program : *plan->mutable_programs()) {
    for (v1::Instruction& instruction : *program.mutable_instructions())
      if (instruction.expected_start_ns() >= before_ns)
        instruction.set_expected_start_ns(instruction.expected_start_ns() + later_ns);
    program.mutable_instructions(0)->set_expected_duration_ns(parameters_ns);
  }
  if (!HasPass(*plan)) return;
  v1::Prediction* predicted = plan->mutable_predicted();
  predicted->set_last_backward_ns(predicted->last_backward_ns() + later_ns);
  for (int rank = 0; rank < plan->programs_size(); ++rank) {
    v1::Bubble* bubble = predicted->mutable_ranks(rank)->mutable_bubble();
    if (HasPass(plan->programs(rank)))
      bubble->set_fill_ns(bubble->fill_ns() + later_ns);
    else
      bubble->set_imbalance_ns(bubble->imbalance_ns() + later_ns);
  }
}

// All ranks wait for the last of them.
void Wait(int64_t last_pass_ns, v1::Plan* plan) {
  const int64_t imbalance = last_pass_ns - plan->predicted().last_backward_ns();
  for (v1::RankPrediction& rank : *plan->mutable_predicted()->mutable_ranks())
    rank.mutable_bubble()->set_imbalance_ns(rank.bubble().imbalance_ns() + imbalance);
}

// What all ranks do together behind their passes.
void SetEnd(int64_t ready_ns, const ReshardTime& reshard, v1::Plan* plan) {
  const int64_t gradients_ns = ReshardDurationsOf(*plan, reshard).gradients_ns;
  for (v1::Program& program : *plan->mutable_programs()) {
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      if (BringsGradients(instruction)) {
        instruction.set_expected_start_ns(ready_ns);
        instruction.set_expected_duration_ns(gradients_ns);
      } else if (instruction.op() == v1::OP_OPTIMIZER_STEP) {
        instruction.set_expected_start_ns(ready_ns + gradients_ns);
      }
    }
  }
}

int64_t EndOf(const v1::Program& program) {
  const v1::Instruction& last = program.instructions(program.instructions_size() - 1);
  return last.expected_start_ns() + last.expected_duration_ns();
}

// The rest of the makespan is the RESHARD of gradients, and waiting for it.
void SettleMakespan(v1::Plan* plan) {
  int64_t makespan = 0;
  for (const v1::Program& program : plan->programs()) makespan = std::max(makespan, EndOf(program));
  plan->mutable_predicted()->set_makespan_ns(makespan);
  for (v1::RankPrediction& rank : *plan->mutable_predicted()->mutable_ranks()) {
    v1::Bubble* bubble = rank.mutable_bubble();
    const int64_t known = rank.busy_ns() + bubble->fill_ns() + bubble->drain_ns() + bubble->dependency_ns() +
                          bubble->transfer_ns() + bubble->imbalance_ns() + bubble->memory_ns() +
                          bubble->group_ns();
    bubble->set_transfer_ns(bubble->transfer_ns() + makespan - known);
  }
}

// Of everything that a plan has of each replica, rank or group, behind what is there.
void Append(v1::Plan* plan, v1::Plan* to) {
  const auto move = [](auto* from, auto* into) {
    for (auto& element : *from) into->Add(std::move(element));
  };
  move(plan->mutable_replicas(), to->mutable_replicas());
  move(plan->mutable_topology()->mutable_replicas(), to->mutable_topology()->mutable_replicas());
  move(plan->mutable_programs(), to->mutable_programs());
  move(plan->mutable_predicted()->mutable_ranks(), to->mutable_predicted()->mutable_ranks());
  for (uint32_t rank : plan->groups(kAllRanks).ranks()) to->mutable_groups(kAllRanks)->add_ranks(rank);
  for (int group = 1; group < plan->groups_size(); ++group)
    *to->add_groups() = std::move(*plan->mutable_groups(group));
  to->set_loss_tokens(to->loss_tokens() + plan->loss_tokens());
  to->set_real_tokens(to->real_tokens() + plan->real_tokens());
  to->set_computed_tokens(to->computed_tokens() + plan->computed_tokens());
}

v1::StrategyMesh MeshOf(const v1::Plan& plan) {
  v1::StrategyMesh mesh;
  *mesh.mutable_mesh() = plan.mesh();
  *mesh.mutable_layers_per_stage() = plan.layers_per_stage();
  *mesh.mutable_rank_of_stage() = plan.options().rank_of_stage();
  return mesh;
}

// A split backward pass shows, and so do several stages a rank.
v1::Schedule MostOf(v1::Schedule a, v1::Schedule b) {
  for (const v1::Schedule schedule :
       {v1::SCHEDULE_SPLIT_BACKWARD, v1::SCHEDULE_INTERLEAVED, v1::SCHEDULE_READY_FIRST})
    if (a == schedule || b == schedule) return schedule;
  return a;
}

}  // namespace

v1::Topology MergeTopologies(const std::vector<v1::Topology>& topologies) {
  v1::Topology merged;
  uint32_t first_rank = 0;
  for (const v1::Topology& topology : topologies) {
    uint32_t ranks = 0;
    for (const v1::ReplicaTopology& replica : topology.replicas()) {
      v1::ReplicaTopology* added = merged.add_replicas();
      *added = replica;
      for (v1::StageTopology& stage : *added->mutable_stages()) {
        for (uint32_t& rank : *stage.mutable_ranks()) {
          ranks = std::max(ranks, rank + 1);
          rank += first_rank;
        }
      }
    }
    first_rank += ranks;
  }
  return merged;
}

v1::Plan MergePlans(const v1::JobSpec& job, const ReshardTime& reshard, std::vector<MeshPlan> plans) {
  const int64_t parameters_ns = LongestParametersNs(plans);
  int64_t ready = 0, last_pass = 0;
  for (MeshPlan& mesh : plans) {
    BeginAt(parameters_ns, &mesh.plan);
    ready = std::max(ready, GradientsReady(mesh.plan));
    last_pass = std::max(last_pass, mesh.plan.predicted().last_backward_ns());
  }
  v1::Plan merged;
  for (MeshPlan& mesh : plans) {
    *merged.add_meshes() = MeshOf(mesh.plan);
    const uint32_t groups_before = merged.groups_size() == 0 ? 0 : merged.groups_size() - 1;
    Renumber(static_cast<uint32_t>(merged.programs_size()), static_cast<uint32_t>(merged.replicas_size()),
             groups_before, mesh, &mesh.plan);
    Wait(last_pass, &mesh.plan);
    if (merged.programs_size() == 0) {
      *merged.mutable_options() = mesh.plan.options();
      // Those of the other meshes' ranks as well.
      *merged.mutable_options()->mutable_rank_memory_limits() = job.planning().rank_memory_limits();
      *merged.mutable_mesh() = mesh.plan.mesh();
      *merged.mutable_layers_per_stage() = mesh.plan.layers_per_stage();
      merged.add_groups();
      merged.set_schedule(mesh.plan.schedule());
    }
    merged.set_schedule(MostOf(merged.schedule(), mesh.plan.schedule()));
    Append(&mesh.plan, &merged);
  }
  const v1::Plan& any = plans.front().plan;
  merged.set_job_id(job.job_id());
  merged.set_iteration(any.iteration());
  merged.set_plan_version(any.plan_version());
  merged.set_profile_version(any.profile_version());
  *merged.mutable_model() = any.model();
  merged.mutable_predicted()->set_last_backward_ns(last_pass);
  SetEnd(ready, reshard, &merged);
  SettleMakespan(&merged);
  return merged;
}

}  // namespace penstock::core
