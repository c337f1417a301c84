#include "planner/core/verify/replica_mesh.h"

#include "planner/core/verify/share.h"

namespace penstock::core::verify {
namespace {

void AddReplicas(const v1::Mesh& mesh, const google::protobuf::RepeatedField<uint32_t>& layers_per_stage,
                 std::vector<ReplicaMesh>* replicas) {
  const ReplicaMesh each = {.mesh = &mesh,
                            .layers_per_stage = &layers_per_stage,
                            .first_replica = static_cast<int>(replicas->size()),
                            .contexts = ContextRanks(mesh),
                            .tensors = TensorRanks(mesh),
                            .experts = ExpertRanks(mesh)};
  replicas->insert(replicas->end(), mesh.data(), each);
}

}  // namespace

std::vector<ReplicaMesh> ReplicaMeshes(const v1::Plan& plan) {
  std::vector<ReplicaMesh> replicas;
  for (const v1::StrategyMesh& mesh : plan.meshes())
    AddReplicas(mesh.mesh(), mesh.layers_per_stage(), &replicas);
  if (plan.meshes().empty()) AddReplicas(plan.mesh(), plan.layers_per_stage(), &replicas);
  return replicas;
}

}  // namespace penstock::core::verify
