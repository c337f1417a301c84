// Plans whose passes a test lists itself, for any placement of stages.
//
//   PipelineCase given(GptJob(2, 1, v1::POLICY_DYNAMIC), {2, 2, 2, 2}, {0, 1, 1, 0}, /*micro_batches=*/1, 7);
//   given.SetPasses(0, {"F0.0 F3.0 B3.0 B0.0", "F1.0 F2.0 B2.0 B1.0"});
//   given.ExpectSound();
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/types.h"
#include "planner/core/program/program_set.h"
#include "planner/core/schedule/pipeline.h"
#include "planner/core/simulate/memory_account.h"

namespace penstock::core {

// One text for each rank: passes as "F0.2": F (FORWARD), B (BACKWARD), I (BACKWARD_INPUT) or W
// (BACKWARD_WEIGHT), the stage, and the micro-batch.
RankPasses ParsePasses(const std::vector<std::string>& ranks);

// All passes in a random order that can run. `split_percent`: of the backward passes.
RankPasses RandomPasses(const PipelineCosts& costs, uint32_t split_percent, std::mt19937* random);

class PipelineCase {
 public:
  // `job.mesh.pipeline` ranks; each replica gets micro-batches of random samples and random recompute.
  PipelineCase(v1::JobSpec job, const std::vector<uint32_t>& layers_per_stage,
               const std::vector<uint32_t>& position_of_stage, int micro_batches, uint32_t seed);

  const CostModel& costs() const { return costs_; }
  const Topology& topology() const { return job_.topology; }
  std::vector<ReplicaPipeline>& replicas() { return replicas_; }
  void SetPasses(int replica, const std::vector<std::string>& ranks) {
    replicas_[replica].passes = ParsePasses(ranks);
  }
  ProgramSet Programs() const;

  // The plan passes the checker, the simulator finds the times of the timeline, memory ends where it began
  // and peaks as an account of the timeline's events says, and every rank's time adds up to the makespan.
  // Returns the plan.
  v1::Plan ExpectSound() const;

 private:
  // What the passes belong to.
  ScheduleFamily Family() const;
  void AddReplica(int micro_batches, std::mt19937* random);
  // The account of the programs is that of the timeline's events.
  void ExpectMemoryOfEvents(const ProgramSet& programs, const std::vector<RankMemory>& memory) const;

  v1::JobSpec spec_;
  Job job_;
  CostModel costs_;
  v1::Batch proto_;
  Batch batch_;
  Assignment assignment_;
  std::vector<ReplicaPipeline> replicas_;
};

}  // namespace penstock::core
