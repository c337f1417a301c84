// One plan for several meshes side by side, out of a plan for each of them alone.
//
// What each replica does stays as it is: replicas meet twice in an iteration, when all have their parameters
// and when all have their gradients (RESHARD), and in the step behind that. Passes of all begin when those
// may that could hide least of the first one; whoever has ended them earlier waits for the last, and passes
// of all hide what they can of the second one.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/reshard_time.h"

namespace penstock::core {

// The plan of a mesh, with parameter_shares and the RESHARDs of all ranks, for some samples of the batch.
struct MeshPlan {
  v1::Plan plan;
  // By index into its own batch, the index into that of all.
  std::vector<uint32_t> samples;
};

// In the order of the meshes; their ranks follow each other. Without lower_bound_ns, strategy and
// content_hash. `reshard`: of all ranks.
v1::Plan MergePlans(const v1::JobSpec& job, const ReshardTime& reshard, std::vector<MeshPlan> plans);

// In the order of their meshes.
v1::Topology MergeTopologies(const std::vector<v1::Topology>& topologies);

}  // namespace penstock::core
