#include "planner/core/audit/audit_plan.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"
#include "planner/core/audit/audit_costs.h"
#include "planner/core/audit/audit_list.h"
#include "planner/core/audit/audit_options.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {
namespace {

std::vector<Violation> Broken(std::string message) { return {{kCostsRule, -1, -1, std::move(message)}}; }

// The job of which the plan says that it is one.
v1::JobSpec SpecOf(const v1::Plan& plan, const v1::CostProfile& profile) {
  v1::JobSpec spec;
  spec.set_job_id("audit");
  *spec.mutable_model() = plan.model();
  *spec.mutable_mesh() = plan.mesh();
  *spec.mutable_planning() = plan.options();
  *spec.mutable_profile() = profile;
  return spec;
}

// Whether the profile is to blame, not what the plan says of itself.
bool IsOfProfile(const absl::Status& status) {
  return absl::StartsWith(status.message(), "job.profile") || absl::StartsWith(status.message(), "profile");
}

// Fields by the names that they have in a plan.
std::string PlanField(absl::string_view message) {
  return absl::StrReplaceAll(message,
                             {{"job.planning", "options"}, {"job.mesh", "mesh"}, {"job.model", "model"}});
}

}  // namespace

absl::StatusOr<std::vector<Violation>> AuditPlan(const v1::Batch& batch, const v1::Plan& plan,
                                                 const v1::CostProfile& profile) {
  if (plan.profile_version() != profile.version()) {
    return Broken(absl::StrCat("profile_version is ", plan.profile_version(), ", that of the profile ",
                               profile.version()));
  }
  const absl::StatusOr<Job> job = JobFromProto(SpecOf(plan, profile));
  if (!job.ok()) {
    if (IsOfProfile(job.status())) return job.status();
    return Broken(PlanField(job.status().message()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Profile known, ProfileFromProto(profile, job->architecture, job->windows));
  const absl::StatusOr<Batch> samples = BatchFromProto(batch, *job);
  if (!samples.ok()) return Broken(PlanField(samples.status().message()));
  if (TopologyToProto(job->topology).SerializeAsString() != plan.topology().SerializeAsString())
    return Broken("topology is not that of options.layers_per_stage and options.rank_of_stage");
  const CostModel costs(std::move(known), *job);
  AuditList list;
  AuditOptions(plan, *samples, *job, costs, &list);
  AuditCosts(plan, *samples, *job, costs, &list);
  return list.Take();
}

}  // namespace penstock::core
