#include "planner/core/contract/plan_of_mesh.h"

#include <algorithm>
#include <cstdint>

#include "common/mesh/mesh_ranks.h"
#include "planner/core/contract/rank_memory.h"

namespace penstock::core {
namespace {

// Of all ranks; stage groups come behind it.
constexpr uint32_t kAllRanks = 0;

// Group 0 keeps the ranks of the mesh; of the others those that are of the mesh are kept. Returns how many
// were left out before those.
uint32_t CopyGroups(const v1::Plan& plan, const MeshRange& range, v1::Plan* part) {
  const auto first = static_cast<uint32_t>(range.first_rank),
             end = first + static_cast<uint32_t>(range.ranks);
  uint32_t before = 0;
  for (int group = 0; group < plan.groups_size(); ++group) {
    const auto& ranks = plan.groups(group).ranks();
    if (group > 0 && !ranks.empty() && ranks[0] < first) ++before;
    if (group > 0 && (ranks.empty() || ranks[0] < first || ranks[0] >= end)) continue;
    v1::CollectiveGroup* own = part->add_groups();
    for (const uint32_t rank : ranks)
      if (rank >= first && rank < end) own->add_ranks(rank - first);
  }
  return before;
}

void CopyProgram(const v1::Program& program, const MeshRange& range, uint32_t groups_before, v1::Plan* part) {
  v1::Program* own = part->add_programs();
  *own = program;
  own->set_rank(program.rank() - static_cast<uint32_t>(range.first_rank));
  own->set_replica(program.replica() - static_cast<uint32_t>(range.first_replica));
  for (v1::Instruction& instruction : *own->mutable_instructions()) {
    if (instruction.has_transfer()) {
      v1::Transfer* transfer = instruction.mutable_transfer();
      transfer->set_peer(transfer->peer() - static_cast<uint32_t>(range.first_rank));
    }
    if (instruction.has_collective() && instruction.collective().group() != kAllRanks)
      instruction.mutable_collective()->set_group(instruction.collective().group() - groups_before);
  }
}

}  // namespace

int MeshCount(const v1::Plan& plan) { return std::max(1, plan.meshes_size()); }

MeshRange RangeOfMesh(const v1::Plan& plan, int mesh) {
  if (plan.meshes().empty()) return {0, plan.programs_size(), 0, plan.replicas_size()};
  MeshRange range;
  for (int before = 0; before <= mesh; ++before) {
    range.first_rank += range.ranks;
    range.first_replica += range.replicas;
    range.ranks = static_cast<int>(RanksOf(plan.meshes(before).mesh()));
    range.replicas = static_cast<int>(plan.meshes(before).mesh().data());
  }
  return range;
}

int MeshOfRank(const v1::Plan& plan, int rank) {
  int mesh = 0;
  while (mesh + 1 < MeshCount(plan) && rank >= RangeOfMesh(plan, mesh + 1).first_rank) ++mesh;
  return mesh;
}

v1::Plan PlanOfMesh(const v1::Plan& plan, int mesh) {
  if (plan.meshes().empty()) return plan;
  const MeshRange range = RangeOfMesh(plan, mesh);
  v1::Plan part;
  part.set_job_id(plan.job_id());
  part.set_iteration(plan.iteration());
  part.set_profile_version(plan.profile_version());
  *part.mutable_model() = plan.model();
  *part.mutable_mesh() = plan.meshes(mesh).mesh();
  *part.mutable_layers_per_stage() = plan.meshes(mesh).layers_per_stage();
  *part.mutable_options() = plan.options();
  *part.mutable_options()->mutable_layers_per_stage() = plan.meshes(mesh).layers_per_stage();
  *part.mutable_options()->mutable_rank_of_stage() = plan.meshes(mesh).rank_of_stage();
  KeepRankMemory(range.first_rank, range.ranks, part.mutable_options());
  part.set_loss_tokens(plan.loss_tokens());
  part.set_loss_weight(plan.loss_weight());
  part.set_schedule(plan.schedule());
  part.set_strategy(plan.strategy());
  for (int replica = range.first_replica; replica < range.first_replica + range.replicas; ++replica) {
    *part.add_replicas() = plan.replicas(replica);
    v1::ReplicaTopology* own = part.mutable_topology()->add_replicas();
    *own = plan.topology().replicas(replica);
    for (v1::StageTopology& stage : *own->mutable_stages())
      for (uint32_t& rank : *stage.mutable_ranks()) rank -= static_cast<uint32_t>(range.first_rank);
  }
  const uint32_t groups_before = CopyGroups(plan, range, &part);
  for (int rank = range.first_rank; rank < range.first_rank + range.ranks; ++rank) {
    CopyProgram(plan.programs(rank), range, groups_before, &part);
    if (rank < plan.predicted().ranks_size())
      *part.mutable_predicted()->add_ranks() = plan.predicted().ranks(rank);
  }
  part.mutable_predicted()->set_makespan_ns(plan.predicted().makespan_ns());
  part.mutable_predicted()->set_last_backward_ns(plan.predicted().last_backward_ns());
  return part;
}

}  // namespace penstock::core
