// How many ranks a mesh has: the one place where its degrees are multiplied.
#pragma once

#include <algorithm>
#include <cstdint>

#include "penstock/v1/job.pb.h"

namespace penstock {

// Degrees of a stage group that are 1 are left out, so that a mesh without groups is the same message as
// ever.
inline v1::Mesh MakeMesh(uint32_t pipeline, uint32_t data, uint32_t tensor, uint32_t context,
                         uint32_t expert = 1) {
  v1::Mesh mesh;
  mesh.set_pipeline(pipeline);
  mesh.set_data(data);
  if (tensor > 1) mesh.set_tensor(tensor);
  if (context > 1) mesh.set_context(context);
  if (expert > 1) mesh.set_expert(expert);
  return mesh;
}

// Degrees that are 0 stand for 1.
inline uint32_t TensorRanks(const v1::Mesh& mesh) { return std::max(mesh.tensor(), uint32_t{1}); }
inline uint32_t ContextRanks(const v1::Mesh& mesh) { return std::max(mesh.context(), uint32_t{1}); }
inline uint32_t ExpertRanks(const v1::Mesh& mesh) { return std::max(mesh.expert(), uint32_t{1}); }

// Of a stage group, of one pipeline, and of all replicas.
inline uint64_t GroupRanks(const v1::Mesh& mesh) { return uint64_t{TensorRanks(mesh)} * ContextRanks(mesh); }
inline uint64_t PipelineRanks(const v1::Mesh& mesh) { return mesh.pipeline() * GroupRanks(mesh); }
inline uint64_t RanksOf(const v1::Mesh& mesh) { return mesh.data() * PipelineRanks(mesh); }
// Of all meshes side by side.
inline uint64_t RanksOf(const v1::Strategy& strategy) {
  uint64_t ranks = 0;
  for (const v1::StrategyMesh& mesh : strategy.meshes()) ranks += RanksOf(mesh.mesh());
  return ranks;
}
// All strategies of a job run on the same ranks.
inline uint64_t RanksOf(const v1::JobSpec& job) {
  return job.strategies().empty() ? RanksOf(job.mesh()) : RanksOf(job.strategies(0));
}

}  // namespace penstock
