// Programs of any mesh, made by hand: all forward passes, then all backward passes, without regard to time.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

// What one replica works on, and for how many tokens of loss that all replicas have.
struct HandMadeIteration {
  uint64_t iteration = 0;
  std::vector<uint32_t> layers_per_stage = {};
  // Of each replica.
  std::vector<std::vector<MicroBatch>> micro_batches = {};
  uint64_t loss_tokens = 1;
};

// Of rank `rank` of job.topology, each of whose ranks holds one stage; with shares of parameters, where the
// job has them.
Program HandMadeProgram(const JobConfig& job, const HandMadeIteration& iteration, uint32_t rank);

}  // namespace penstock::worker
