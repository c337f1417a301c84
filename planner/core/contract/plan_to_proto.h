// From the core's programs and micro-batches to the contract's plan.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/types.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/program/program_set.h"
#include "planner/core/simulate/bubble.h"
#include "planner/core/simulate/memory_account.h"
#include "planner/core/simulate/simulator.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

// All that a plan is made of.
struct PlanParts {
  const v1::JobSpec& spec;
  const Job& job;
  const Batch& batch;
  const CostModel& costs;
  // With recompute on every stage.
  const Assignment& assignment;
  const ProgramSet& programs;
  // Has run `programs`.
  const Simulator& simulator;
  int64_t lower_bound_ns = 0;
  // What the programs belong to; not kAuto. Of no meaning where they are forward only.
  ScheduleFamily schedule = ScheduleFamily::kOneForwardOneBackward;
  bool forward_only = false;
  StopToken stop = {};
};

v1::Topology TopologyToProto(const Topology& topology);

// Without planning_time_ns and content_hash; plan_version is 1. A part of the plan where it is stopped.
v1::Plan PlanToProto(const PlanParts& parts);

}  // namespace penstock::core
