// Flags that say how iterations are planned; the same for every command that plans.
//
//   PlanningFlags flags;
//   flags.AddTo(*command);
//   ...
//   *job.mutable_planning() = flags.ToOptions();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/rank_memory_flag.h"
#include "planner/cli/sample_lengths.h"
#include "planner/cli/share_weights_flag.h"

namespace CLI {
class App;
}

namespace penstock::cli {

struct PlanningFlags {
  v1::LayoutChoice layout = v1::LAYOUT_CHOICE_AUTO;
  v1::Schedule schedule = v1::SCHEDULE_AUTO;
  v1::Recompute recompute = v1::RECOMPUTE_AUTO;
  v1::Effort effort = v1::EFFORT_NORMAL;
  uint32_t micro_batch_size = 0;
  uint32_t token_cap = 0;
  std::vector<uint32_t> layers_per_stage;
  std::vector<uint32_t> rank_of_stage;
  v1::StageSplit stage_split = v1::STAGE_SPLIT_AUTO;
  // Millions of bytes; 0: the memory that the profile names.
  double memory_mb = 0;
  RankMemoryFlag rank_memory;
  bool shard_optimizer_state = false;
  bool parameter_shares = false;
  ShareWeightsFlag share_weights;
  // 0: as many as pay.
  uint32_t most_parts = 0;
  // 2^20 bytes; 0: PlanningOptions.gradient_bucket_bytes is left out.
  double gradient_bucket_mib = 0;

  // --layout, --schedule, --recompute, --effort, --micro-batch-size, --token-cap, --layers-per-stage,
  // --rank-of-stage, --stage-split, --memory-mb, --rank-memory-mb, --shard-optimizer-state,
  // --parameter-shares, --share-weights, --most-parts, --gradient-bucket-mib. What is set now are the
  // defaults. This object must outlive the parse.
  void AddTo(CLI::App& command);

  v1::PlanningOptions ToOptions(v1::Policy policy) const;
};

// --policy, one value. `policy` must outlive the parse.
void AddPolicyFlag(CLI::App& command, v1::Policy& policy);
// --policies, separated by commas; what is set now is the default.
void AddPoliciesFlag(CLI::App& command, std::vector<v1::Policy>& policies);

// --cut, what of a sample is left out that is too long. `cut` must outlive the parse.
void AddCutFlag(CLI::App& command, Cut& cut);
// "input-end", the word that --cut takes.
std::string CutName(Cut cut);

// "dynamic" for POLICY_DYNAMIC: the word that --policy takes.
std::string PolicyName(v1::Policy policy);
// "1f1b", the word that --schedule takes; "even", the word that --stage-split takes.
std::string ScheduleName(v1::Schedule schedule);
std::string StageSplitName(v1::StageSplit split);
// "selective", "packed" and "normal": the words that --recompute, --layout and --effort take. What is not
// specified has the name of its default.
std::string RecomputeName(v1::Recompute recompute);
std::string LayoutName(v1::LayoutChoice layout);
std::string EffortName(v1::Effort effort);

// What --gradient-bucket-mib takes for so many bytes; and as it is written.
double MibOfBucket(uint64_t bytes);
std::string GradientBucketMib(uint64_t bytes);

// The planner's errors name fields of the job; this says the flags that set them: "--pp" for
// "job.mesh.pipeline". Bytes of memory become millions of bytes, as --memory-mb takes them.
absl::Status NameFlags(const absl::Status& status);

}  // namespace penstock::cli
