#include "worker/runtime/mesh_groups.h"

namespace penstock::worker {
namespace {

RankGroup Ranks(uint32_t first, uint32_t step, uint32_t count) {
  RankGroup group;
  for (uint32_t i = 0; i < count; ++i) group.push_back(first + i * step);
  return group;
}

}  // namespace

RankGroup PipelineGroup(const JobConfig& job, uint32_t rank) {
  return Ranks(rank - rank % job.pipeline, 1, job.pipeline);
}

RankGroup GradientGroup(const JobConfig& job, uint32_t rank) {
  return Ranks(rank % job.pipeline, job.pipeline, job.replicas);
}

RankGroup WorldGroup(const JobConfig& job) { return Ranks(0, 1, job.world_size()); }

}  // namespace penstock::worker
