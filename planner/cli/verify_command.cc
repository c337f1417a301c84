// `penstock verify`: judges a plan from anywhere.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/plan_file.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/sample_lengths.h"
#include "planner/core/audit/audit_plan.h"
#include "planner/core/cost/adapted_profile.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::cli {
namespace {

struct VerifyFlags {
  std::string path;
  std::string profile;
  std::string lengths;
  std::string rows;
  LengthLimits limits;
  bool json = false;
};

nlohmann::ordered_json ToJson(const core::Violation& violation) {
  return {{"rule", violation.rule},
          {"name", core::RuleName(violation.rule)},
          {"rank", violation.rank},
          {"instruction", violation.instruction},
          {"message", violation.message}};
}

absl::Status CheckFlags(const VerifyFlags& flags) {
  const bool limited =
      flags.limits.max_length > 0 || flags.limits.max_input > 0 || flags.limits.max_target > 0;
  if (flags.lengths.empty() && (!flags.rows.empty() || limited))
    return absl::InvalidArgumentError("--rows, --max-length, --max-input and --max-target need --lengths");
  return absl::OkStatus();
}

// The samples that the batch should have: the given rows, or for each of its samples the row that its id
// names.
absl::StatusOr<std::vector<core::ListedSample>> ListSamples(const VerifyFlags& flags, const std::string& rows,
                                                            const v1::Batch& batch, const v1::Plan& plan) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<SampleLength> all, ReadAllLengths(flags.lengths));
  const auto missing = [&](uint64_t row) {
    return absl::OutOfRangeError(
        absl::StrCat("row ", row, " is needed, but '", flags.lengths, "' has ", all.size()));
  };
  std::vector<uint64_t> ids;
  if (!rows.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const RowRange range, ParseRows(rows));
    if (range.last > all.size()) return missing(range.last - 1);
    for (uint64_t row = range.first; row < range.last; ++row) ids.push_back(row);
  } else {
    for (const v1::Sample& sample : batch.samples()) ids.push_back(sample.sample_id());
  }
  std::vector<core::ListedSample> samples;
  for (const uint64_t id : ids) {
    if (id >= all.size()) return missing(id);
    const std::optional<SampleLength> left = CutToLimits(all[id], plan.model().architecture(), flags.limits);
    if (left.has_value()) samples.push_back({id, left->input, left->target});
  }
  return samples;
}

void Append(std::vector<core::Violation> more, std::vector<core::Violation>* violations) {
  for (core::Violation& violation : more) violations->push_back(std::move(violation));
}

absl::StatusOr<std::vector<core::Violation>> FindViolations(const VerifyFlags& flags,
                                                            const v1::PlannedBatch& planned) {
  std::vector<core::Violation> violations = core::CheckPlan(planned.batch(), planned.plan());
  if (!flags.lengths.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<core::ListedSample> samples,
                              ListSamples(flags, flags.rows, planned.batch(), planned.plan()));
    Append(core::AuditSamples(planned.batch(), samples), &violations);
    if (planned.batch().has_validation()) {
      // Which rows these were, --rows does not say.
      PENSTOCK_ASSIGN_OR_RETURN(
          const std::vector<core::ListedSample> validated,
          ListSamples(flags, /*rows=*/"", planned.batch().validation(), planned.plan()));
      Append(core::AuditSamples(planned.batch().validation(), validated), &violations);
    }
  }
  // Costs are those of a plan that stands.
  if (flags.profile.empty() || !violations.empty()) return violations;
  PENSTOCK_ASSIGN_OR_RETURN(v1::ProfileFile profile, ReadProfileFile("--profile", flags.profile));
  // As who planned with it made one of the other.
  if (planned.plan().model().has_adapters() && !profile.model().has_adapters())
    PENSTOCK_RETURN_IF_ERROR(core::AdaptProfile(planned.plan().model().adapters(), &profile));
  PENSTOCK_ASSIGN_OR_RETURN(violations, core::AuditPlan(planned.batch(), planned.plan(), profile.profile()));
  Append(core::AuditModel(planned.plan(), profile.model()), &violations);
  return violations;
}

absl::Status RunVerify(const VerifyFlags& flags) {
  PENSTOCK_RETURN_IF_ERROR(CheckFlags(flags));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::PlannedBatch planned, ReadPlanFile(flags.path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<core::Violation> violations, FindViolations(flags, planned));
  if (flags.json) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const core::Violation& violation : violations) json.push_back(ToJson(violation));
    std::cout << DumpJson(json) << "\n";
  } else {
    for (const core::Violation& violation : violations)
      std::cout << "rule " << violation.rule << " (" << core::RuleName(violation.rule)
                << "): " << PrintableText(violation.message) << "\n";
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
  CLI::App* command = commands.Add(
      {.name = "verify",
       .purpose = "Checks a plan by all rules and names every instruction that breaks one",
       .examples = "penstock verify plan.json\npenstock verify plan.json --json\n"
                   "penstock verify plan.json --profile profile.json --lengths lengths.csv --rows 0:256"});
  command->add_option("plan", flags->path, "JSON of a PlannedBatch, as `penstock plan --out` writes it")
      ->required();
  command->add_option(
      "--profile", flags->profile,
      "Cost profile (JSON) that the plan was made with: durations, bytes and recompute must be its own");
  command->add_option(
      "--lengths", flags->lengths,
      "CSV that the samples come from: each must have the lengths of the row that its id names");
  command->add_option("--rows", flags->rows,
                      "With --lengths: data rows A:B, that is A to B-1, are the batch");
  command->add_option("--max-length", flags->limits.max_length,
                      "With --lengths: samples were cut to this many tokens (encoder-decoder: each side)");
  AddCutFlag(*command, flags->limits.cut);
  command->add_option("--max-input", flags->limits.max_input,
                      "With --lengths, encoder-decoder: inputs were cut to this many tokens");
  command->add_option("--max-target", flags->limits.max_target,
                      "With --lengths, encoder-decoder: targets were cut to this many tokens");
  command->add_flag("--json", flags->json, "Print an array of the violations");
  commands.OnRun(command, [flags] { return RunVerify(*flags); });
}

}  // namespace penstock::cli
