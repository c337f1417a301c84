// A job, who is where, and a program, as the planner sends them: tests change one field or another.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/planner_service.pb.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {

// A GPT on two stages and two replicas; and one with a shared expert and losses of its router.
v1::JobSpec ValidJob();
v1::JobSpec JobOfExperts();

// Two stages in each of two replicas.
v1::Topology ValidTopology();

JobConfig Job(const v1::JobSpec& spec = ValidJob());
// One replica of two stages, each on two context ranks; and one whose context ranks divide the experts.
JobConfig ContextJob(const std::vector<uint32_t>& first = {0, 1},
                     const std::vector<uint32_t>& second = {2, 3});
JobConfig ExpertJob();

// Rank 1 of two stages: one padded and one packed micro-batch, one of each kind of instruction.
v1::StreamProgramsResponse ValidMessage();
// The same of context rank 1 of the second stage of ContextJob, of which sample 2's row is divided.
v1::StreamProgramsResponse ContextMessage();

}  // namespace penstock::worker
