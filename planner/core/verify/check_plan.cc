#include "planner/core/verify/check_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core {

std::vector<Violation> CheckPlan(const v1::Batch& batch, const v1::Plan& plan) {
  verify::Report report;
  if (!verify::CheckStructure(batch, plan, report)) return report.Take();
  const verify::PlanIndex index(batch, plan);
  verify::CheckCoverage(index, report);
  verify::CheckTransfers(index, report);
  verify::CheckDependencies(index, report);
  verify::CheckLifecycle(index, report);
  verify::CheckCollectives(index, report);
  verify::CheckMemory(index, report);
  verify::CheckTokens(index, report);
  verify::CheckRendezvous(index, report);
  std::vector<Violation> violations = report.Take();
  std::stable_sort(violations.begin(), violations.end(),
                   [](const Violation& a, const Violation& b) { return a.rule < b.rule; });
  return violations;
}

const char* RuleName(int rule) {
  static constexpr const char* kNames[] = {"structure", "coverage",    "transfers", "dependencies",
                                           "lifecycle", "collectives", "memory",    "tokens"};
  return rule >= 0 && rule < verify::kRules ? kNames[rule] : "unknown";
}

absl::Status ViolationsToStatus(const std::vector<Violation>& violations) {
  if (violations.empty()) return absl::OkStatus();
  const Violation& first = violations.front();
  return absl::InternalError(absl::StrCat("the plan breaks rule ", first.rule, " (", RuleName(first.rule),
                                          "): ", first.message, " (", violations.size(), " in all)"));
}

}  // namespace penstock::core
