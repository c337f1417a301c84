// Small jobs of every schedule, planned, and the programs of their ranks as workers get them. Without
// LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock {

struct ScheduleCase {
  enum class Model : uint8_t { kGpt, kT5 };

  uint32_t pipeline = 1;
  uint32_t data = 1;
  v1::Schedule schedule = v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
  // Empty: one a rank.
  std::vector<uint32_t> rank_of_stage = {};
  Model model = Model::kGpt;
  v1::Policy policy = v1::POLICY_DYNAMIC;
};

// Every schedule, shape of a pipeline, model and layout.
std::vector<ScheduleCase> ScheduleCases();
// For a test's name.
std::string NameOf(const ScheduleCase& parameter);
v1::JobSpec JobOf(const ScheduleCase& parameter);
// The same job with its parameters in shares.
v1::JobSpec OnShares(v1::JobSpec job);
// A GPT's.
v1::JobSpec SmallJob(uint32_t pipeline, uint32_t data, v1::Schedule schedule);

// Of a batch of 24 samples, the same for every job. The test fails where there is none.
v1::Plan PlanOf(const v1::JobSpec& job);

// What a worker of the job knows once it is registered.
absl::StatusOr<worker::JobConfig> ConfigOf(const v1::JobSpec& job, const v1::Topology& topology);

// The programs of each rank, one an iteration.
using RankPrograms = std::vector<std::vector<worker::Program>>;

// The plan's, again in each of the iterations.
RankPrograms ProgramsOf(const worker::JobConfig& config, const v1::Plan& plan, uint64_t iterations = 1);

}  // namespace penstock
