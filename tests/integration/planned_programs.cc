#include "tests/integration/planned_programs.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/planner.h"
#include "planner/service/engine/program_message.h"
#include "tests/unit/core/job_builder.h"
#include "worker/program/from_proto.h"

namespace penstock {
namespace {

v1::Batch SmallBatch() {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < 24; ++i) lengths.emplace_back(i * 37 % 190, 20 + i * i * 13 % 700);
  return core::MakeBatch(lengths);
}

v1::JobSpec WithSchedule(v1::JobSpec job, v1::Schedule schedule) {
  job.mutable_planning()->set_schedule(schedule);
  job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  return job;
}

}  // namespace

std::vector<ScheduleCase> ScheduleCases() {
  using enum ScheduleCase::Model;
  return {{1, 1},
          {1, 3},
          {4, 2},
          {2, 2, v1::SCHEDULE_READY_FIRST},
          {4, 2, v1::SCHEDULE_SPLIT_BACKWARD},
          {2, 1, v1::SCHEDULE_SPLIT_BACKWARD, {0, 1, 1, 0}},
          {4, 2, v1::SCHEDULE_SPLIT_BACKWARD, {0, 1, 2, 3, 3, 2, 1, 0}},
          {4, 2, v1::SCHEDULE_INTERLEAVED, {0, 1, 2, 3, 0, 1, 2, 3}},
          {2, 2, v1::SCHEDULE_INTERLEAVED, {0, 1, 1, 0}},
          {4, 2, v1::SCHEDULE_SPLIT_BACKWARD, {}, kT5},
          {2, 2, v1::SCHEDULE_SPLIT_BACKWARD, {0, 1, 1, 0}, kT5},
          {2, 1, v1::SCHEDULE_READY_FIRST, {}, kT5, v1::POLICY_PADDING},
          {2, 2, v1::SCHEDULE_READY_FIRST, {}, kGpt, v1::POLICY_CONCATENATED},
          {2, 1, v1::SCHEDULE_READY_FIRST, {}, kT5, v1::POLICY_CONCATENATED}};
}

std::string NameOf(const ScheduleCase& parameter) {
  std::string schedule = v1::Schedule_Name(parameter.schedule).substr(std::string("SCHEDULE_").size());
  std::erase(schedule, '_');
  const std::vector<uint32_t>& ranks = parameter.rank_of_stage;
  const char* shape = ranks.empty() ? "" : ranks.back() == 0 ? "V" : "Loop";
  std::string policy = v1::Policy_Name(parameter.policy).substr(std::string("POLICY_").size());
  return absl::StrCat(parameter.model == ScheduleCase::Model::kT5 ? "T5" : "Gpt", "Pp", parameter.pipeline,
                      "Dp", parameter.data, schedule, shape, policy);
}

v1::JobSpec JobOf(const ScheduleCase& parameter) {
  const auto make = parameter.model == ScheduleCase::Model::kT5 ? core::T5Job : core::GptJob;
  v1::JobSpec job =
      WithSchedule(make(parameter.pipeline, parameter.data, parameter.policy), parameter.schedule);
  for (const uint32_t rank : parameter.rank_of_stage) {
    job.mutable_planning()->add_rank_of_stage(rank);
    job.mutable_planning()->add_layers_per_stage(8 / static_cast<uint32_t>(parameter.rank_of_stage.size()));
  }
  return job;
}

v1::JobSpec OnShares(v1::JobSpec job) {
  job.mutable_planning()->set_parameter_shares(true);
  return job;
}

v1::JobSpec SmallJob(uint32_t pipeline, uint32_t data, v1::Schedule schedule) {
  return WithSchedule(core::GptJob(pipeline, data, v1::POLICY_DYNAMIC), schedule);
}

v1::Plan PlanOf(const v1::JobSpec& job) {
  auto planner = core::Planner::Create(job);
  EXPECT_TRUE(planner.ok()) << planner.status();
  absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(SmallBatch());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

absl::StatusOr<worker::JobConfig> ConfigOf(const v1::JobSpec& job, const v1::Topology& topology) {
  PENSTOCK_ASSIGN_OR_RETURN(worker::JobConfig config, worker::JobFromProto(job));
  PENSTOCK_ASSIGN_OR_RETURN(config.topology, worker::TopologyFromProto(topology, config));
  return config;
}

RankPrograms ProgramsOf(const worker::JobConfig& config, const v1::Plan& plan, uint64_t iterations) {
  const v1::Batch batch = SmallBatch();
  RankPrograms programs(static_cast<size_t>(plan.programs_size()));
  for (uint32_t rank = 0; rank < programs.size(); ++rank) {
    const auto program = worker::ProgramFromProto(MakeProgramMessage(batch, plan, rank), config);
    EXPECT_TRUE(program.ok()) << program.status();
    programs[rank].assign(iterations, *program);
    for (uint64_t i = 0; i < iterations; ++i) programs[rank][i].iteration = i;
  }
  return programs;
}

}  // namespace penstock
