#include "planner/cli/what_if.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/mesh/rank_places.h"
#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/units.h"
#include "planner/core/planner.h"

namespace penstock::cli {
namespace {

// Beyond every accelerator, and far from the end of the integers.
constexpr int64_t kUnlimitedBytes = int64_t{1} << 50;
constexpr double kUnlimitedBytesPerSecond = 1e21;
// Typical samples that stages are chosen by, of a batch that may have more.
constexpr int kMostStageSamples = 1024;
// Below this share of padding a plan without it is not worth a row.
constexpr double kNoPadding = 0.9995;

// A job and a batch to plan instead.
struct Request {
  v1::JobSpec job;
  v1::Batch batch;
};

struct Question {
  std::string condition = {};
  std::string advice = {};
  // Whether the plan stays valid, and no slower, under the condition: the answer is never worse than it.
  bool only_relaxes = false;
  // How many times the samples of the batch are planned.
  int batches = 1;
  // Times as many ranks as the job has.
  int ranks = 1;
  std::function<void(Request*)> change = {};
};

void FreeTransfers(Request* request) {
  v1::Cluster& cluster = *request->job.mutable_profile()->mutable_cluster();
  cluster.set_intra_node_bytes_per_second(kUnlimitedBytesPerSecond);
  cluster.set_inter_node_bytes_per_second(kUnlimitedBytesPerSecond);
  cluster.set_intra_node_latency_ns(0);
  cluster.set_inter_node_latency_ns(0);
  // 0: those of the link.
  cluster.set_intra_node_collective_bytes_per_second(0);
  cluster.set_inter_node_collective_bytes_per_second(0);
  cluster.set_intra_node_collective_latency_ns(0);
  cluster.set_inter_node_collective_latency_ns(0);
  cluster.clear_collective_speeds();
}

void WithoutPadding(Request* request) {
  v1::PlanningOptions& planning = *request->job.mutable_planning();
  if (planning.policy() == v1::POLICY_DYNAMIC)
    planning.set_layout(v1::LAYOUT_CHOICE_PACKED);
  else
    planning.set_policy(v1::POLICY_PACKED);
}

void TwiceTheSamples(Request* request) {
  const v1::Batch once = request->batch;
  request->batch.mutable_samples()->MergeFrom(once.samples());
}

// By the cost of the batch itself, of which evenly spaced samples are enough.
void SplitStagesByCost(Request* request) {
  v1::PlanningOptions& planning = *request->job.mutable_planning();
  planning.clear_layers_per_stage();
  planning.clear_rank_of_stage();
  for (v1::Strategy& strategy : *request->job.mutable_strategies()) {
    for (v1::StrategyMesh& mesh : *strategy.mutable_meshes()) {
      mesh.clear_layers_per_stage();
      mesh.clear_rank_of_stage();
    }
  }
  planning.set_stage_split(v1::STAGE_SPLIT_AUTO);
  planning.clear_typical_samples();
  const v1::Batch& batch = request->batch;
  planning.set_typical_batch_size(static_cast<uint32_t>(batch.samples_size()));
  for (int i = 0; i < batch.samples_size(); i += 1 + batch.samples_size() / kMostStageSamples) {
    const v1::Sample& sample = batch.samples(i);
    v1::SampleLengths& lengths = *planning.add_typical_samples();
    lengths.set_input_tokens(sample.input_tokens());
    lengths.set_target_tokens(sample.target_tokens());
  }
}

bool HasPadding(const v1::Plan& plan) {
  return static_cast<double>(plan.real_tokens()) < kNoPadding * static_cast<double>(plan.computed_tokens());
}

// Whether the ranks of a mesh wait for the one whose experts have most rows.
bool HasUnevenRouter(const v1::JobSpec& job) {
  const auto is_uneven = [&](const v1::Mesh& mesh) {
    return std::any_of(
        job.profile().expert_loads().begin(), job.profile().expert_loads().end(),
        [&](const v1::ExpertLoad& load) { return load.ranks() == mesh.expert() && load.fullest() > 1; });
  };
  bool uneven = job.strategies().empty() && is_uneven(job.mesh());
  for (const v1::Strategy& strategy : job.strategies())
    for (const v1::StrategyMesh& mesh : strategy.meshes()) uneven = uneven || is_uneven(mesh.mesh());
  return uneven;
}

// Questions about the machine, the model and the batch.
std::vector<Question> Conditions(const v1::JobSpec& job, const v1::Plan& plan) {
  std::vector<Question> questions = {
      {.condition = "unlimited memory",
       .advice = "use more stages (--pp), divide the optimizer state (--shard-optimizer-state) or cut the "
                 "longest samples",
       .only_relaxes = true,
       .change =
           [](Request* request) {
             request->job.mutable_planning()->set_memory_limit_bytes(kUnlimitedBytes);
             request->job.mutable_planning()->clear_rank_memory_limits();
           }},
      {.condition = "free transfers",
       .advice = HasGroups(plan)
                     ? "keep stage groups inside a node, or use fewer stages, tensor or context ranks"
                     : "keep a pipeline inside a node, or use fewer stages",
       .only_relaxes = true,
       .change = FreeTransfers},
      {.condition = "twice the samples, per batch",
       .advice = "plan larger global batches: fill, drain and uneven micro-batches weigh less",
       .batches = 2,
       .change = TwiceTheSamples}};
  if (HasPadding(plan))
    questions.push_back({.condition = "no padding",
                         .advice = "use a packed layout (--policy dynamic --layout packed)",
                         .change = WithoutPadding});
  if (HasUnevenRouter(job))
    questions.push_back(
        {.condition = "experts used evenly",
         .advice =
             "weigh the routers' balance loss more (router_aux_loss_coef, --router-balance-loss), or divide "
             "experts over fewer ranks (--ep)",
         .only_relaxes = true,
         .change = [](Request* request) { request->job.mutable_profile()->clear_expert_loads(); }});
  return questions;
}

bool FixesSchedule(const v1::PlanningOptions& planning) {
  return planning.schedule() != v1::SCHEDULE_AUTO && planning.schedule() != v1::SCHEDULE_UNSPECIFIED;
}

bool FixesRecompute(const v1::PlanningOptions& planning) {
  return planning.recompute() != v1::RECOMPUTE_AUTO && planning.recompute() != v1::RECOMPUTE_UNSPECIFIED;
}

bool FixesStages(const v1::JobSpec& job) {
  const v1::PlanningOptions& planning = job.planning();
  if (planning.layers_per_stage_size() > 0 || planning.stage_split() == v1::STAGE_SPLIT_EVEN) return true;
  for (const v1::Strategy& strategy : job.strategies())
    for (const v1::StrategyMesh& mesh : strategy.meshes())
      if (mesh.layers_per_stage_size() > 0) return true;
  return false;
}

// Questions about flags, where they could be set otherwise.
std::vector<Question> Choices(const v1::JobSpec& job) {
  const v1::PlanningOptions& planning = job.planning();
  const auto options = [](auto set) {
    return [set](Request* request) { set(*request->job.mutable_planning()); };
  };
  std::vector<Question> questions;
  if (planning.policy() != v1::POLICY_DYNAMIC)
    questions.push_back({.condition = "policy dynamic",
                         .advice = "use --policy dynamic",
                         .change = options([](auto& p) { p.set_policy(v1::POLICY_DYNAMIC); })});
  if (FixesSchedule(planning))
    questions.push_back({.condition = "schedule auto",
                         .advice = "use --schedule auto",
                         .only_relaxes = true,
                         .change = options([](auto& p) { p.set_schedule(v1::SCHEDULE_AUTO); })});
  if (FixesRecompute(planning))
    questions.push_back({.condition = "recompute auto",
                         .advice = "use --recompute auto",
                         .only_relaxes = true,
                         .change = options([](auto& p) { p.set_recompute(v1::RECOMPUTE_AUTO); })});
  if (FixesStages(job))
    questions.push_back({.condition = "stage split auto",
                         .advice = "use --stage-split auto for the whole job",
                         .change = SplitStagesByCost});
  if (planning.effort() != v1::EFFORT_THOROUGH)
    questions.push_back({.condition = "effort thorough",
                         .advice = "use --effort thorough where planning is far ahead of training",
                         .only_relaxes = true,
                         .change = options([](auto& p) { p.set_effort(v1::EFFORT_THOROUGH); })});
  const bool has_holders = job.mesh().data() > 1 || ContextRanks(job.mesh()) > 1;
  if (has_holders && !planning.shard_optimizer_state() && !planning.parameter_shares())
    questions.push_back({.condition = ContextRanks(job.mesh()) > 1
                                          ? "optimizer state divided over replicas, context ranks"
                                          : "optimizer state divided over replicas",
                         .advice = "use --shard-optimizer-state, if the runtime divides it (ZeRO stage 1)",
                         .only_relaxes = true,
                         .change = options([](auto& p) { p.set_shard_optimizer_state(true); })});
  return questions;
}

// Questions about larger stage groups, where the model and the profile allow them.
std::vector<Question> LargerGroups(const v1::JobSpec& job) {
  // Of several meshes, which of them would have more ranks is the question of another proposal.
  if (!job.strategies().empty()) return {};
  const uint32_t tensor = 2 * TensorRanks(job.mesh()), context = 2 * ContextRanks(job.mesh());
  std::vector<Question> questions = {
      {.condition = "twice the tensor ranks, and GPUs",
       .advice = absl::StrCat("use --tp ", tensor),
       .ranks = 2,
       .change = [tensor](Request* request) { request->job.mutable_mesh()->set_tensor(tensor); }},
      {.condition = "twice the context ranks, and GPUs",
       .advice = absl::StrCat("use --cp ", context),
       .ranks = 2,
       .change = [context](Request* request) { request->job.mutable_mesh()->set_context(context); }}};
  std::erase_if(questions, [&](const Question& question) {
    Request request{.job = job, .batch = {}};
    question.change(&request);
    return !core::Planner::CheckJob(request.job).ok();
  });
  return questions;
}

// The makespan in nanoseconds, or an error.
absl::StatusOr<double> MakespanOf(const Request& request, const core::RunTasks& run_tasks) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<core::StrategyPlanner> planner,
                            core::StrategyPlanner::Create(request.job));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan, PlanAndCheck(*planner, request.batch, run_tasks));
  return static_cast<double>(plan.predicted().makespan_ns());
}

class Asker {
 public:
  Asker(const v1::JobSpec& job, const v1::PlannedBatch& planned, const core::RunTasks& run_tasks)
      : job_(job),
        planned_(planned),
        run_tasks_(run_tasks),
        makespan_ns_(static_cast<double>(planned.plan().predicted().makespan_ns())) {}

  absl::Status Ask(const Question& question) {
    Request request{.job = job_, .batch = planned_.batch()};
    question.change(&request);
    const absl::StatusOr<double> makespan = MakespanOf(request, run_tasks_);
    if (makespan.status().code() == absl::StatusCode::kInternal) return makespan.status();
    if (!makespan.ok()) {
      answers_.push_back({.condition = question.condition, .ranks = question.ranks});
      return absl::OkStatus();
    }
    double ns = *makespan / question.batches;
    if (question.only_relaxes) ns = std::min(ns, makespan_ns_);
    Add(question.condition, WhatIfKind::kPlan, ns, question.advice, question.ranks);
    return absl::OkStatus();
  }

  void Add(std::string condition, WhatIfKind kind, double ns, std::string advice, int ranks = 1) {
    answers_.push_back({.condition = std::move(condition),
                        .kind = kind,
                        .makespan_ms = ns / kNanosecondsPerMillisecond,
                        .gain = makespan_ns_ > 0 ? 1 - ns / makespan_ns_ : 0,
                        .ranks = ranks,
                        .advice = std::move(advice)});
  }

  std::vector<WhatIf> Sorted() && {
    std::stable_sort(answers_.begin(), answers_.end(), [](const WhatIf& a, const WhatIf& b) {
      return (a.makespan_ms > 0) != (b.makespan_ms > 0) ? a.makespan_ms > 0 : a.gain > b.gain;
    });
    return std::move(answers_);
  }

 private:
  const v1::JobSpec& job_;
  const v1::PlannedBatch& planned_;
  const core::RunTasks& run_tasks_;
  const double makespan_ns_;
  std::vector<WhatIf> answers_;
};

}  // namespace

absl::StatusOr<std::vector<WhatIf>> AskWhatIf(const v1::JobSpec& job, const v1::PlannedBatch& planned,
                                              const std::vector<TimeSplit>& ranks,
                                              const std::function<void(const std::string&)>& progress,
                                              const core::RunTasks& run_tasks) {
  Asker asker(job, planned, run_tasks);
  for (const std::vector<Question>& questions :
       {Conditions(job, planned.plan()), Choices(job), LargerGroups(job)}) {
    for (const Question& question : questions) {
      if (progress) progress(question.condition);
      PENSTOCK_RETURN_IF_ERROR(asker.Ask(question));
    }
  }
  const TimeSplit mean = MeanOf(ranks);
  if (ranks.size() > 1)
    asker.Add("all ranks equally busy after the fill", WhatIfKind::kEstimate, BusyNs(mean) + mean[kFill],
              planned.plan().meshes_size() > 1
                  ? "let penstock advise --strategies propose meshes for these lengths"
                  : "divide layers by cost (--stage-split auto), or use fewer stages or replicas");
  asker.Add("lower bound", WhatIfKind::kBound, static_cast<double>(planned.plan().lower_bound_ns()), "");
  return std::move(asker).Sorted();
}

const char* KindName(WhatIfKind kind) {
  switch (kind) {
    case WhatIfKind::kPlan:
      return "plan";
    case WhatIfKind::kEstimate:
      return "estimate";
    case WhatIfKind::kBound:
      return "bound";
  }
  return "";
}

}  // namespace penstock::cli
