#include "planner/core/verify/check_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/verify/rules.h"

namespace penstock::core {

namespace {

// All rules but those of the hash.
void CheckRules(const v1::Batch& batch, const v1::Plan& plan, StopToken stop, verify::Report& report) {
  if (!verify::CheckStructure(batch, plan, report)) return;
  verify::CheckFields(plan, report);
  const verify::PlanIndex index(batch, plan, stop);
  for (const auto check :
       {verify::CheckCoverage, verify::CheckTransfers, verify::CheckDependencies, verify::CheckLifecycle,
        verify::CheckSchedule, verify::CheckCollectives, verify::CheckMemory, verify::CheckBuffers,
        verify::CheckTokens, verify::CheckSpans, verify::CheckParts, verify::CheckJointPasses,
        verify::CheckPredictions, verify::CheckRendezvous}) {
    if (index.stopped()) return;
    check(index, report);
  }
}

// Those of one plan, by rule; a wrong hash last: whatever is wrong besides, the hash is too.
std::vector<Violation> ViolationsOf(const v1::Batch& batch, const v1::Plan& plan, verify::Report report,
                                    StopToken stop) {
  CheckRules(batch, plan, stop, report);
  std::vector<Violation> violations = report.Take();
  std::stable_sort(violations.begin(), violations.end(),
                   [](const Violation& a, const Violation& b) { return a.rule < b.rule; });
  if (stop.stopped()) return violations;
  verify::Report hash;
  verify::CheckContentHash(plan, hash);
  for (Violation& violation : hash.Take()) violations.push_back(std::move(violation));
  return violations;
}

}  // namespace

std::vector<Violation> CheckPlan(const v1::Batch& batch, const v1::Plan& plan) {
  return *CheckPlan(batch, plan, StopToken());
}

absl::StatusOr<std::vector<Violation>> CheckPlan(const v1::Batch& batch, const v1::Plan& plan,
                                                 StopToken stop) {
  verify::Report of_both;
  verify::CheckValidation(batch, plan, of_both);
  std::vector<Violation> violations = ViolationsOf(batch, plan, std::move(of_both), stop);
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  if (!plan.has_validation()) return violations;
  for (Violation& violation : ViolationsOf(batch.validation(), plan.validation(), {}, stop)) {
    violation.message = absl::StrCat("validation: ", violation.message);
    violations.push_back(std::move(violation));
  }
  PENSTOCK_RETURN_IF_ERROR(stop.status());
  return violations;
}

const char* RuleName(int rule) {
  static constexpr const char* kNames[] = {"structure",   "coverage",    "transfers", "dependencies",
                                           "lifecycle",   "collectives", "memory",    "tokens",
                                           "predictions", "costs",       "samples"};
  return rule >= 0 && rule < static_cast<int>(std::size(kNames)) ? kNames[rule] : "unknown";
}

absl::Status ViolationsToStatus(const std::vector<Violation>& violations) {
  if (violations.empty()) return absl::OkStatus();
  const Violation& first = violations.front();
  return absl::InternalError(absl::StrCat("the plan breaks rule ", first.rule, " (", RuleName(first.rule),
                                          "): ", first.message, " (", violations.size(), " in all)"));
}

}  // namespace penstock::core
