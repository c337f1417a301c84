// `penstock verify`: judges a plan from anywhere.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/plan_file.h"
#include "planner/cli/plan_summary.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::cli {
namespace {

struct VerifyFlags {
  std::string path;
  bool json = false;
};

nlohmann::ordered_json ToJson(const core::Violation& violation) {
  return {{"rule", violation.rule},
          {"name", core::RuleName(violation.rule)},
          {"rank", violation.rank},
          {"instruction", violation.instruction},
          {"message", violation.message}};
}

// What the rules cannot see, such as an edited prediction. A plan from elsewhere may come without a hash.
void CheckHash(const v1::Plan& plan, std::vector<core::Violation>* violations) {
  if (plan.content_hash().empty() || plan.content_hash() == core::Planner::ContentHash(plan)) return;
  violations->push_back(
      {.rule = 0,
       .rank = -1,
       .instruction = -1,
       .message = "content_hash is not that of the plan: it was changed after it was made"});
}

absl::Status RunVerify(const VerifyFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::PlannedBatch planned, ReadPlanFile(flags.path));
  std::vector<core::Violation> violations = core::CheckPlan(planned.batch(), planned.plan());
  CheckHash(planned.plan(), &violations);
  if (flags.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const core::Violation& violation : violations) json.push_back(ToJson(violation));
    std::cout << DumpJson(json) << "\n";
  } else {
    for (const core::Violation& violation : violations)
      std::cout << "rule " << violation.rule << " (" << core::RuleName(violation.rule)
                << "): " << violation.message << "\n";
    if (violations.empty())
      std::cout << "valid: all rules hold for " << planned.plan().programs_size() << " ranks and "
                << planned.batch().samples_size() << " samples\n";
  }
  if (violations.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("'", flags.path, "' breaks rules in ", violations.size(), " places"));
}

}  // namespace

void AddVerifyCommand(CommandSet& commands) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* command =
      commands.Add({.name = "verify",
                    .purpose = "Checks a plan by all rules and names every instruction that breaks one",
                    .examples = "penstock verify plan.json\npenstock verify plan.json --json"});
  command->add_option("plan", flags->path, "JSON of a PlannedBatch, as `penstock plan --out` writes it")
      ->required();
  command->add_flag("--json", flags->json, "Print an array of the violations");
  commands.OnRun(command, [flags] { return RunVerify(*flags); });
}

}  // namespace penstock::cli
