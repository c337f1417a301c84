#include "planner/core/audit/audit_plan.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"
#include "planner/core/audit/audit_costs.h"
#include "planner/core/audit/audit_list.h"
#include "planner/core/audit/audit_options.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/plan_of_mesh.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/contract/ranks_of_profile.h"
#include "planner/core/contract/reshard_durations.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/cost/world_reshard.h"

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

// A mesh of the plan: what it is of the plan, and what costs follow from.
struct MeshAudit {
  v1::Plan plan;
  v1::CostProfile profile;
  MeshRange range;
  Job job;
  std::unique_ptr<CostModel> costs;
  // Not OK: the plan's fault, in its own words.
  absl::Status broken = absl::OkStatus();
};

// Possible errors: INVALID_ARGUMENT (the profile).
absl::StatusOr<MeshAudit> ReadMesh(const v1::Plan& plan, const v1::CostProfile& profile, int mesh) {
  MeshAudit audit;
  audit.plan = PlanOfMesh(plan, mesh);
  audit.profile = profile;
  audit.range = RangeOfMesh(plan, mesh);
  if (MeshCount(plan) > 1) {
    KeepRanks(audit.range.first_rank, audit.range.ranks, &audit.profile);
  }
  const World world = MeshCount(plan) == 1
                          ? World()
                          : World{.first_rank = audit.range.first_rank, .ranks = plan.programs_size()};
  absl::StatusOr<Job> job = JobFromProto(SpecOf(audit.plan, audit.profile), world);
  if (!job.ok()) {
    if (IsOfProfile(job.status())) return job.status();
    audit.broken = job.status();
    return audit;
  }
  audit.job = *std::move(job);
  // A plan does not say how many tasks its job has.
  audit.job.tasks = kMostTasks;
  if (TopologyToProto(audit.job.topology).SerializeAsString() != audit.plan.topology().SerializeAsString())
    audit.broken = absl::InvalidArgumentError(
        "topology is not that of options.layers_per_stage and options.rank_of_stage");
  return audit;
}

absl::Status MakeCosts(MeshAudit* audit) {
  PENSTOCK_ASSIGN_OR_RETURN(Profile known,
                            ProfileFromProto(audit->profile, audit->job.architecture, audit->job.windows));
  audit->costs = std::make_unique<CostModel>(std::move(known), audit->job);
  return absl::OkStatus();
}

// RESHARDs are over all meshes.
absl::Status MakeCostsOfAll(std::vector<MeshAudit>* meshes) {
  std::vector<const CostModel*> costs;
  for (MeshAudit& mesh : *meshes) {
    PENSTOCK_RETURN_IF_ERROR(MakeCosts(&mesh));
    costs.push_back(mesh.costs.get());
  }
  if (meshes->size() == 1) return absl::OkStatus();
  const WorldReshard reshard = ReshardOfWorld(costs);
  for (MeshAudit& mesh : *meshes) {
    mesh.job.world.reshard = reshard;
    PENSTOCK_RETURN_IF_ERROR(MakeCosts(&mesh));
  }
  return absl::OkStatus();
}

// Of one of several meshes: ranks are those of the whole plan.
void AppendViolations(std::vector<Violation> found, const MeshAudit& mesh, std::vector<Violation>* all) {
  for (Violation& violation : found) {
    if (violation.rank >= 0) violation.rank += mesh.range.first_rank;
    all->push_back(std::move(violation));
  }
}

// A plan without its validation.
absl::StatusOr<std::vector<Violation>> AuditPasses(const v1::Batch& batch, const v1::Plan& plan,
                                                   const v1::CostProfile& profile) {
  if (plan.profile_version() != profile.version()) {
    return Broken(absl::StrCat("profile_version is ", plan.profile_version(), ", that of the profile ",
                               profile.version()));
  }
  std::vector<MeshAudit> meshes;
  for (int mesh = 0; mesh < MeshCount(plan); ++mesh) {
    PENSTOCK_ASSIGN_OR_RETURN(meshes.emplace_back(), ReadMesh(plan, profile, mesh));
    if (!meshes.back().broken.ok()) return Broken(PlanField(meshes.back().broken.message()));
  }
  PENSTOCK_RETURN_IF_ERROR(MakeCostsOfAll(&meshes));
  const absl::StatusOr<Batch> samples = BatchFromProto(batch, meshes.front().job);
  if (!samples.ok()) return Broken(PlanField(samples.status().message()));
  std::vector<Violation> violations;
  for (const MeshAudit& mesh : meshes) {
    AuditList list;
    AuditOptions(mesh.plan, *samples, mesh.job, *mesh.costs, &list);
    ReshardDurations reshards;
    if (plan.options().parameter_shares()) reshards = ReshardDurationsOf(plan, mesh.costs->ReshardTimes());
    AuditCosts(mesh.plan, *samples, mesh.job, *mesh.costs, reshards, &list);
    AppendViolations(list.Take(), mesh, &violations);
  }
  return violations;
}

}  // namespace

absl::StatusOr<std::vector<Violation>> AuditPlan(const v1::Batch& batch, const v1::Plan& plan,
                                                 const v1::CostProfile& profile) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Violation> violations, AuditPasses(batch, plan, profile));
  if (!plan.has_validation()) return violations;
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Violation> more,
                            AuditPasses(batch.validation(), plan.validation(), profile));
  for (Violation& violation : more) {
    violation.message = absl::StrCat("validation: ", violation.message);
    violations.push_back(std::move(violation));
  }
  return violations;
}

}  // namespace penstock::core
