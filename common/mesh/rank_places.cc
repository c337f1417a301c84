#include "common/mesh/rank_places.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"

namespace penstock {
bool HasGroups(const v1::Mesh& mesh) { return GroupRanks(mesh) > 1; }

std::vector<GroupPlace> PlacesOf(const v1::Plan& plan) {
  std::vector<GroupPlace> places(plan.programs_size());
  const uint32_t tensor = TensorRanks(plan.mesh());
  for (const v1::ReplicaTopology& replica : plan.topology().replicas()) {
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

}  // namespace penstock
