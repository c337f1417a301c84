// Which mesh of several side by side takes which samples of a batch, by estimates of what they take.
//
//   std::vector<int> mesh_of_sample = AssignSamples(loads);
//
// Samples are given out one after the other, the longest first, each to the mesh that would then end first
// (longest processing time first, for machines that differ: Graham 1969; Hydraulis, section 5.2, has this as
// an integer programme). Then single samples move off the mesh that ends last, or are exchanged for
// another's, as long as that mesh ends earlier and no other ends later than it did.
#pragma once

#include <vector>

#include "planner/core/model/sample_estimate.h"

namespace penstock::core {

// What a mesh makes of the samples of a batch.
struct MeshLoad {
  std::vector<SampleEstimate> samples;
  int replicas = 1;
  // What estimates are multiplied with: what plans took, where some were made.
  double factor = 1;
};

// By sample. A mesh that would make nothing sooner gets none. Empty where some sample fits no mesh. `loads`
// have the same samples.
std::vector<int> AssignSamples(const std::vector<MeshLoad>& loads);

// When the mesh ends that has these of its samples, without what is the same for all.
double EndOfMesh(const MeshLoad& load, const std::vector<int>& mesh_of_sample, int mesh);

}  // namespace penstock::core
