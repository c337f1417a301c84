// Costs fitted to what "was measured": plans that ran on ranks with other costs than those they were planned
// with.
#include "planner/core/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/calibrate/foretold_pass.h"
#include "planner/core/calibrate/least_squares.h"
#include "planner/core/calibrate/measured_noise.h"
#include "planner/core/calibrate/revise_profile.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/golden_jobs.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// Times are of the order of a microsecond, which are rounded to nanoseconds.
constexpr double kRounding = 0.01;

v1::Batch RandomBatch(uint64_t iteration, int samples) {
  std::mt19937_64 random(iteration + 1);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (int i = 0; i < samples; ++i)
    lengths.emplace_back(random() % 40,
                         1 + static_cast<uint32_t>(std::exp2(static_cast<double>(random() % 100) / 12.0)));
  v1::Batch batch = MakeBatch(lengths);
  batch.set_iteration(iteration);
  return batch;
}

// Iterations of a job that ran on ranks which take what `truth` says, each pass longer or shorter by `noise`.
class Ran {
 public:
  Ran(const v1::JobSpec& job, const v1::CostProfile& truth, int iterations, double noise = 0)
      : planner_(*Planner::Create(job)), random_(7) {
    v1::JobSpec true_job = job;
    *true_job.mutable_profile() = truth;
    const CostModel costs(*ProfileFromProto(truth, planner_->job().architecture), planner_->job());
    for (int i = 0; i < iterations; ++i) Run(costs, i, noise);
  }

  const Planner& planner() const { return *planner_; }
  std::vector<ObservedIteration> Observed() const {
    std::vector<ObservedIteration> observed;
    for (const auto& one : iterations_) {
      ObservedIteration& iteration = observed.emplace_back();
      iteration.batch = &one->batch;
      iteration.plan = &one->plan;
      for (const v1::ReportIterationRequest& report : one->reports) iteration.reports.push_back(&report);
    }
    return observed;
  }
  absl::StatusOr<std::optional<Calibration>> Fit() const {
    return Calibrate(*planner_, planner_->spec().profile(), Observed());
  }
  // By rank, of each of its layers.
  void ReportExpertRows(const std::vector<std::vector<uint64_t>>& rows) {
    for (const auto& one : iterations_)
      for (size_t rank = 0; rank < rows.size(); ++rank)
        one->reports[rank].mutable_expert_rows()->Assign(rows[rank].begin(), rows[rank].end());
  }

  // All passes of an iteration by one factor, which is asked for once for each.
  void Lengthen(const std::function<double()>& factor) {
    for (const auto& one : iterations_) {
      const double by = factor();
      for (v1::ReportIterationRequest& report : one->reports) {
        report.set_duration_ns(static_cast<int64_t>(by * static_cast<double>(report.duration_ns())));
        for (v1::MeasuredInstruction& measured : *report.mutable_instructions())
          measured.set_duration_ns(static_cast<int64_t>(by * static_cast<double>(measured.duration_ns())));
      }
    }
  }

  // What a profile with noise foretells of all iterations in the mean, over what they took.
  double ExpectedOverMeasured(const v1::CostProfile& profile) const {
    const CostModel costs(*ProfileFromProto(profile, planner_->job().architecture), planner_->job());
    double expected = 0;
    double measured = 0;
    for (const auto& one : iterations_) {
      ProgramSet programs = *ProgramSetOfPlan(one->plan);
      EXPECT_TRUE(
          SetDurations(one->plan, *BatchFromProto(one->batch, planner_->job()), costs, &programs).ok());
      expected +=
          RunUnderNoise(programs, ReplicasOf(one->plan), profile.pass_noise(), /*seed=*/5, 64)->mean_ns;
      measured += static_cast<double>(one->reports[0].duration_ns());
    }
    return expected / measured;
  }

  // What the iterations took, foretold by a profile: the largest error.
  double WorstError(const v1::CostProfile& profile) const {
    const CostModel costs(*ProfileFromProto(profile, planner_->job().architecture), planner_->job());
    double worst = 0;
    for (const auto& one : iterations_) {
      const double foretold = static_cast<double>(Simulate(costs, one->batch, one->plan).makespan_ns());
      const double measured = static_cast<double>(one->reports[0].duration_ns());
      worst = std::max(worst, std::abs(foretold / measured - 1));
    }
    return worst;
  }

 private:
  struct Iteration {
    v1::Batch batch;
    v1::Plan plan;
    std::vector<v1::ReportIterationRequest> reports;
  };

  Simulator Simulate(const CostModel& costs, const v1::Batch& batch, const v1::Plan& plan) const {
    ProgramSet programs = *ProgramSetOfPlan(plan);
    EXPECT_TRUE(SetDurations(plan, *BatchFromProto(batch, planner_->job()), costs, &programs).ok());
    Simulator simulator;
    EXPECT_TRUE(simulator.Run(programs).ok());
    return simulator;
  }

  void Run(const CostModel& costs, int number, double noise) {
    auto one = std::make_unique<Iteration>();
    one->batch = RandomBatch(number, 24);
    one->plan = *planner_->MakePlan(one->batch);
    ProgramSet programs = *ProgramSetOfPlan(one->plan);
    ASSERT_TRUE(SetDurations(one->plan, *BatchFromProto(one->batch, planner_->job()), costs, &programs).ok());
    std::normal_distribution<double> factor(1.0, noise);
    for (Instruction& instruction : programs.instructions) {
      if (noise > 0 && IsPass(instruction.op))
        instruction.duration_ns = std::max<int64_t>(
            1, std::llround(static_cast<double>(instruction.duration_ns) * factor(random_)));
    }
    Simulator simulator;
    ASSERT_TRUE(simulator.Run(programs).ok());
    for (int rank = 0; rank < programs.ranks(); ++rank) {
      v1::ReportIterationRequest& report = one->reports.emplace_back();
      report.set_rank(static_cast<uint32_t>(rank));
      report.set_duration_ns(simulator.makespan_ns());
      for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
        v1::MeasuredInstruction* measured = report.add_instructions();
        measured->set_id(static_cast<uint32_t>(i - programs.rank_begin[rank]));
        measured->set_start_ns(simulator.start_ns()[i]);
        measured->set_duration_ns(simulator.end_ns()[i] - simulator.start_ns()[i]);
      }
    }
    iterations_.push_back(std::move(one));
  }

  std::unique_ptr<Planner> planner_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Iteration>> iterations_;
};

TEST(FitFactorsTest, FindsTheFactorsOfPartsAmongOutliers) {
  std::mt19937_64 random(3);
  std::vector<FitRow> rows;
  for (int i = 0; i < 200; ++i) {
    FitRow& row = rows.emplace_back();
    row.parts = {1000.0, static_cast<double>(random() % 5000), static_cast<double>(random() % 9000)};
    row.measured = 3 * row.parts[0] + 0.5 * row.parts[1] + 1.5 * row.parts[2];
    if (i % 10 == 0) row.measured *= 8;
  }
  const std::vector<double> factors = FitFactors(rows, 3);
  EXPECT_NEAR(factors[0], 3, 0.15);
  EXPECT_NEAR(factors[1], 0.5, 0.05);
  EXPECT_NEAR(factors[2], 1.5, 0.05);
}

TEST(FitFactorsTest, WhatRowsDoNotTellApartKeepsItsProportions) {
  std::vector<FitRow> rows(20, {.parts = {600, 300, 100}, .measured = 2000});
  for (const double factor : FitFactors(rows, 3)) EXPECT_NEAR(factor, 2, 1e-6);
  EXPECT_EQ(FitFactors({}, 2), (std::vector<double>{1, 1}));
}

TEST(ReplayTest, APlanReplayedWithItsOwnDurationsTakesWhatItSays) {
  for (const GoldenJob& job : GoldenJobs()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << job.name;
    const auto plan = (*planner)->MakePlan(job.given.batch);
    ASSERT_TRUE(plan.ok()) << job.name;
    auto programs = ProgramSetOfPlan(*plan);
    ASSERT_TRUE(programs.ok()) << job.name << programs.status();
    Simulator simulator;
    ASSERT_TRUE(simulator.Run(*programs).ok()) << job.name;
    EXPECT_EQ(simulator.makespan_ns(), plan->predicted().makespan_ns()) << job.name;
    // And the costs give the same anew.
    const std::vector<Instruction> planned = programs->instructions;
    ASSERT_TRUE(SetDurations(*plan, *BatchFromProto(job.given.batch, (*planner)->job()), (*planner)->costs(),
                             &*programs)
                    .ok())
        << job.name;
    for (size_t i = 0; i < planned.size(); ++i) {
      EXPECT_EQ(programs->instructions[i].duration_ns, planned[i].duration_ns)
          << job.name << ": instruction " << i << ", op " << static_cast<int>(planned[i].op);
    }
  }
}

// What simulated ranks take, whatever a plan was made with.
TEST(ReplayTest, OwnDurationsAreThoseOfTheGivenCosts) {
  for (const GoldenJob& job : GoldenJobs()) {
    const auto planner = Planner::Create(job.given.job);
    ASSERT_TRUE(planner.ok()) << job.name;
    const auto plan = (*planner)->MakePlan(job.given.batch);
    const auto batch = BatchFromProto(job.given.batch, (*planner)->job());
    ASSERT_TRUE(plan.ok() && batch.ok()) << job.name;
    for (const v1::Program& program : plan->programs()) {
      const auto durations =
          OwnDurations(*plan, *batch, (*planner)->costs(), static_cast<int>(program.rank()));
      ASSERT_TRUE(durations.ok()) << job.name << durations.status();
      ASSERT_EQ(durations->size(), static_cast<size_t>(program.instructions_size()));
      for (const v1::Instruction& instruction : program.instructions()) {
        const int64_t alone = instruction.own_duration_ns() > 0 ? instruction.own_duration_ns()
                                                                : instruction.expected_duration_ns();
        ASSERT_EQ((*durations)[instruction.id()], alone)
            << job.name << ", rank " << program.rank() << ": " << instruction.ShortDebugString();
      }
    }
  }
}

TEST(CalibrateTest, CostsThatAreRightAreKept) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const auto fitted = Ran(job, job.profile(), 4).Fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_FALSE(fitted->has_value());
}

struct WrongProfile {
  std::string name;
  CostFactors truth;
};

std::vector<WrongProfile> WrongProfiles() {
  std::vector<WrongProfile> wrong;
  wrong.push_back({.name = "everything is twice as slow", .truth = {}});
  wrong.back().truth.all = 2;
  wrong.push_back({.name = "everything is twice as fast", .truth = {}});
  wrong.back().truth.all = 0.5;
  wrong.push_back({.name = "weight gradients take half", .truth = {}});
  wrong.back().truth.weight_share = 0.5;
  wrong.push_back({.name = "backward passes take half as long again", .truth = {}});
  for (auto& levels : wrong.back().truth.backward_ratio) levels.fill(1.5);
  wrong.push_back({.name = "the head takes three times as long", .truth = {}});
  wrong.back().truth.forward[kHead] = {3, 3, 3};
  wrong.push_back({.name = "attention takes four times as long", .truth = {}});
  wrong.back().truth.forward[kDecoder].squares = 4;
  wrong.push_back({.name = "links are half as fast", .truth = {}});
  wrong.back().truth.links.fill(2);
  wrong.push_back({.name = "the optimizer takes three times as long", .truth = {}});
  wrong.back().truth.optimizer = 3;
  return wrong;
}

TEST(CalibrateTest, AWrongProfileForetellsTheIterationsAfterAFit) {
  for (const WrongProfile& wrong : WrongProfiles()) {
    for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
      v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
      job.mutable_planning()->set_schedule(schedule);
      const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, wrong.truth), 6);
      const auto fitted = ran.Fit();
      ASSERT_TRUE(fitted.ok()) << wrong.name << fitted.status();
      // A part that takes nothing here cannot be wrong.
      if (ran.WorstError(job.profile()) < kRounding && !fitted->has_value()) continue;
      ASSERT_TRUE(fitted->has_value()) << wrong.name << " " << ran.WorstError(job.profile());
      EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding) << wrong.name;
      EXPECT_LT((*fitted)->error_after, (*fitted)->error_before) << wrong.name;
      EXPECT_EQ((*fitted)->profile.version(), job.profile().version() + 1);
    }
  }
}

TEST(CalibrateTest, LinksInsideOfNodesAndBetweenThemAreToldApart) {
  v1::JobSpec job = GptJob(4, 1, v1::POLICY_DYNAMIC);
  v1::Cluster& cluster = *job.mutable_profile()->mutable_cluster();
  cluster.set_gpus_per_node(2);
  for (const bool has_speed_between : {true, false}) {
    if (!has_speed_between) cluster.clear_inter_node_bytes_per_second();
    const double before = has_speed_between ? cluster.inter_node_bytes_per_second() : 1e9;
    CostFactors truth;
    truth.links[static_cast<size_t>(Link::kBetweenNodes)] = 8;
    const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6);
    EXPECT_GT(ran.WorstError(job.profile()), 0.05);
    const auto fitted = ran.Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
    const v1::Cluster& found = (*fitted)->profile.cluster();
    EXPECT_NEAR(found.intra_node_bytes_per_second(), 1e9, 0.02e9);
    EXPECT_NEAR(found.inter_node_bytes_per_second(), before / 8, 0.02 * before / 8);
    EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
  }
}

TEST(CalibrateTest, PartsOfABackwardPassWithClosedFormsOfTheirOwnAreFittedApart) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  job.mutable_planning()->set_schedule(v1::SCHEDULE_SPLIT_BACKWARD);
  v1::LayerCost& layer = *job.mutable_profile()->mutable_layers(0);
  *layer.mutable_backward_input() = layer.forward();
  layer.mutable_backward_input()->set_target_square_ns(2.5 * layer.forward().target_square_ns());
  layer.mutable_backward_weight()->set_target_token_ns(layer.forward().target_token_ns());
  CostFactors truth;
  truth.all = 1.5;
  truth.weight_share = 0.6;
  truth.input_share = 1.3;
  const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6);
  EXPECT_GT(ran.WorstError(job.profile()), 0.2);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
}

TEST(CalibrateTest, AFitForetellsBatchesThatItHasNotSeen) {
  v1::JobSpec job = T5Job(2, 1, v1::POLICY_DYNAMIC);
  CostFactors truth;
  truth.forward[kEncoder] = {2, 1.5, 3};
  truth.forward[kDecoder] = {1, 0.7, 2};
  for (auto& levels : truth.backward_ratio) levels.fill(1.2);
  const v1::CostProfile true_profile = ReviseProfile(job.profile(), Architecture::kT5, truth);
  const auto fitted = Ran(job, true_profile, 8, /*noise=*/0.03).Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const Ran unseen(job, true_profile, 20);
  EXPECT_GT(unseen.WorstError(job.profile()), 0.2);
  EXPECT_LT(unseen.WorstError((*fitted)->profile), 0.05);
}

v1::CostProfile WithSlowRank(v1::CostProfile profile, uint32_t rank, double factor) {
  v1::SlowRank* const slow = profile.add_slow_ranks();
  slow->set_rank(rank);
  slow->set_factor(factor);
  return profile;
}

TEST(CalibrateTest, ASlowRankIsFoundAndTheOthersCostsAreNotMixedUpWithIt) {
  for (const auto& [pipeline, replicas] : {std::pair(2, 2), std::pair(4, 2), std::pair(1, 2)}) {
    for (const double factor : {1.1, 1.4, 3.0}) {
      const std::string name = absl::StrCat("pp ", pipeline, " dp ", replicas, ", ", factor);
      const v1::JobSpec job = GptJob(pipeline, replicas, v1::POLICY_DYNAMIC);
      const v1::CostProfile truth = WithSlowRank(job.profile(), 1, factor);
      const Ran ran(job, truth, 6, /*noise=*/0.02);
      const auto fitted = ran.Fit();
      ASSERT_TRUE(fitted.ok() && fitted->has_value()) << name << fitted.status();
      const v1::CostProfile& profile = (*fitted)->profile;
      ASSERT_EQ(profile.slow_ranks_size(), 1) << name << profile.ShortDebugString();
      EXPECT_EQ(profile.slow_ranks(0).rank(), 1U) << name;
      EXPECT_NEAR(profile.slow_ranks(0).factor(), factor, 0.03 * factor) << name;
      EXPECT_LT(Ran(job, truth, 6).WorstError(profile), 0.03) << name;
    }
  }
}

// Where it alone has its stage, the stage may be as dear; the iterations are foretold either way.
TEST(CalibrateTest, ASlowLinkIsFoundAndTheOthersCostsAreNotMixedUpWithIt) {
  for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
    v1::JobSpec job = GptJob(3, 2, v1::POLICY_DYNAMIC);
    job.mutable_planning()->set_schedule(schedule);
    CostFactors factors;
    factors.links.fill(2);
    factors.slow_links = {{1, 2, 20}, {4, 3, 3}};
    const v1::CostProfile truth = ReviseProfile(job.profile(), Architecture::kGpt, factors);
    const Ran ran(job, truth, 6);
    const auto fitted = ran.Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
    const v1::CostProfile& profile = (*fitted)->profile;
    ASSERT_EQ(profile.slow_links_size(), 2);
    EXPECT_EQ(profile.slow_links(0).from(), 1U);
    EXPECT_EQ(profile.slow_links(0).to(), 2U);
    EXPECT_NEAR(profile.slow_links(0).factor(), 20, 0.5);
    EXPECT_EQ(profile.slow_links(1).from(), 4U);
    EXPECT_EQ(profile.slow_links(1).to(), 3U);
    EXPECT_NEAR(profile.slow_links(1).factor(), 3, 0.1);
    EXPECT_NEAR(profile.cluster().intra_node_bytes_per_second(),
                truth.cluster().intra_node_bytes_per_second(),
                0.02 * truth.cluster().intra_node_bytes_per_second());
    EXPECT_EQ(profile.slow_ranks_size(), 0);
    EXPECT_LT(ran.WorstError(profile), kRounding);
  }
}

TEST(CalibrateTest, ASlowLinkOfARingOfGradientsIsForetold) {
  const v1::JobSpec job = GptJob(2, 3, v1::POLICY_DYNAMIC);
  CostFactors factors;
  factors.slow_links = {{3, 5, 30}};
  const v1::CostProfile truth = ReviseProfile(job.profile(), Architecture::kGpt, factors);
  const Ran ran(job, truth, 6);
  EXPECT_GT(ran.WorstError(job.profile()), 0.05);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  // Of the ring of ranks 1, 3 and 5 the first step is inside of a node. Which of the others it is, a ring
  // does not tell.
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.slow_links_size(), 2);
  EXPECT_EQ(std::pair(profile.slow_links(0).from(), profile.slow_links(0).to()), std::pair(3U, 5U));
  EXPECT_EQ(std::pair(profile.slow_links(1).from(), profile.slow_links(1).to()), std::pair(5U, 1U));
  for (const v1::SlowLink& slow : profile.slow_links()) EXPECT_NEAR(slow.factor(), 30, 0.5);
  EXPECT_LT(ran.WorstError((*fitted)->profile), kRounding);
}

TEST(CalibrateTest, ASlowRankOfASingleReplicaIsForetold) {
  const v1::JobSpec job = GptJob(4, 1, v1::POLICY_DYNAMIC);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const v1::CostProfile truth = WithSlowRank(job.profile(), rank, 1.5);
    const auto fitted = Ran(job, truth, 6).Fit();
    ASSERT_TRUE(fitted.ok() && fitted->has_value()) << rank << fitted.status();
    EXPECT_LT(Ran(job, truth, 6).WorstError((*fitted)->profile), 0.03) << rank;
  }
}

TEST(CalibrateTest, RanksThatAreAllAsSlowAreNotSlow) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  CostFactors truth;
  truth.all = 1.5;
  const auto fitted = Ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 6, 0.05).Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_EQ((*fitted)->profile.slow_ranks_size(), 0) << (*fitted)->profile.ShortDebugString();
}

TEST(CalibrateTest, ARankThatIsNotSlowAnyMoreIsSaidToBe) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  const v1::CostProfile truth = job.profile();
  *job.mutable_profile() = WithSlowRank(truth, 3, 1.5);
  const auto fitted = Ran(job, truth, 6).Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_EQ((*fitted)->profile.slow_ranks_size(), 0) << (*fitted)->profile.ShortDebugString();
}

// Over four ranks.
v1::JobSpec ExpertsJob() {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(4);
  job.mutable_mesh()->set_expert(4);
  v1::ModelSpec& model = *job.mutable_model();
  model.set_experts(4);
  model.set_experts_per_token(2);
  model.set_feed_forward_biases(v1::BIASES_NONE);
  return job;
}

v1::CostProfile WithExpertLoad(v1::CostProfile profile, uint32_t ranks, double fullest) {
  v1::ExpertLoad* const load = profile.add_expert_loads();
  load->set_ranks(ranks);
  load->set_fullest(fullest);
  return profile;
}

TEST(CalibrateTest, NoiseOfPassesIsMeasuredBesideWrongCosts) {
  for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_SPLIT_BACKWARD}) {
    for (const double noise : {0.05, 0.2}) {
      v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
      job.mutable_planning()->set_schedule(schedule);
      CostFactors truth;
      truth.all = 1.7;
      const v1::CostProfile slower =
          WithSlowRank(ReviseProfile(job.profile(), Architecture::kGpt, truth), 1, 1.5);
      const auto fitted = Ran(job, slower, 8, noise).Fit();
      ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
      EXPECT_NEAR((*fitted)->profile.pass_noise(), noise, 0.15 * noise);
      // Without it nothing is said of noise.
      EXPECT_EQ((*Ran(job, slower, 8).Fit())->profile.pass_noise(), 0);
    }
  }
}

// It comes of the noise that a fitted profile has, and is not counted once more.
TEST(CalibrateTest, WaitingThatComesOfNoiseIsNotPutOnPasses) {
  const v1::JobSpec job = GptJob(4, 2, v1::POLICY_DYNAMIC);
  CostFactors truth;
  truth.all = 1.5;
  const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 32, /*noise=*/0.25);
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  ASSERT_GT((*fitted)->profile.pass_noise(), 0.15);
  EXPECT_NEAR(ran.ExpectedOverMeasured((*fitted)->profile), 1, 0.02);
}

TEST(CalibrateTest, WhatIsCommonToAnIterationIsNoNoise) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  Ran ran(job, job.profile(), 8);
  std::mt19937_64 random(5);
  ran.Lengthen([&] { return 1 + static_cast<double>(random() % 20) / 100; });
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  if (!fitted->has_value()) return;
  EXPECT_EQ((*fitted)->profile.pass_noise(), 0);
}

TEST(MeasuredNoiseTest, StaysWhatItWasWhereItIsMuchTheSame) {
  const v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  const CostModel costs = ModelOf(job);
  const auto passes_with = [&](double noise) {
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal;
    std::vector<MeasuredPass> passes;
    for (int i = 0; i < 2000; ++i) {
      MeasuredPass& pass = passes.emplace_back();
      pass.rank = 0;
      pass.iteration = i / 50;
      AddPacked({0, static_cast<uint32_t>(100 + i % 300), 10}, &pass.sums);
      pass.duration_ns = ForetoldNs(costs, pass) * std::exp(noise * normal(random));
    }
    return passes;
  };
  EXPECT_NEAR(MeasuredNoise(costs, passes_with(0.1), 0), 0.1, 0.01);
  EXPECT_EQ(MeasuredNoise(costs, passes_with(0.1), 0.09), 0.09);
  EXPECT_NEAR(MeasuredNoise(costs, passes_with(0.1), 0.05), 0.1, 0.01);
  // Little is none, unless there was more.
  EXPECT_EQ(MeasuredNoise(costs, passes_with(0.015), 0), 0);
  EXPECT_GT(MeasuredNoise(costs, passes_with(0.015), 0.03), 0);
  EXPECT_EQ(MeasuredNoise(costs, passes_with(0.005), 0.03), 0);
  // One that stood still, and too few to tell.
  std::vector<MeasuredPass> passes = passes_with(0.1);
  passes[7].duration_ns *= 1000;
  EXPECT_NEAR(MeasuredNoise(costs, passes, 0), 0.1, 0.01);
  passes.resize(20);
  EXPECT_EQ(MeasuredNoise(costs, passes, 0.07), 0.07);
}

TEST(CalibrateTest, AnUnevenRouterIsFoundAndTheCostsOfLayersStayWhatTheyAre) {
  const v1::JobSpec job = ExpertsJob();
  // The fullest have 40 and 30 of 80 rows in two layers: 70 where 40 would be even.
  const v1::CostProfile truth = WithExpertLoad(job.profile(), 4, 1.75);
  Ran ran(job, truth, 6);
  ran.ReportExpertRows({{40, 10}, {20, 30}, {10, 20}, {10, 20}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.expert_loads_size(), 1) << profile.ShortDebugString();
  EXPECT_EQ(profile.expert_loads(0).ranks(), 4U);
  EXPECT_DOUBLE_EQ(profile.expert_loads(0).fullest(), 1.75);
  EXPECT_LT(ran.WorstError(profile), kRounding);
  EXPECT_NEAR(profile.layers(0).forward().target_token_ns(),
              job.profile().layers(0).forward().target_token_ns(),
              0.02 * job.profile().layers(0).forward().target_token_ns());
}

TEST(CalibrateTest, ARouterThatHasBecomeEvenIsSaidToBe) {
  v1::JobSpec job = ExpertsJob();
  const v1::CostProfile truth = job.profile();
  *job.mutable_profile() = WithExpertLoad(WithExpertLoad(truth, 2, 1.5), 4, 3);
  Ran ran(job, truth, 6);
  ran.ReportExpertRows({{20}, {20}, {20}, {20}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  const v1::CostProfile& profile = (*fitted)->profile;
  ASSERT_EQ(profile.expert_loads_size(), 2);
  EXPECT_EQ(profile.expert_loads(0).fullest(), 1.5) << "of another number of ranks";
  EXPECT_EQ(profile.expert_loads(1).fullest(), 1);
  EXPECT_LT(ran.WorstError(profile), kRounding);
}

TEST(CalibrateTest, RanksThatReportNoRowsLeaveTheLoadAsItIs) {
  v1::JobSpec job = ExpertsJob();
  *job.mutable_profile() = WithExpertLoad(job.profile(), 4, 2);
  CostFactors slower;
  slower.all = 1.5;
  Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, slower), 6);
  ran.ReportExpertRows({{20}, {20}, {20}, {}});
  const auto fitted = ran.Fit();
  ASSERT_TRUE(fitted.ok() && fitted->has_value()) << fitted.status();
  EXPECT_EQ((*fitted)->profile.expert_loads(0).fullest(), 2);
}

// Noise may say otherwise, and no profile may.
TEST(ReviseProfileTest, RecomputingMoreNeverTakesLess) {
  v1::JobSpec job = GptJob(2, 2, v1::POLICY_DYNAMIC);
  CostFactors noisy;
  for (auto& levels : noisy.backward_ratio) levels = {1.5, 0.7, 0.4};
  for (const double selective : {0.0, 2.1}) {
    for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
      if (layer.name() != "head") layer.set_backward_ratio_selective(selective);
    }
    v1::JobSpec revised = job;
    *revised.mutable_profile() = ReviseProfile(job.profile(), Architecture::kGpt, noisy);
    const auto planner = Planner::Create(revised);
    EXPECT_TRUE(planner.ok()) << planner.status();
    EXPECT_EQ(revised.profile().layers(0).backward_ratio_selective() == 0, selective == 0);
  }
}

TEST(CalibrateTest, TheSameIterationsGiveTheSameProfile) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_PACKED);
  CostFactors truth;
  truth.all = 1.7;
  const Ran ran(job, ReviseProfile(job.profile(), Architecture::kGpt, truth), 5, 0.05);
  const auto one = ran.Fit();
  const auto other = ran.Fit();
  ASSERT_TRUE(one.ok() && one->has_value() && other.ok() && other->has_value());
  EXPECT_EQ((*one)->profile.SerializeAsString(), (*other)->profile.SerializeAsString());
}

TEST(CalibrateTest, APlanOfAnotherJobIsRefused) {
  const v1::JobSpec job = GptJob(2, 2, v1::POLICY_PACKED);
  const Ran other(GptJob(2, 1, v1::POLICY_PACKED), job.profile(), 2);
  const auto planner = Planner::Create(job);
  ASSERT_TRUE(planner.ok());
  EXPECT_EQ(Calibrate(**planner, job.profile(), other.Observed()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::core
