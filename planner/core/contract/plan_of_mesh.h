// The part of a plan that one of its meshes runs, where it has several side by side (Plan.meshes).
#pragma once

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// 1 where the plan has a mesh alone.
int MeshCount(const v1::Plan& plan);

// Where a mesh is among the ranks, replicas and groups of a plan.
struct MeshRange {
  int first_rank = 0;
  int ranks = 0;
  int first_replica = 0;
  int replicas = 0;
};
// The plan's meshes and topology agree.
MeshRange RangeOfMesh(const v1::Plan& plan, int mesh);
// Of the rank.
int MeshOfRank(const v1::Plan& plan, int rank);

// As a plan of that mesh alone: ranks, replicas and groups are numbered from 0; samples are those of the
// whole batch, and times those of the whole plan.
v1::Plan PlanOfMesh(const v1::Plan& plan, int mesh);

}  // namespace penstock::core
