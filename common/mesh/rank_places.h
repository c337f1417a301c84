// Where the ranks of a plan are in their stage groups, for people.
//
//   const std::vector<GroupPlace> places = PlacesOf(plan);
//   PlaceName(MeshOfReplica(plan, plan.programs(rank).replica()), places[rank]);  // "c3 t1"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

struct GroupPlace {
  uint32_t context = 0;
  uint32_t tensor = 0;
};

// Of several meshes side by side (Plan.meshes) that which the replica is of; null where the plan has one
// mesh, or the replica is of none.
const v1::StrategyMesh* MeshSideBySide(const v1::Plan& plan, uint32_t replica);
// The same, or the plan's mesh.
const v1::Mesh& MeshOfReplica(const v1::Plan& plan, uint32_t replica);

// Whether its stages are held by several ranks; of a plan, those of some replica.
bool HasGroups(const v1::Mesh& mesh);
bool HasGroups(const v1::Plan& plan);

// By program, from the plan's topology. Takes any plan, valid or not: a rank that the topology lacks is at 0,
// 0.
std::vector<GroupPlace> PlacesOf(const v1::Plan& plan);

// "c3 t1"; "c3" or "t1" where the mesh has one of the degrees; empty without stage groups.
std::string PlaceName(const v1::Mesh& mesh, const GroupPlace& place);

// "pp 2 x dp 4", with stage groups "pp 2 x dp 4 x cp 8 x tp 2", of experts "pp 2 x dp 4 x cp 8, ep 4".
std::string MeshName(const v1::Mesh& mesh);
// Of several side by side "tp 4 + dp 4", as meshes are named.
std::string MeshName(const v1::Plan& plan);

}  // namespace penstock
