// The mesh that a replica of a plan is of, and its stages.
//
// A plan has one mesh, or several side by side (Plan.meshes): the replicas of the first come first, then
// those of the second, and so on. The number of replicas must be that of all meshes together (rule 0).
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core::verify {

struct ReplicaMesh {
  const v1::Mesh* mesh = nullptr;
  const google::protobuf::RepeatedField<uint32_t>* layers_per_stage = nullptr;
  // The first replica of the same mesh.
  int first_replica = 0;
  // Of every stage group: context ranks, tensor ranks of each, and ranks that divide the experts.
  uint32_t contexts = 1;
  uint32_t tensors = 1;
  uint32_t experts = 1;

  int group_ranks() const { return static_cast<int>(contexts * tensors); }
  int stages() const { return layers_per_stage->size(); }
  uint32_t layers(uint32_t stage) const { return (*layers_per_stage)[static_cast<int>(stage)]; }
};

// By replica. `plan` must outlive them.
std::vector<ReplicaMesh> ReplicaMeshes(const v1::Plan& plan);

}  // namespace penstock::core::verify
