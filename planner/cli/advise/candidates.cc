#include "planner/cli/advise/candidates.h"

#include "absl/strings/str_cat.h"
#include "planner/cli/planning_flags.h"
#include "planner/core/contract/total_layers.h"

namespace penstock::cli {
namespace {

// What can be chosen on one mesh. One stage has one split and one schedule; one replica has nothing to shard.
void AddCandidates(uint32_t pipeline, uint32_t data, v1::Policy policy, std::vector<Candidate>* candidates) {
  const bool staged = pipeline > 1;
  for (const v1::StageSplit split : {v1::STAGE_SPLIT_EVEN, v1::STAGE_SPLIT_AUTO}) {
    if (split == v1::STAGE_SPLIT_AUTO && !staged) continue;
    for (const v1::Schedule schedule : {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_AUTO}) {
      if (schedule == v1::SCHEDULE_AUTO && !staged) continue;
      for (const bool shard : {false, true}) {
        if (shard && data == 1) continue;
        candidates->push_back({pipeline, data, policy, split, schedule, shard});
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<Candidate>> MakeCandidates(uint32_t gpus, const v1::ModelSpec& model,
                                                      uint32_t global_batch,
                                                      const std::vector<v1::Policy>& policies) {
  std::vector<Candidate> candidates;
  const uint32_t layers = core::TotalLayers(model);
  for (uint32_t pipeline = 1; pipeline <= gpus && pipeline <= layers; ++pipeline) {
    if (gpus % pipeline != 0 || gpus / pipeline > global_batch) continue;
    for (const v1::Policy policy : policies) AddCandidates(pipeline, gpus / pipeline, policy, &candidates);
  }
  if (!candidates.empty()) return candidates;
  return absl::InvalidArgumentError(
      absl::StrCat("--gpus ", gpus, ": it is no product of a pipeline of at most ", layers,
                   " stages (the model's layers) and at most ", global_batch, " replicas (--global-batch)"));
}

v1::JobSpec MakeJob(const v1::JobSpec& base, const Candidate& candidate, v1::Effort effort) {
  v1::JobSpec job = base;
  job.mutable_mesh()->set_pipeline(candidate.pipeline);
  job.mutable_mesh()->set_data(candidate.data);
  v1::PlanningOptions& planning = *job.mutable_planning();
  planning.set_policy(candidate.policy);
  planning.set_stage_split(candidate.stage_split);
  planning.set_schedule(candidate.schedule);
  planning.set_shard_optimizer_state(candidate.shard_optimizer_state);
  planning.set_recompute(v1::RECOMPUTE_AUTO);
  planning.set_effort(effort);
  return job;
}

std::string FlagsOf(const Candidate& candidate) {
  return absl::StrCat("--pp ", candidate.pipeline, " --dp ", candidate.data, " --policy ",
                      PolicyName(candidate.policy), " --stage-split ", StageSplitName(candidate.stage_split),
                      " --schedule ", ScheduleName(candidate.schedule),
                      candidate.shard_optimizer_state ? " --shard-optimizer-state" : "");
}

}  // namespace penstock::cli
