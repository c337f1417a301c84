#include "planner/cli/advise/present_way.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/cli/planning_flags.h"

namespace penstock::cli {

Candidate PresentWay(const v1::JobSpec& job) {
  const v1::PlanningOptions& planning = job.planning();
  Candidate way = {.pipeline = job.mesh().pipeline(),
                   .data = job.mesh().data(),
                   .tensor = TensorRanks(job.mesh()),
                   .context = ContextRanks(job.mesh()),
                   .expert = ExpertRanks(job.mesh()),
                   .policy = planning.policy(),
                   .stage_split = planning.stage_split(),
                   .schedule = planning.schedule(),
                   .shard_optimizer_state = planning.shard_optimizer_state()};
  if (way.policy == v1::POLICY_UNSPECIFIED) way.policy = v1::POLICY_DYNAMIC;
  if (way.stage_split == v1::STAGE_SPLIT_UNSPECIFIED) way.stage_split = v1::STAGE_SPLIT_AUTO;
  if (way.schedule == v1::SCHEDULE_UNSPECIFIED) way.schedule = v1::SCHEDULE_AUTO;
  return way;
}

bool IsSameWay(Candidate a, Candidate b) {
  for (Candidate* way : {&a, &b}) {
    if (way->pipeline == 1) {
      way->stage_split = v1::STAGE_SPLIT_EVEN;
      way->schedule = v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
    }
    if (way->data * way->context > 1) continue;
    way->shard_optimizer_state = false;
    way->gradient_bucket_bytes.reset();
  }
  return a == b;
}

v1::JobSpec WithFreeStages(v1::JobSpec job) {
  job.mutable_planning()->clear_layers_per_stage();
  job.mutable_planning()->clear_rank_of_stage();
  return job;
}

v1::JobSpec WithFreeChoices(v1::JobSpec job) {
  job.mutable_planning()->set_recompute(v1::RECOMPUTE_AUTO);
  job.mutable_planning()->set_layout(v1::LAYOUT_CHOICE_AUTO);
  return WithFreeStages(std::move(job));
}

std::string DescribeMesh(const Candidate& candidate) {
  return absl::StrCat("pp ", candidate.pipeline, " dp ", candidate.data,
                      candidate.tensor > 1 ? absl::StrCat(" tp ", candidate.tensor) : "",
                      candidate.context > 1 ? absl::StrCat(" cp ", candidate.context) : "",
                      candidate.expert > 1 ? absl::StrCat(" ep ", candidate.expert) : "");
}

std::string MeshFlags(const Candidate& candidate) {
  return absl::StrCat("--pp ", candidate.pipeline, " --dp ", candidate.data, " --tp ", candidate.tensor,
                      " --cp ", candidate.context, " --ep ", candidate.expert);
}

std::string SwitchFlags(const v1::JobSpec& present, const Candidate& candidate) {
  const v1::PlanningOptions& planning = present.planning();
  std::string flags =
      absl::StrCat(MeshFlags(candidate), " --policy ", PolicyName(candidate.policy), " --stage-split ",
                   StageSplitName(candidate.stage_split), " --schedule ", ScheduleName(candidate.schedule));
  if (candidate.shard_optimizer_state) {
    absl::StrAppend(&flags, " --shard-optimizer-state");
  } else if (planning.shard_optimizer_state()) {
    absl::StrAppend(&flags, " --shard-optimizer-state=false");
  }
  if (candidate.gradient_bucket_bytes.has_value())
    absl::StrAppend(&flags, " --gradient-bucket-mib ", GradientBucketMib(*candidate.gradient_bucket_bytes));
  if (RecomputeName(planning.recompute()) != "auto") absl::StrAppend(&flags, " --recompute auto");
  if (LayoutName(planning.layout()) != "auto") absl::StrAppend(&flags, " --layout auto");
  return flags;
}

}  // namespace penstock::cli
