// Iterations as ranks report them that have other costs than those which their plans were made with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/calibrate/calibrate.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/simulate/simulator.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {

// Times are of the order of a microsecond, which are rounded to nanoseconds.
inline constexpr double kRounding = 0.01;

inline v1::Batch RandomBatch(uint64_t iteration, int samples) {
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
    const CostModel costs = CostsOf(truth);
    for (int i = 0; i < iterations; ++i) Run(*planner_, costs, noise);
  }

  // More of them, planned with other costs than those of the job.
  void RunMore(const v1::CostProfile& planned_with, const v1::CostProfile& truth, int iterations,
               double noise = 0) {
    v1::JobSpec job = planner_->spec();
    *job.mutable_profile() = planned_with;
    const std::unique_ptr<Planner> planner = *Planner::Create(job);
    const CostModel costs = CostsOf(truth);
    for (int i = 0; i < iterations; ++i) Run(*planner, costs, noise);
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

  // What ranks of stage groups waited for each other inside of passes, if each takes so many times as long
  // for what it computes by the job's own costs.
  void ReportExchanges(const std::function<double(uint32_t rank)>& slowness) {
    for (const auto& one : iterations_) {
      for (v1::ReportIterationRequest& report : one->reports) {
        const v1::Program& program = one->plan.programs(static_cast<int>(report.rank()));
        for (v1::MeasuredInstruction& measured : *report.mutable_instructions()) {
          const v1::Instruction& planned = program.instructions(static_cast<int>(measured.id()));
          // Passes alone; of gradients of weights nothing is exchanged.
          if (planned.own_duration_ns() == 0) continue;
          const v1::PassExchange& exchange = planned.exchange();
          const int64_t computing = planned.own_duration_ns() - exchange.tensor_ns() -
                                    exchange.context_exposed_ns() - exchange.expert_exposed_ns();
          const double took = slowness(report.rank()) * static_cast<double>(computing);
          measured.set_exchange_ns(
              std::clamp<int64_t>(measured.duration_ns() - std::llround(took), 0, measured.duration_ns()));
        }
      }
    }
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

  // Of a single rank, one of so many of its passes, which takes so many times as long.
  void LengthenEvery(int passes, int factor) {
    int number = 0;
    for (const auto& one : iterations_) {
      v1::ReportIterationRequest& report = one->reports[0];
      for (v1::MeasuredInstruction& measured : *report.mutable_instructions()) {
        const v1::Op op = one->plan.programs(0).instructions(static_cast<int>(measured.id())).op();
        if ((op != v1::OP_FORWARD && op != v1::OP_BACKWARD) || ++number % passes != 0) continue;
        report.set_duration_ns(report.duration_ns() + (factor - 1) * measured.duration_ns());
        measured.set_duration_ns(factor * measured.duration_ns());
      }
    }
  }

  // Iterations take so many times as long, and their passes what they did.
  void AddWaiting(double factor) {
    for (const auto& one : iterations_)
      for (v1::ReportIterationRequest& report : one->reports)
        report.set_duration_ns(static_cast<int64_t>(factor * static_cast<double>(report.duration_ns())));
  }

  // Optimizer steps as workers measure them, from the end of what the rank did before: with what all but the
  // last rank wait for the norm of all gradients.
  void ReportWaitsForNorms() {
    for (const auto& one : iterations_) {
      for (v1::ReportIterationRequest& report : one->reports) {
        const v1::Program& program = one->plan.programs(static_cast<int>(report.rank()));
        int64_t done_ns = 0;
        for (v1::MeasuredInstruction& measured : *report.mutable_instructions()) {
          const int64_t end_ns = measured.start_ns() + measured.duration_ns();
          if (program.instructions(static_cast<int>(measured.id())).op() == v1::OP_OPTIMIZER_STEP) {
            measured.set_start_ns(done_ns);
            measured.set_duration_ns(end_ns - done_ns);
          }
          done_ns = std::max(done_ns, end_ns);
        }
      }
    }
  }

  // What a profile with noise foretells of all iterations in the mean, over what they took.
  double ExpectedOverMeasured(const v1::CostProfile& profile) const {
    const CostModel costs = CostsOf(profile);
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

  // What the iterations from this one on took, foretold by a profile: the largest error.
  double WorstError(const v1::CostProfile& profile, size_t from = 0) const {
    const CostModel costs = CostsOf(profile);
    double worst = 0;
    for (const auto& one : absl::MakeConstSpan(iterations_).subspan(from)) {
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

  CostModel CostsOf(const v1::CostProfile& profile) const {
    return CostModel(*ProfileFromProto(profile, planner_->job().architecture), planner_->job());
  }

  void Run(const Planner& planner, const CostModel& costs, double noise) {
    auto one = std::make_unique<Iteration>();
    one->batch = RandomBatch(iterations_.size(), 24);
    one->plan = *planner.MakePlan(one->batch);
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

inline v1::CostProfile WithSlowRank(v1::CostProfile profile, uint32_t rank, double factor) {
  v1::SlowRank* const slow = profile.add_slow_ranks();
  slow->set_rank(rank);
  slow->set_factor(factor);
  return profile;
}

}  // namespace penstock::core
