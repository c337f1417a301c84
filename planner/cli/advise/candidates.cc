#include "planner/cli/advise/candidates.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/planning_flags.h"
#include "planner/core/contract/check_group.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/total_layers.h"

namespace penstock::cli {
namespace {

// What can be chosen on one mesh. One stage has one split and one schedule; parameters that nobody else has
// leave nothing to shard.
void AddCandidates(const Candidate& mesh, v1::Policy policy, const Given& given,
                   std::vector<Candidate>* candidates) {
  const bool staged = mesh.pipeline > 1;
  for (const v1::StageSplit split : {v1::STAGE_SPLIT_EVEN, v1::STAGE_SPLIT_AUTO}) {
    if (given.stage_split.value_or(split) != split && staged) continue;
    if (split == v1::STAGE_SPLIT_AUTO && !staged) continue;
    for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_AUTO}) {
      if (schedule == v1::SCHEDULE_AUTO && (!staged || given.schedule.has_value())) continue;
      for (const bool shard : {false, true}) {
        if (shard && mesh.data * mesh.context == 1) continue;
        if (!shard && given.shard_optimizer_state && mesh.data * mesh.context > 1) continue;
        Candidate candidate = mesh;
        candidate.policy = policy;
        candidate.stage_split = split;
        candidate.schedule = given.schedule.value_or(schedule);
        candidate.shard_optimizer_state = shard;
        candidates->push_back(candidate);
      }
    }
  }
}

bool MayBe(uint32_t degree, uint32_t given) { return given == 0 || degree == given; }

// Of the ranks that could divide a model's experts: none, all of a stage group, and as many of them as are on
// a node, whose exchanges are the quickest.
std::vector<uint32_t> ExpertDegrees(const v1::JobSpec& base, uint32_t group, const Given& given) {
  if (given.expert > 0) return {given.expert};
  if (base.model().experts() == 0 || group == 1) return {1};
  const uint32_t node = std::max(1U, base.profile().cluster().gpus_per_node());
  uint32_t inside = std::min(group, base.model().experts());
  while (inside > node && inside % 2 == 0) inside /= 2;
  std::vector<uint32_t> degrees = {1};
  if (inside > 1 && inside < group) degrees.push_back(inside);
  if (group <= base.model().experts()) degrees.push_back(group);
  return degrees;
}

// Why degrees that are given cannot be.
absl::Status CheckGiven(const v1::JobSpec& base, const Given& given) {
  v1::JobSpec job = base;
  job.mutable_mesh()->set_tensor(given.tensor);
  job.mutable_mesh()->set_context(given.context);
  // Whether it divides the group is known when both degrees of it are.
  if (given.tensor > 0 && given.context > 0) job.mutable_mesh()->set_expert(given.expert);
  return core::CheckGroup(job);
}

// " with --pp 4 --tp 8"; nothing where all degrees are searched.
std::string DescribeGiven(const Given& given) {
  const auto flag = [](const char* name, uint32_t degree) {
    return degree > 0 ? absl::StrCat(" ", name, " ", degree) : "";
  };
  const std::string flags =
      absl::StrCat(flag("--pp", given.pipeline), flag("--dp", given.data), flag("--tp", given.tensor),
                   flag("--cp", given.context), flag("--ep", given.expert));
  return flags.empty() ? "" : absl::StrCat(" with", flags);
}

}  // namespace

std::vector<Candidate> StageGroups(const v1::JobSpec& base, uint32_t gpus, const Given& given) {
  std::vector<Candidate> groups;
  v1::JobSpec job = base;
  for (uint32_t tensor = 1; tensor <= std::min(gpus, core::kMostTensorRanks); ++tensor) {
    if (!MayBe(tensor, given.tensor)) continue;
    for (uint32_t context = 1; tensor * context <= gpus && context <= core::kMostContextRanks; context *= 2) {
      if (!MayBe(context, given.context)) continue;
      job.mutable_mesh()->set_tensor(tensor);
      job.mutable_mesh()->set_context(context);
      for (const uint32_t expert : ExpertDegrees(base, tensor * context, given)) {
        job.mutable_mesh()->set_expert(expert);
        if (core::CheckGroup(job).ok())
          groups.push_back({.tensor = tensor, .context = context, .expert = expert});
      }
    }
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Candidate& a, const Candidate& b) {
    return a.tensor * a.context < b.tensor * b.context;
  });
  return groups;
}

absl::StatusOr<std::vector<Candidate>> MakeCandidates(const v1::JobSpec& base, uint32_t gpus,
                                                      uint32_t global_batch,
                                                      const std::vector<v1::Policy>& policies,
                                                      const Given& given) {
  PENSTOCK_RETURN_IF_ERROR(CheckGiven(base, given));
  std::vector<Candidate> candidates;
  const uint32_t layers = core::TotalLayers(base.model());
  for (const Candidate& group : StageGroups(base, gpus, given)) {
    if (gpus % (group.tensor * group.context) != 0) continue;
    const uint32_t positions = gpus / (group.tensor * group.context);
    for (uint32_t pipeline = 1; pipeline <= positions && pipeline <= layers; ++pipeline) {
      if (positions % pipeline != 0 || positions / pipeline > global_batch) continue;
      if (!MayBe(pipeline, given.pipeline) || !MayBe(positions / pipeline, given.data)) continue;
      Candidate mesh = group;
      mesh.pipeline = pipeline;
      mesh.data = positions / pipeline;
      for (const v1::Policy policy : policies) AddCandidates(mesh, policy, given, &candidates);
    }
  }
  // With shares all ranks divide the state already.
  if (base.planning().parameter_shares())
    std::erase_if(candidates, [](const Candidate& candidate) { return candidate.shard_optimizer_state; });
  if (!candidates.empty()) return candidates;
  return absl::InvalidArgumentError(absl::StrCat("--gpus ", gpus, DescribeGiven(given),
                                                 ": it is no product of a pipeline of at most ", layers,
                                                 " stages (the model's layers), at most ", global_batch,
                                                 " replicas (--global-batch), and tensor and context ranks"));
}

v1::Mesh MeshOf(const Candidate& candidate) {
  return MakeMesh(candidate.pipeline, candidate.data, candidate.tensor, candidate.context, candidate.expert);
}

v1::JobSpec MakeJob(const v1::JobSpec& base, const Candidate& candidate, v1::Effort effort) {
  v1::JobSpec job = base;
  *job.mutable_mesh() = MeshOf(candidate);
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning.set_policy(candidate.policy);
  planning.set_stage_split(candidate.stage_split);
  planning.set_schedule(candidate.schedule);
  planning.set_shard_optimizer_state(candidate.shard_optimizer_state);
  if (candidate.gradient_bucket_bytes.has_value())
    planning.set_gradient_bucket_bytes(*candidate.gradient_bucket_bytes);
  planning.set_effort(effort);
  return job;
}

std::string FlagsOf(const Candidate& candidate) {
  return absl::StrCat("--pp ", candidate.pipeline, " --dp ", candidate.data,
                      candidate.tensor > 1 ? absl::StrCat(" --tp ", candidate.tensor) : "",
                      candidate.context > 1 ? absl::StrCat(" --cp ", candidate.context) : "",
                      candidate.expert > 1 ? absl::StrCat(" --ep ", candidate.expert) : "", " --policy ",
                      PolicyName(candidate.policy), " --stage-split ", StageSplitName(candidate.stage_split),
                      " --schedule ", ScheduleName(candidate.schedule),
                      candidate.shard_optimizer_state ? " --shard-optimizer-state" : "");
}

}  // namespace penstock::cli
