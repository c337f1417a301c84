// Rule 0: the plan of a batch's validation belongs to the plan that it is in (execution.md, section 16).
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {

void CheckValidation(const v1::Batch& batch, const v1::Plan& plan, Report& report) {
  const auto fail = [&](const std::string& message) { report.Add(kStructure, message); };
  if (plan.forward_only()) fail("forward_only is set, which only a plan's `validation` may have");
  if (batch.has_validation() != plan.has_validation())
    fail(absl::StrCat("the batch has ", batch.has_validation() ? "a" : "no", " validation, the plan ",
                      plan.has_validation() ? "one" : "none"));
  if (!batch.has_validation() || !plan.has_validation()) return;
  const v1::Plan& of = plan.validation();
  const auto equal = [&](const char* field, uint64_t found, uint64_t expected) {
    if (found != expected)
      fail(absl::StrCat("validation.", field, " is ", found, ", that of the plan ", expected));
  };
  if (!of.forward_only()) fail("validation.forward_only is not set");
  if (of.has_validation() || batch.validation().has_validation()) fail("validation.validation is set");
  if (of.job_id() != plan.job_id()) fail("validation.job_id is not that of the plan");
  if (of.model().SerializeAsString() != plan.model().SerializeAsString())
    fail("validation.model is not that of the plan");
  equal("iteration", of.iteration(), plan.iteration());
  equal("plan_version", of.plan_version(), plan.plan_version());
  equal("profile_version", of.profile_version(), plan.profile_version());
  equal("options.parameter_shares", of.options().parameter_shares() ? 1 : 0,
        plan.options().parameter_shares() ? 1 : 0);
  const auto& weights = of.options().share_weights();
  if (!std::equal(weights.begin(), weights.end(), plan.options().share_weights().begin(),
                  plan.options().share_weights().end()))
    fail("validation.options.share_weights are not those of the plan");
  if (!of.meshes().empty()) fail("validation.meshes is set: what is forward_only runs on one mesh");
  // Parameters live where the training has them.
  const bool same_strategy = of.strategy() == plan.strategy();
  if (same_strategy && of.topology().SerializeAsString() != plan.topology().SerializeAsString())
    fail("validation.topology is not that of the plan, whose strategy it has");
}

}  // namespace penstock::core::verify
