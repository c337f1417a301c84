#include "planner/cli/diagnose/right_costs.h"

#include <algorithm>
#include <vector>

#include "common/status/status_macros.h"
#include "planner/core/strategies/gain_of_right_costs.h"

namespace penstock::cli {
namespace {

// Each is planned anew.
constexpr size_t kMostPlannedAnew = 4;

// The last that all ranks have reported and that were planned with the same costs as the last one.
std::vector<core::ObservedIteration> LastObserved(const JobRecord& record) {
  std::vector<core::ObservedIteration> observed;
  const std::vector<const v1::GetIterationResponse*> all = record.iterations.Recorded();
  for (auto one = all.rbegin(); one != all.rend() && observed.size() < kMostPlannedAnew; ++one) {
    const v1::GetIterationResponse& iteration = **one;
    if (iteration.profile().version() != all.back()->profile().version()) break;
    if (iteration.reports_size() != iteration.plan().programs_size()) continue;
    core::ObservedIteration& measured = observed.emplace_back();
    measured.batch = &iteration.batch();
    measured.plan = &iteration.plan();
    for (const v1::ReportIterationRequest& report : iteration.reports()) measured.reports.push_back(&report);
  }
  std::ranges::reverse(observed);
  return observed;
}

}  // namespace

absl::Status AddGainOfRightCosts(const JobRecord& record, core::Diagnosis& diagnosis) {
  const bool wrong = std::ranges::any_of(
      diagnosis.causes, [](const core::Cause& cause) { return cause.kind == core::CauseKind::kWrongCosts; });
  const std::vector<core::ObservedIteration> observed = LastObserved(record);
  if (!wrong || observed.empty()) return absl::OkStatus();
  const v1::GetIterationResponse& last = *record.iterations.Recorded().back();
  const v1::CostProfile& in_effect = last.has_profile() ? last.profile() : record.job.profile();
  PENSTOCK_ASSIGN_OR_RETURN(const double gain,
                            core::GainOfRightCosts(record.job, in_effect, observed, core::RunSerially));
  core::SetGainOfRightCosts(gain, diagnosis);
  return absl::OkStatus();
}

}  // namespace penstock::cli
