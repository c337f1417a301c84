// Plans of the planner on simulated devices: what runs is what was planned, to the nanosecond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tests/integration/planned_programs.h"
#include "tests/integration/simulated/simulated_ranks.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using worker::IterationResult;
using worker::MeasuredInstruction;
using worker::RankRun;

// As fast as this machine can.
constexpr SimulationOptions kNoDisturbance = {.time_scale = 0};

// Runs the plan for several iterations.
std::vector<RankRun> RunPlan(const v1::JobSpec& job, const v1::Plan& plan, const SimulationOptions& options,
                             uint64_t iterations = 1) {
  const absl::StatusOr<worker::JobConfig> config = ConfigOf(job, plan.topology());
  EXPECT_TRUE(config.ok()) << config.status();
  std::vector<RankRun> runs = RunSimulatedRanks(*config, ProgramsOf(*config, plan, iterations), options);
  for (const RankRun& run : runs) EXPECT_TRUE(run.status.ok()) << run.status;
  return runs;
}

int64_t LongestOf(const std::vector<RankRun>& runs, size_t iteration) {
  int64_t longest = 0;
  for (const RankRun& run : runs) longest = std::max(longest, run.iterations[iteration].duration_ns);
  return longest;
}

// How many instructions of the rank took another time than the plan says.
int Different(const v1::Program& program, const IterationResult& result) {
  int different = 0;
  for (const MeasuredInstruction& measured : result.instructions) {
    const v1::Instruction& planned = program.instructions(static_cast<int>(measured.id));
    if (measured.duration_ns != planned.expected_duration_ns()) ++different;
  }
  return different;
}

void ExpectAsPlanned(const v1::Plan& plan, const std::vector<RankRun>& runs) {
  ASSERT_EQ(runs.size(), static_cast<size_t>(plan.programs_size()));
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    const v1::Program& program = plan.programs(static_cast<int>(rank));
    const IterationResult& result = runs[rank].iterations.front();
    ASSERT_EQ(result.instructions.size(), static_cast<size_t>(program.instructions_size()));
    for (const MeasuredInstruction& measured : result.instructions) {
      const v1::Instruction& planned = program.instructions(static_cast<int>(measured.id));
      ASSERT_EQ(measured.start_ns, planned.expected_start_ns())
          << "rank " << rank << ", " << planned.ShortDebugString();
      ASSERT_EQ(measured.duration_ns, planned.expected_duration_ns())
          << "rank " << rank << ", " << planned.ShortDebugString();
    }
    // The plan's peak is that of the program's order; streams that run beside each other may come to less.
    const int64_t peak = plan.predicted().ranks(static_cast<int>(rank)).peak_memory_bytes();
    EXPECT_LE(result.peak_memory_bytes, peak) << "rank " << rank;
    EXPECT_GE(result.peak_memory_bytes, peak - peak / 20) << "rank " << rank;
  }
  EXPECT_EQ(LongestOf(runs, 0), plan.predicted().makespan_ns());
}

class EverySchedule : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(EverySchedule, RunsAsPlanned) {
  const v1::JobSpec job = JobOf(GetParam());
  const v1::Plan plan = PlanOf(job);
  ExpectAsPlanned(plan, RunPlan(job, plan, kNoDisturbance));
}

TEST_P(EverySchedule, RunsAsPlannedWithItsParametersInShares) {
  const v1::JobSpec job = OnShares(JobOf(GetParam()));
  const v1::Plan plan = PlanOf(job);
  ExpectAsPlanned(plan, RunPlan(job, plan, kNoDisturbance));
}

INSTANTIATE_TEST_SUITE_P(Simulated, EverySchedule, ::testing::ValuesIn(ScheduleCases()),
                         [](const auto& info) { return NameOf(info.param); });

struct Degrees {
  uint32_t pipeline = 1;
  uint32_t data = 1;
  uint32_t context = 1;
  uint32_t tensor = 1;
};

class StageGroups : public ::testing::TestWithParam<Degrees> {
 protected:
  static v1::JobSpec Job() {
    v1::JobSpec job = SmallJob(GetParam().pipeline, GetParam().data, v1::SCHEDULE_READY_FIRST);
    job.mutable_mesh()->set_context(GetParam().context);
    job.mutable_mesh()->set_tensor(GetParam().tensor);
    v1::CostProfile& profile = *job.mutable_profile();
    for (v1::LayerCost& layer : *profile.mutable_layers()) {
      v1::TensorCost& cost = *layer.add_tensor();
      cost.set_degree(2);
      cost.set_efficiency(0.95);
    }
    return job;
  }
};

TEST_P(StageGroups, RunAsPlanned) {
  const v1::Plan plan = PlanOf(Job());
  ExpectAsPlanned(plan, RunPlan(Job(), plan, kNoDisturbance));
}

TEST_P(StageGroups, RunAsPlannedWithTheirParametersInShares) {
  const v1::JobSpec job = OnShares(Job());
  const v1::Plan plan = PlanOf(job);
  ExpectAsPlanned(plan, RunPlan(job, plan, kNoDisturbance));
}

TEST_P(StageGroups, ASlowRankHoldsUpItsGroup) {
  const v1::Plan plan = PlanOf(Job());
  const std::vector<RankRun> runs = RunPlan(Job(), plan, {.time_scale = 0, .slow_ranks = {{1, 3}}});
  const auto& first = plan.topology().replicas(0).stages(0).ranks();
  for (const uint32_t rank : first) {
    EXPECT_GT(Different(plan.programs(static_cast<int>(rank)), runs[rank].iterations.front()), 1)
        << "rank " << rank;
  }
  EXPECT_GT(LongestOf(runs, 0), plan.predicted().makespan_ns());
}

// To the nanosecond: what is left of a pass without its exchange is what the rank computes.
TEST_P(StageGroups, SayWhatEachRankComputesAndWhatItWaitsFor) {
  constexpr uint32_t kSlow = 1;
  const v1::Plan plan = PlanOf(Job());
  const std::vector<RankRun> runs = RunPlan(Job(), plan, {.time_scale = 0, .slow_ranks = {{kSlow, 3}}});
  for (uint32_t rank = 0; rank < runs.size(); ++rank) {
    for (const MeasuredInstruction& measured : runs[rank].iterations.front().instructions) {
      const v1::Instruction& planned =
          plan.programs(static_cast<int>(rank)).instructions(static_cast<int>(measured.id));
      const bool joint = planned.has_collective() && planned.own_duration_ns() > 0;
      ASSERT_EQ(measured.exchange_ns.has_value(), joint) << planned.ShortDebugString();
      if (!joint) continue;
      const int64_t computing = planned.own_duration_ns() - planned.exchange().tensor_ns() -
                                planned.exchange().context_exposed_ns();
      EXPECT_EQ(measured.duration_ns - *measured.exchange_ns, (rank == kSlow ? 3 : 1) * computing)
          << "rank " << rank << ", " << planned.ShortDebugString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simulated, StageGroups,
                         ::testing::Values(Degrees{1, 1, 2}, Degrees{1, 2, 4}, Degrees{2, 2, 2},
                                           Degrees{4, 1, 4}, Degrees{1, 1, 1, 2}, Degrees{2, 2, 2, 2}),
                         [](const auto& info) {
                           return absl::StrCat("Pp", info.param.pipeline, "Dp", info.param.data, "Cp",
                                               info.param.context, "Tp", info.param.tensor);
                         });

TEST(SimulatedJobTest, AStageGroupOf64RanksRunsAsPlanned) {
  v1::JobSpec job = SmallJob(1, 1, v1::SCHEDULE_READY_FIRST);
  job.mutable_mesh()->set_context(64);
  const v1::Plan plan = PlanOf(job);
  ExpectAsPlanned(plan, RunPlan(job, plan, kNoDisturbance));
}

TEST(SimulatedJobTest, EveryIterationTakesWhatWasPlanned) {
  const v1::JobSpec job = SmallJob(4, 2, v1::SCHEDULE_READY_FIRST);
  const v1::Plan plan = PlanOf(job);
  constexpr uint64_t kIterations = 4;
  const std::vector<RankRun> runs = RunPlan(job, plan, kNoDisturbance, kIterations);
  for (size_t i = 0; i < kIterations; ++i) {
    // Ranks do not end their steps together, so the next iteration does not begin at once everywhere.
    EXPECT_NEAR(static_cast<double>(LongestOf(runs, i)), static_cast<double>(plan.predicted().makespan_ns()),
                0.02 * static_cast<double>(plan.predicted().makespan_ns()));
    for (const RankRun& run : runs) {
      EXPECT_EQ(run.iterations[i].loss, 0);
      if (i == 0) {
        EXPECT_EQ(run.iterations[0].started_unix_ns, runs[0].iterations[0].started_unix_ns);
        continue;
      }
      const IterationResult& before = run.iterations[i - 1];
      EXPECT_EQ(run.iterations[i].started_unix_ns, before.started_unix_ns + before.duration_ns);
    }
  }
}

TEST(SimulatedJobTest, ThePaceChangesNoTime) {
  const v1::JobSpec job = SmallJob(2, 2, v1::SCHEDULE_READY_FIRST);
  const v1::Plan plan = PlanOf(job);
  ExpectAsPlanned(plan, RunPlan(job, plan, {.time_scale = 3}));
}

TEST(SimulatedJobTest, TheSameNoiseGivesTheSameTimes) {
  const v1::JobSpec job = SmallJob(4, 2, v1::SCHEDULE_READY_FIRST);
  const v1::Plan plan = PlanOf(job);
  const SimulationOptions noise = {.time_scale = 0, .noise = 0.1, .noise_seed = 3};
  const std::vector<RankRun> runs = RunPlan(job, plan, noise, 2);
  const std::vector<RankRun> again = RunPlan(job, plan, noise, 2);
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(runs[rank].iterations[i].duration_ns, again[rank].iterations[i].duration_ns);
      EXPECT_GT(Different(plan.programs(static_cast<int>(rank)), runs[rank].iterations[i]), 10);
    }
  }
  EXPECT_NE(LongestOf(runs, 0), plan.predicted().makespan_ns());
  EXPECT_NE(LongestOf(runs, 0), LongestOf(runs, 1));
}

TEST(SimulatedJobTest, ASlowRankIsSeenInItsReportAlone) {
  const v1::JobSpec job = SmallJob(4, 2, v1::SCHEDULE_READY_FIRST);
  const v1::Plan plan = PlanOf(job);
  const std::vector<RankRun> runs = RunPlan(job, plan, {.time_scale = 0, .slow_ranks = {{5, 2}}});
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    const int different = Different(plan.programs(static_cast<int>(rank)), runs[rank].iterations.front());
    if (rank == 5) {
      EXPECT_GT(different, 4);
    } else {
      EXPECT_EQ(different, 0) << "rank " << rank;
    }
  }
  EXPECT_GT(LongestOf(runs, 0), plan.predicted().makespan_ns() * 5 / 4);
}

TEST(SimulatedJobTest, ASlowLinkIsSeenAtBothItsEnds) {
  const v1::JobSpec job = SmallJob(4, 1, v1::SCHEDULE_READY_FIRST);
  const v1::Plan plan = PlanOf(job);
  const std::vector<RankRun> runs = RunPlan(job, plan, {.time_scale = 0, .slow_links = {{1, 2, 50}}});
  const auto different = [&](size_t rank) {
    return Different(plan.programs(static_cast<int>(rank)), runs[rank].iterations.front());
  };
  EXPECT_EQ(different(0), 0);
  EXPECT_GT(different(1), 4);
  EXPECT_EQ(different(1), different(2));
  EXPECT_EQ(different(3), 0);
  EXPECT_GT(LongestOf(runs, 0), plan.predicted().makespan_ns());
}

TEST(SimulatedJobTest, AStallIsSeenInItsIterationAlone) {
  const v1::JobSpec job = SmallJob(2, 2, v1::SCHEDULE_READY_FIRST);
  const v1::Plan plan = PlanOf(job);
  const std::vector<RankRun> runs = RunPlan(job, plan, {.time_scale = 0, .stalls = {{1, 1, 0.25}}}, 3);
  EXPECT_EQ(LongestOf(runs, 0), plan.predicted().makespan_ns());
  EXPECT_GT(LongestOf(runs, 1), 250'000'000);
  EXPECT_LT(LongestOf(runs, 2), 2 * plan.predicted().makespan_ns());
  EXPECT_EQ(Different(plan.programs(1), runs[1].iterations[1]), 1);
  EXPECT_EQ(Different(plan.programs(0), runs[0].iterations[1]), 0);
}

TEST(SimulatedJobTest, AMissingPeerIsNamed) {
  const v1::JobSpec job = SmallJob(2, 1, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  const v1::Plan plan = PlanOf(job);
  const absl::StatusOr<worker::JobConfig> config = ConfigOf(job, plan.topology());
  ASSERT_TRUE(config.ok());
  RankPrograms programs = ProgramsOf(*config, plan);
  // Rank 1 dies in the middle of its program.
  worker::Program& damaged = programs[1].front();
  damaged.instructions[damaged.instructions.size() / 2].stage = 9;
  const std::vector<RankRun> runs = RunSimulatedRanks(*config, programs, kNoDisturbance);
  EXPECT_FALSE(runs[1].status.ok());
  EXPECT_EQ(runs[0].status.code(), absl::StatusCode::kUnavailable) << runs[0].status;
  EXPECT_THAT(std::string(runs[0].status.message()), HasSubstr("rank 1"));
}

TEST(SimulatedJobTest, EndsThatAreAtDifferentTransfersSaySo) {
  const v1::JobSpec job = SmallJob(2, 1, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  const v1::Plan plan = PlanOf(job);
  const absl::StatusOr<worker::JobConfig> config = ConfigOf(job, plan.topology());
  ASSERT_TRUE(config.ok());
  RankPrograms programs = ProgramsOf(*config, plan);
  programs[1].front().iteration = 99;
  const std::vector<RankRun> runs = RunSimulatedRanks(*config, programs, kNoDisturbance);
  EXPECT_FALSE(runs[0].status.ok());
  EXPECT_THAT(std::string(runs[0].status.message()) + std::string(runs[1].status.message()),
              HasSubstr("rank 1 is at transfer 0 of iteration 99"));
}

TEST(SimulatedJobTest, OptionsForRanksThatAreNotThereAreRefused) {
  const v1::JobSpec job = SmallJob(1, 1, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  const absl::StatusOr<worker::JobConfig> config = ConfigOf(job, PlanOf(job).topology());
  ASSERT_TRUE(config.ok());
  const std::vector<RankRun> runs = RunSimulatedRanks(*config, {{}}, {.slow_ranks = {{3, 2}}});
  EXPECT_EQ(runs[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(runs[0].status.message()), HasSubstr("--slow-rank"));
}

// Iterations by turns on strategies of four ranks, whose parameters live in shares.
class SimulatedStrategies : public ::testing::Test {
 protected:
  void SetUp() override {
    const v1::JobSpec specs[] = {OnShares(SmallJob(2, 2, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD)),
                                 OnShares(SmallJob(4, 1, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD)),
                                 OnShares(ContextJob())};
    for (uint32_t strategy = 0; strategy < std::size(specs); ++strategy) {
      const v1::Plan plan = PlanOf(specs[strategy]);
      const worker::JobConfig config = *ConfigOf(specs[strategy], plan.topology());
      if (strategy == 0) job_ = config;
      job_.strategies.push_back({.meshes = {config.mesh()}, .topology = config.topology});
      for (const std::vector<worker::Program>& of_rank : ProgramsOf(config, plan)) {
        worker::Program program = of_rank.front();
        program.strategy = strategy;
        programs_.resize(std::max<size_t>(programs_.size(), program.rank + 1));
        program.iteration = programs_[program.rank].size();
        programs_[program.rank].push_back(std::move(program));
      }
    }
  }

  static v1::JobSpec ContextJob() {
    v1::JobSpec job = SmallJob(1, 2, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
    job.mutable_mesh()->set_context(2);
    return job;
  }

  worker::JobConfig job_;
  // By rank, one an iteration.
  RankPrograms programs_;
};

// On one clock of the job: a rank may have ended the iteration before earlier than another one.
TEST_F(SimulatedStrategies, MeetForTheTimeOfEachReshard) {
  const std::vector<RankRun> runs = RunSimulatedRanks(job_, programs_, kNoDisturbance);
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    ASSERT_TRUE(runs[rank].status.ok()) << runs[rank].status;
    for (size_t i = 0; i < programs_[rank].size(); ++i) {
      const auto start_of = [&](size_t of, bool gradients) {
        const IterationResult& result = runs[of].iterations[i];
        const size_t index = gradients ? result.instructions.size() - 2 : 0;
        return result.started_unix_ns + result.instructions[index].start_ns;
      };
      EXPECT_EQ(start_of(rank, false), start_of(0, false));
      EXPECT_EQ(start_of(rank, true), start_of(0, true));
      const std::vector<MeasuredInstruction>& times = runs[rank].iterations[i].instructions;
      const MeasuredInstruction& brought = times.front();
      const MeasuredInstruction& taken = times[times.size() - 2];
      const int64_t planned_ns = programs_[rank][i].instructions.front().expected_duration_ns;
      EXPECT_GT(planned_ns, 0);
      EXPECT_EQ(brought.duration_ns, planned_ns);
      EXPECT_EQ(taken.duration_ns, planned_ns);
      EXPECT_EQ(times.back().start_ns, taken.start_ns + planned_ns);
      for (const MeasuredInstruction& measured : times) {
        if (programs_[rank][i].instructions[measured.id].op != worker::Op::kForward) continue;
        EXPECT_GE(measured.start_ns, brought.start_ns + planned_ns) << "parameters come first";
        EXPECT_LE(measured.start_ns + measured.duration_ns, taken.start_ns);
      }
    }
  }
}

TEST_F(SimulatedStrategies, ASlowLinkHoldsUpAReshard) {
  const std::vector<RankRun> runs =
      RunSimulatedRanks(job_, programs_, {.time_scale = 0, .slow_links = {{0, 3, 2}}});
  for (size_t rank = 0; rank < runs.size(); ++rank) {
    ASSERT_TRUE(runs[rank].status.ok()) << runs[rank].status;
    for (size_t i = 0; i < programs_[rank].size(); ++i) {
      const int64_t planned_ns = programs_[rank][i].instructions.front().expected_duration_ns;
      EXPECT_EQ(runs[rank].iterations[i].instructions.front().duration_ns, 2 * planned_ns);
    }
  }
}

}  // namespace
}  // namespace penstock
