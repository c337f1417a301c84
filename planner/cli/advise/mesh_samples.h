// What each of the meshes side by side of a plan has of its samples.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

// Lengths are input and target together.
struct MeshSamples {
  uint64_t samples = 0;
  uint64_t tokens = 0;
  // 0 without samples.
  uint64_t shortest = 0;
  uint64_t longest = 0;
};

// By mesh; of a plan with a mesh alone that one. `plan` is sound, and for `batch`.
std::vector<MeshSamples> SamplesOfMeshes(const v1::Batch& batch, const v1::Plan& plan);

// Adds those of another plan on the same meshes; to nothing: takes them.
void AddSamples(const std::vector<MeshSamples>& of_plan, std::vector<MeshSamples>* sum);

}  // namespace penstock::cli
