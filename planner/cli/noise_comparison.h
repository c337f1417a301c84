// What a plan takes under the noise of its profile, beside the plan that is fastest without noise.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const std::optional<NoiseComparison> noise, CompareUnderNoise(job, planned));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/parallel/run_tasks.h"

namespace penstock::cli {

struct NoisyTimes {
  // With passes that take what they are said to.
  double exact_ms = 0;
  // Under noise, of the same draws for both plans: the mean, and what one in twenty is above.
  double mean_ms = 0;
  double late_ms = 0;
};

struct NoiseComparison {
  // CostProfile.pass_noise.
  double pass_noise = 0;
  int draws = 0;
  NoisyTimes plan = {};
  // Planned anew as if there were no noise.
  NoisyTimes fastest = {};
};

// Nothing where the job's profile has no noise. The draws are not those that the plan was chosen by.
// Possible errors: those of StrategyPlanner::Create, PlanAndCheck and RunUnderNoise.
absl::StatusOr<std::optional<NoiseComparison>> CompareUnderNoise(
    const v1::JobSpec& job, const v1::PlannedBatch& planned,
    const core::RunTasks& run_tasks = core::RunSerially);

// Two lines.
std::string ToText(const NoiseComparison& noise);

// {pass_noise, draws, plan: {exact_ms, mean_ms, late_ms}, fastest: the same}.
nlohmann::ordered_json ToJson(const NoiseComparison& noise);

}  // namespace penstock::cli
