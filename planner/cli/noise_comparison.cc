#include "planner/cli/noise_comparison.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/strategies/strategy_planner.h"

namespace penstock::cli {
namespace {

// The mean of so many is known to some tenths of a per cent where passes differ by 20 %.
constexpr int kNoiseDraws = 256;
constexpr uint64_t kNoiseSeed = 1;

absl::StatusOr<NoisyTimes> NoisyTimesOf(const v1::Plan& plan, double pass_noise) {
  PENSTOCK_ASSIGN_OR_RETURN(const core::TimesUnderNoise times,
                            core::RunUnderNoise(plan, pass_noise, kNoiseSeed, kNoiseDraws));
  return NoisyTimes{.exact_ms = Milliseconds(plan.predicted().makespan_ns()),
                    .mean_ms = times.mean_ns / kNanosecondsPerMillisecond,
                    .late_ms = times.late_ns / kNanosecondsPerMillisecond};
}

std::string TextOf(const NoisyTimes& times) {
  return absl::StrCat(Fixed(times.mean_ms, 1), " ms in the mean (",
                      Percent(times.exact_ms > 0 ? times.mean_ms / times.exact_ms - 1 : 0), " above ",
                      Fixed(times.exact_ms, 1), "), 95 % below ", Fixed(times.late_ms, 1), " ms");
}

nlohmann::ordered_json JsonOf(const NoisyTimes& times) {
  return {{"exact_ms", times.exact_ms}, {"mean_ms", times.mean_ms}, {"late_ms", times.late_ms}};
}

}  // namespace

absl::StatusOr<std::optional<NoiseComparison>> CompareUnderNoise(const v1::JobSpec& job,
                                                                 const v1::PlannedBatch& planned,
                                                                 const core::RunTasks& run_tasks) {
  const double pass_noise = job.profile().pass_noise();
  if (pass_noise == 0) return std::nullopt;
  v1::JobSpec exact = job;
  exact.mutable_profile()->clear_pass_noise();
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::unique_ptr<core::StrategyPlanner> planner,
      core::StrategyPlanner::Create(exact, core::Planner::Explain::kCauseAlone, run_tasks));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan fastest, PlanAndCheck(*planner, planned.batch(), run_tasks));
  NoiseComparison noise{.pass_noise = pass_noise, .draws = kNoiseDraws};
  PENSTOCK_ASSIGN_OR_RETURN(noise.plan, NoisyTimesOf(planned.plan(), pass_noise));
  PENSTOCK_ASSIGN_OR_RETURN(noise.fastest, NoisyTimesOf(fastest, pass_noise));
  return noise;
}

std::string ToText(const NoiseComparison& noise) {
  return absl::StrCat("under noise of ", Percent(noise.pass_noise), " this plan takes ", TextOf(noise.plan),
                      ";\nthe plan that is fastest without noise takes ", TextOf(noise.fastest), "\n");
}

nlohmann::ordered_json ToJson(const NoiseComparison& noise) {
  return {{"pass_noise", noise.pass_noise},
          {"draws", noise.draws},
          {"plan", JsonOf(noise.plan)},
          {"fastest", JsonOf(noise.fastest)}};
}

}  // namespace penstock::cli
