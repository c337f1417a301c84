// With whom a rank communicates: what its job and its strategies say of a communicator's options.
#pragma once

#include <cstdint>

#include "worker/comm/communicator.h"
#include "worker/program/job.h"

namespace penstock::worker {

// Sets rank, world_size, groups, links, and what passes exchange. All strategies of a job have one
// communicator: its connections are made, and their ends proved, once and before the first iteration, and one
// abort ends them. Where parameters live in shares everything but passes is over all ranks, so that its
// strategies add no groups but those of their passes.
void SetGroups(const JobConfig& job, uint32_t rank, CommunicatorOptions& options);

// With whom the passes of a rank exchange on a strategy.
PassGroups PassGroupsOf(const Topology& topology, uint32_t rank);

}  // namespace penstock::worker
