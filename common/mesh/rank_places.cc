#include "common/mesh/rank_places.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"

namespace penstock {

const v1::StrategyMesh* MeshSideBySide(const v1::Plan& plan, uint32_t replica) {
  uint64_t replicas = 0;
  for (const v1::StrategyMesh& mesh : plan.meshes()) {
    replicas += mesh.mesh().data();
    if (replica < replicas) return &mesh;
  }
  return nullptr;
}

const v1::Mesh& MeshOfReplica(const v1::Plan& plan, uint32_t replica) {
  const v1::StrategyMesh* const mesh = MeshSideBySide(plan, replica);
  return mesh == nullptr ? plan.mesh() : mesh->mesh();
}

bool HasGroups(const v1::Mesh& mesh) { return GroupRanks(mesh) > 1; }

bool HasGroups(const v1::Plan& plan) {
  if (plan.meshes().empty()) return HasGroups(plan.mesh());
  return std::ranges::any_of(plan.meshes(),
                             [](const v1::StrategyMesh& mesh) { return HasGroups(mesh.mesh()); });
}

std::vector<GroupPlace> PlacesOf(const v1::Plan& plan) {
  std::vector<GroupPlace> places(plan.programs_size());
  for (int number = 0; number < plan.topology().replicas_size(); ++number) {
    const v1::ReplicaTopology& replica = plan.topology().replicas(number);
    const uint32_t tensor = TensorRanks(MeshOfReplica(plan, static_cast<uint32_t>(number)));
    for (const v1::StageTopology& stage : replica.stages()) {
      for (int place = 0; place < stage.ranks_size(); ++place) {
        if (stage.ranks(place) >= places.size()) continue;
        const auto index = static_cast<uint32_t>(place);
        places[stage.ranks(place)] = {.context = index / tensor, .tensor = index % tensor};
      }
    }
  }
  return places;
}

std::string PlaceName(const v1::Mesh& mesh, const GroupPlace& place) {
  std::vector<std::string> parts;
  if (ContextRanks(mesh) > 1) parts.push_back(absl::StrCat("c", place.context));
  if (TensorRanks(mesh) > 1) parts.push_back(absl::StrCat("t", place.tensor));
  return absl::StrJoin(parts, " ");
}

std::string MeshName(const v1::Mesh& mesh) {
  std::string name = absl::StrCat("pp ", mesh.pipeline(), " x dp ", mesh.data());
  if (ContextRanks(mesh) > 1) absl::StrAppend(&name, " x cp ", mesh.context());
  if (TensorRanks(mesh) > 1) absl::StrAppend(&name, " x tp ", mesh.tensor());
  // No factor of the ranks.
  if (ExpertRanks(mesh) > 1) absl::StrAppend(&name, ", ep ", mesh.expert());
  return name;
}

std::string MeshName(const v1::Plan& plan) {
  if (plan.meshes().empty()) return MeshName(plan.mesh());
  return absl::StrJoin(plan.meshes(), " + ", [](std::string* text, const v1::StrategyMesh& mesh) {
    absl::StrAppend(text, MeshName(mesh.mesh()));
  });
}

}  // namespace penstock
