#include "planner/cli/planning_flags.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "planner/cli/choice_flag.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

constexpr double kMib = 1 << 20;
// As the contract bounds it (job.proto, PlanningOptions.gradient_bucket_bytes).
constexpr double kMostBucketMib = 1 << 20;

const Names<v1::Policy>& PolicyNames() {
  static const auto& names = *new Names<v1::Policy>{{"padding", v1::POLICY_PADDING},
                                                    {"concatenated", v1::POLICY_CONCATENATED},
                                                    {"packed", v1::POLICY_PACKED},
                                                    {"token_budget", v1::POLICY_TOKEN_BUDGET},
                                                    {"dynamic", v1::POLICY_DYNAMIC}};
  return names;
}

const Names<v1::LayoutChoice>& LayoutNames() {
  static const auto& names = *new Names<v1::LayoutChoice>{{"padded", v1::LAYOUT_CHOICE_PADDED},
                                                          {"packed", v1::LAYOUT_CHOICE_PACKED},
                                                          {"auto", v1::LAYOUT_CHOICE_AUTO}};
  return names;
}

const Names<v1::Schedule>& ScheduleNames() {
  static const auto& names = *new Names<v1::Schedule>{{"auto", v1::SCHEDULE_AUTO},
                                                      {"1f1b", v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD},
                                                      {"ready-first", v1::SCHEDULE_READY_FIRST},
                                                      {"split-backward", v1::SCHEDULE_SPLIT_BACKWARD},
                                                      {"interleaved", v1::SCHEDULE_INTERLEAVED}};
  return names;
}

const Names<v1::StageSplit>& StageSplitNames() {
  static const auto& names =
      *new Names<v1::StageSplit>{{"auto", v1::STAGE_SPLIT_AUTO}, {"even", v1::STAGE_SPLIT_EVEN}};
  return names;
}

const Names<v1::Recompute>& RecomputeNames() {
  static const auto& names = *new Names<v1::Recompute>{{"auto", v1::RECOMPUTE_AUTO},
                                                       {"none", v1::RECOMPUTE_NONE},
                                                       {"selective", v1::RECOMPUTE_SELECTIVE},
                                                       {"full", v1::RECOMPUTE_FULL}};
  return names;
}

const Names<v1::Effort>& EffortNames() {
  static const auto& names = *new Names<v1::Effort>{
      {"fast", v1::EFFORT_FAST}, {"normal", v1::EFFORT_NORMAL}, {"thorough", v1::EFFORT_THOROUGH}};
  return names;
}

const Names<Cut>& CutNames() {
  static const auto& names = *new Names<Cut>{{"input-start", Cut::kInputStart},
                                             {"input-end", Cut::kInputEnd},
                                             {"target-end", Cut::kTargetEnd},
                                             {"drop", Cut::kDrop}};
  return names;
}

template <typename Enum>
std::string NameOf(const Names<Enum>& names, Enum wanted) {
  for (const auto& [name, value] : names)
    if (value == wanted) return name;
  return "unknown";
}

// Memory is a flag in millions of bytes, and bytes everywhere else: "--memory-mb 12345.678" for
// "--memory-mb 12345678000".
void ToMegabytes(std::string* text) {
  static const std::string& flag = *new std::string("--memory-mb ");
  for (size_t place = text->find(flag); place != std::string::npos; place = text->find(flag, place)) {
    place += flag.size();
    size_t end = place;
    while (end < text->size() && absl::ascii_isdigit((*text)[end])) ++end;
    int64_t bytes = 0;
    if (!absl::SimpleAtoi(text->substr(place, end - place), &bytes)) continue;
    std::string megabytes = absl::StrFormat("%d.%06d", bytes / 1'000'000, bytes % 1'000'000);
    megabytes.erase(megabytes.find_last_not_of('0') + 1);
    if (megabytes.back() == '.') megabytes.pop_back();
    text->replace(place, end - place, megabytes);
  }
}

}  // namespace

void PlanningFlags::AddTo(CLI::App& command) {
  AddChoice(command, "--layout", layout, LayoutNames(),
            "Layout of the dynamic policy's micro-batches (auto)");
  AddChoice(command, "--schedule", schedule, ScheduleNames(),
            absl::StrCat("Pipeline schedule; auto: the best one (", NameOf(ScheduleNames(), schedule), ")"));
  AddChoice(command, "--recompute", recompute, RecomputeNames(),
            "What is recomputed (auto: as little as memory asks for)");
  AddChoice(command, "--effort", effort, EffortNames(), "Work spent on a plan (normal)");
  command.add_option("--micro-batch-size", micro_batch_size,
                     "padding: samples a micro-batch; concatenated: rows (0: the best is searched)");
  command.add_option(
      "--token-cap", token_cap,
      "packed, token_budget: tokens a micro-batch; concatenated: tokens a row (0: the best is searched)");
  command
      .add_option("--layers-per-stage", layers_per_stage,
                  "Layers of each stage, e.g. 7,9,9,7 (as --stage-split says)")
      ->delimiter(',');
  AddChoice(command, "--stage-split", stage_split, StageSplitNames(),
            absl::StrCat("How layers are divided into stages; auto: by predicted time on these lengths (",
                         NameOf(StageSplitNames(), stage_split), ")"));
  command
      .add_option(
          "--rank-of-stage", rank_of_stage,
          "With --layers-per-stage: rank of each stage in the pipeline, e.g. 0,1,1,0 (one stage a rank)")
      ->delimiter(',');
  command
      .add_option("--memory-mb", memory_mb,
                  "Memory of one rank, millions of bytes (that of the profile; up and feed: what is safe of "
                  "it on a GPU, and up on CPUs what is free, divided by the workers)")
      ->check(CLI::NonNegativeNumber);
  rank_memory.AddTo(command);
  command.add_flag("--shard-optimizer-state", shard_optimizer_state,
                   "Divide optimizer state over replicas and context ranks (ZeRO stage 1)");
  command.add_flag("--parameter-shares", parameter_shares,
                   "Keep parameters and optimizer state in one share a rank, whatever the mesh, from which "
                   "each iteration brings them to its stages; with --strategies always");
  share_weights.AddTo(command);
  command
      .add_option("--most-parts", most_parts,
                  "With --ep: into how many parts a micro-batch is cut at most, so that rows of one travel "
                  "while another is computed; 1: it stays whole (4)")
      ->check(CLI::Range(1, 4));
  command
      .add_option("--gradient-bucket-mib", gradient_bucket_mib,
                  "Size from which gradients are summed between replicas while the last backward pass still "
                  "runs, 2^20 bytes (0: 4, and planned as if all were summed behind the pass)")
      ->check(CLI::Range(0.0, kMostBucketMib));
}

void AddCutFlag(CLI::App& command, Cut& cut) {
  AddChoice(command, "--cut", cut, CutNames(),
            absl::StrCat("What a sample that is too long loses first; drop: all of it (", CutName(cut), ")"));
}

std::string CutName(Cut cut) { return NameOf(CutNames(), cut); }

v1::PlanningOptions PlanningFlags::ToOptions(v1::Policy policy) const {
  v1::PlanningOptions options;
  options.set_policy(policy);
  options.set_layout(layout);
  options.set_schedule(schedule);
  options.set_recompute(recompute);
  options.set_effort(effort);
  options.set_micro_batch_size(micro_batch_size);
  options.set_token_cap(token_cap);
  options.mutable_layers_per_stage()->Add(layers_per_stage.begin(), layers_per_stage.end());
  options.set_stage_split(stage_split);
  options.mutable_rank_of_stage()->Add(rank_of_stage.begin(), rank_of_stage.end());
  options.set_memory_limit_bytes(BytesOfMegabytes(memory_mb));
  rank_memory.AddTo(&options);
  options.set_shard_optimizer_state(shard_optimizer_state);
  options.set_parameter_shares(parameter_shares);
  options.mutable_share_weights()->Add(share_weights.weights.begin(), share_weights.weights.end());
  options.set_most_parts(most_parts);
  options.set_gradient_bucket_bytes(static_cast<uint64_t>(std::ceil(gradient_bucket_mib * kMib)));
  return options;
}

void AddPolicyFlag(CLI::App& command, v1::Policy& policy) {
  AddChoice(command, "--policy", policy, PolicyNames(), "How a batch is cut into micro-batches (dynamic)");
}

void AddPoliciesFlag(CLI::App& command, std::vector<v1::Policy>& policies) {
  const auto append_name = [](std::string* text, v1::Policy policy) {
    absl::StrAppend(text, PolicyName(policy));
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--policies",
          [&policies](const std::vector<std::string>& names) {
            policies.clear();
            for (const std::string& name : names) policies.push_back(PolicyNames().at(name));
          },
          absl::StrCat("Policies, separated by commas (", absl::StrJoin(policies, ",", append_name), ")"))
      ->delimiter(',')
      ->check(CLI::IsMember(PolicyNames()));
}

std::string PolicyName(v1::Policy policy) { return NameOf(PolicyNames(), policy); }

std::string ScheduleName(v1::Schedule schedule) { return NameOf(ScheduleNames(), schedule); }

std::string StageSplitName(v1::StageSplit split) { return NameOf(StageSplitNames(), split); }

std::string RecomputeName(v1::Recompute recompute) {
  return recompute == v1::RECOMPUTE_UNSPECIFIED ? "auto" : NameOf(RecomputeNames(), recompute);
}

std::string LayoutName(v1::LayoutChoice layout) {
  return layout == v1::LAYOUT_CHOICE_UNSPECIFIED ? "auto" : NameOf(LayoutNames(), layout);
}

std::string EffortName(v1::Effort effort) {
  return effort == v1::EFFORT_UNSPECIFIED ? "normal" : NameOf(EffortNames(), effort);
}

double MibOfBucket(uint64_t bytes) { return static_cast<double>(bytes) / kMib; }

std::string GradientBucketMib(uint64_t bytes) { return absl::StrFormat("%.12g", MibOfBucket(bytes)); }

absl::Status NameFlags(const absl::Status& status) {
  if (status.ok()) return status;
  std::string text = absl::StrReplaceAll(status.message(),
                                         {{"job.job_id", "--job-id"},
                                          {"job.look_ahead_window", "--look-ahead"},
                                          {"job.training.learning_rate.peak", "--lr"},
                                          {"job.training.learning_rate.minimum", "--min-lr"},
                                          {"job.training.learning_rate.warmup_iterations", "--warmup"},
                                          {"job.training.beta1", "--beta1"},
                                          {"job.training.beta2", "--beta2"},
                                          {"job.training.epsilon", "--epsilon"},
                                          {"job.training.weight_decay", "--weight-decay"},
                                          {"job.training.clip_norm", "--clip-norm"},
                                          {"job.training.checkpoint_interval", "--checkpoint-every"},
                                          {"job.training.iterations", "--iterations"},
                                          {"job.mesh:", "--pp, --dp, --cp and --tp:"},
                                          {"job.mesh.pipeline", "--pp"},
                                          {"job.mesh.data", "--dp"},
                                          {"job.mesh.tensor", "--tp"},
                                          {"job.mesh.context", "--cp"},
                                          {"job.mesh.expert", "--ep"},
                                          {"job.planning.policy", "--policy"},
                                          {"job.planning.layout", "--layout"},
                                          {"job.planning.schedule", "--schedule"},
                                          {"job.planning.recompute", "--recompute"},
                                          {"job.planning.effort", "--effort"},
                                          {"job.planning.micro_batch_size", "--micro-batch-size"},
                                          {"job.planning.token_cap", "--token-cap"},
                                          {"job.planning.layers_per_stage", "--layers-per-stage"},
                                          {"job.planning.rank_of_stage", "--rank-of-stage"},
                                          {"job.planning.stage_split", "--stage-split"},
                                          {"job.planning.memory_limit_bytes", "--memory-mb"},
                                          {"job.planning.rank_memory_limits", "--rank-memory-mb"},
                                          {"job.planning.shard_optimizer_state", "--shard-optimizer-state"},
                                          {"job.planning.parameter_shares", "--parameter-shares"},
                                          {"job.planning.share_weights", "--share-weights"},
                                          {"job.planning.most_parts", "--most-parts"},
                                          {"job.planning.gradient_bucket_bytes", "--gradient-bucket-mib"},
                                          {"job.strategies", "--strategies"},
                                          {"a maximum length of", "--max-length"}});
  ToMegabytes(&text);
  return absl::Status(status.code(), text);
}

}  // namespace penstock::cli
