// The groups of ranks that a job's mesh makes: rank = replica * pipeline + position.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/program/job.h"

namespace penstock::worker {

using RankGroup = std::vector<uint32_t>;

// All of them ascending.
// The ranks of the pipeline that `rank` is in, in stage order.
RankGroup PipelineGroup(const JobConfig& job, uint32_t rank);
// The ranks of all replicas that hold the same stages as `rank`.
RankGroup GradientGroup(const JobConfig& job, uint32_t rank);
RankGroup WorldGroup(const JobConfig& job);

}  // namespace penstock::worker
