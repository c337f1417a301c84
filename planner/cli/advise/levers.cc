#include "planner/cli/advise/levers.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/advise/bucket_sizes.h"
#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/present_way.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/planning_flags.h"
#include "planner/core/replay/expected_time.h"
#include "planner/core/strategies/strategy_planner.h"

namespace penstock::cli {
namespace {

// A choice of planning with its other values.
template <typename Choice>
struct Choices {
  const char* name;
  const char* flag;
  std::vector<Choice> values;
  std::string (*word)(Choice);
  Choice (v1::PlanningOptions::*get)() const;
  void (v1::PlanningOptions::*set)(Choice);
};

template <typename Choice>
void AddChoices(const Choices<Choice>& choices, const v1::JobSpec& job, std::vector<Lever>& levers) {
  const std::string now = choices.word((job.planning().*choices.get)());
  for (const Choice value : choices.values) {
    const std::string instead = choices.word(value);
    if (instead == now) continue;
    Lever& lever = levers.emplace_back(Lever{.name = choices.name,
                                             .now = now,
                                             .instead = instead,
                                             .flags = absl::StrCat(choices.flag, " ", instead),
                                             .job = job});
    (lever.job.mutable_planning()->*choices.set)(value);
  }
}

void AddStageChoices(const v1::JobSpec& job, std::vector<Lever>& levers) {
  AddChoices<v1::Schedule>({"schedule",
                            "--schedule",
                            {v1::SCHEDULE_AUTO, v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD,
                             v1::SCHEDULE_READY_FIRST, v1::SCHEDULE_SPLIT_BACKWARD, v1::SCHEDULE_INTERLEAVED},
                            ScheduleName,
                            &v1::PlanningOptions::schedule,
                            &v1::PlanningOptions::set_schedule},
                           job, levers);
  // Stages that were given are what is asked for.
  if (job.planning().layers_per_stage_size() > 0) return;
  AddChoices<v1::StageSplit>({"stage split",
                              "--stage-split",
                              {v1::STAGE_SPLIT_AUTO, v1::STAGE_SPLIT_EVEN},
                              StageSplitName,
                              &v1::PlanningOptions::stage_split,
                              &v1::PlanningOptions::set_stage_split},
                             job, levers);
}

void AddSharding(const v1::JobSpec& job, std::vector<Lever>& levers) {
  if (job.mesh().data() * ContextRanks(job.mesh()) == 1) return;
  const bool now = job.planning().shard_optimizer_state();
  Lever& lever =
      levers.emplace_back(Lever{.name = "divided optimizer state",
                                .now = now ? "yes" : "no",
                                .instead = now ? "no" : "yes",
                                .flags = now ? "--shard-optimizer-state=false" : "--shard-optimizer-state",
                                .job = job});
  lever.job.mutable_planning()->set_shard_optimizer_state(!now);
}

// Times of a job that names no size are those of sums behind the last passes, whatever workers do: it is
// compared as if it named the size that they have.
void AddGradientBuckets(const v1::JobSpec& job, std::vector<Lever>& levers) {
  if (!SumsGradients(job)) return;
  const uint64_t now = BucketBytesOf(job);
  v1::JobSpec before = job;
  before.mutable_planning()->set_gradient_bucket_bytes(now);
  for (const uint64_t bytes : OtherBucketSizes(job)) {
    Lever& lever =
        levers.emplace_back(Lever{.name = "gradient buckets",
                                  .now = BucketName(now),
                                  .instead = BucketName(bytes),
                                  .flags = absl::StrCat("--gradient-bucket-mib ", GradientBucketMib(bytes)),
                                  .job = before,
                                  .before = before});
    lever.job.mutable_planning()->set_gradient_bucket_bytes(bytes);
  }
}

void AddMeshes(const v1::JobSpec& job, uint32_t global_batch, std::vector<Lever>& levers) {
  const Candidate present = PresentWay(job);
  const Given given = {.stage_split = present.stage_split,
                       .schedule = present.schedule,
                       .shard_optimizer_state = present.shard_optimizer_state};
  const auto meshes = MakeCandidates(WithFreeStages(job), static_cast<uint32_t>(RanksOf(job.mesh())),
                                     global_batch, {present.policy}, given);
  if (!meshes.ok()) return;
  for (const Candidate& candidate : *meshes) {
    // One replica has nothing to divide its state with.
    const bool can_shard = candidate.data * candidate.context > 1;
    if (candidate.shard_optimizer_state != (present.shard_optimizer_state && can_shard)) continue;
    if (DescribeMesh(candidate) == DescribeMesh(present)) continue;
    Lever& lever = levers.emplace_back(Lever{.name = "mesh",
                                             .now = DescribeMesh(present),
                                             .instead = DescribeMesh(candidate),
                                             .flags = MeshFlags(candidate),
                                             .job = WithFreeStages(job)});
    *lever.job.mutable_mesh() = MeshOf(candidate);
  }
}

}  // namespace

std::vector<Lever> LeversOf(const v1::JobSpec& given, uint32_t global_batch) {
  // With defaults spelled out.
  const v1::JobSpec job = MakeJob(given, PresentWay(given), given.planning().effort());
  std::vector<Lever> levers;
  AddMeshes(job, global_batch, levers);
  AddChoices<v1::Policy>({"policy",
                          "--policy",
                          {v1::POLICY_DYNAMIC, v1::POLICY_PACKED, v1::POLICY_TOKEN_BUDGET,
                           v1::POLICY_CONCATENATED, v1::POLICY_PADDING},
                          PolicyName,
                          &v1::PlanningOptions::policy,
                          &v1::PlanningOptions::set_policy},
                         job, levers);
  if (job.planning().policy() == v1::POLICY_DYNAMIC) {
    AddChoices<v1::LayoutChoice>(
        {"layout",
         "--layout",
         {v1::LAYOUT_CHOICE_AUTO, v1::LAYOUT_CHOICE_PACKED, v1::LAYOUT_CHOICE_PADDED},
         LayoutName,
         &v1::PlanningOptions::layout,
         &v1::PlanningOptions::set_layout},
        job, levers);
  }
  if (job.mesh().pipeline() > 1) AddStageChoices(job, levers);
  AddChoices<v1::Recompute>(
      {"recompute",
       "--recompute",
       {v1::RECOMPUTE_AUTO, v1::RECOMPUTE_NONE, v1::RECOMPUTE_SELECTIVE, v1::RECOMPUTE_FULL},
       RecomputeName,
       &v1::PlanningOptions::recompute,
       &v1::PlanningOptions::set_recompute},
      job, levers);
  AddSharding(job, levers);
  AddGradientBuckets(job, levers);
  AddChoices<v1::Effort>({"planning effort",
                          "--effort",
                          {v1::EFFORT_FAST, v1::EFFORT_NORMAL, v1::EFFORT_THOROUGH},
                          EffortName,
                          &v1::PlanningOptions::effort,
                          &v1::PlanningOptions::set_effort},
                         job, levers);
  return levers;
}

absl::StatusOr<int64_t> PlannedNs(const v1::JobSpec& job, const std::vector<v1::Batch>& batches) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(job, core::Planner::Explain::kCauseAlone));
  int64_t planned = 0;
  for (const v1::Batch& batch : batches) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, PlanAndCheck(*planner, batch));
    planned += core::ExpectedNs(plan.predicted());
  }
  return planned;
}

}  // namespace penstock::cli
