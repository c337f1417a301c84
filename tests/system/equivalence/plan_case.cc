#include "tests/system/equivalence/plan_case.h"

#include <google/protobuf/text_format.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/system/equivalence/covering_set.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kLayers = 8;

struct Model {
  const char* name;
  v1::Architecture architecture;
};
constexpr Model kModels[] = {{"Gpt", v1::ARCHITECTURE_GPT}};

struct Policy {
  const char* name;
  v1::Policy policy;
  v1::LayoutChoice layout;
  // Samples or tokens of a micro-batch; small enough for several of them on every mesh.
  uint32_t micro_batch_size;
  uint32_t token_cap;
};
constexpr Policy kPolicies[] = {
    {"Padding", v1::POLICY_PADDING, v1::LAYOUT_CHOICE_UNSPECIFIED, 2, 0},
    {"Packed", v1::POLICY_PACKED, v1::LAYOUT_CHOICE_UNSPECIFIED, 0, 30},
    {"TokenBudget", v1::POLICY_TOKEN_BUDGET, v1::LAYOUT_CHOICE_UNSPECIFIED, 0, 30},
    {"DynamicPadded", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_PADDED, 0, 0},
    {"DynamicPacked", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_PACKED, 0, 0},
};

struct Schedule {
  const char* name;
  v1::Schedule schedule;
};
constexpr Schedule kSchedules[] = {{"OneForwardOneBackward", v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD},
                                   {"ReadyFirst", v1::SCHEDULE_READY_FIRST},
                                   {"SplitBackward", v1::SCHEDULE_SPLIT_BACKWARD},
                                   {"Interleaved", v1::SCHEDULE_INTERLEAVED},
                                   {"Auto", v1::SCHEDULE_AUTO}};

// V: ranks 0, 1, .., 1, 0. Loop: 0, 1, .., 0, 1, ..
enum class Stages { kOneARank, kV, kLoop, kChosen };
struct StageLayout {
  const char* name;
  Stages stages;
};
constexpr StageLayout kStageLayouts[] = {{"OneStageARank", Stages::kOneARank},
                                         {"V", Stages::kV},
                                         {"Loop", Stages::kLoop},
                                         {"ChosenStages", Stages::kChosen}};

constexpr uint32_t kPipelines[] = {1, 2, 4};
constexpr uint32_t kReplicas[] = {1, 2};

struct Recompute {
  const char* name;
  v1::Recompute recompute;
};
constexpr Recompute kRecomputes[] = {{"None", v1::RECOMPUTE_NONE}, {"Full", v1::RECOMPUTE_FULL}};

constexpr Precision kPrecisions[] = {{"Float64", v1::DATA_TYPE_FLOAT64, 8, 1e-9},
                                     {"Float32", v1::DATA_TYPE_FLOAT32, 4, 1e-4}};

enum Factor : size_t { kModel, kPolicy, kSchedule, kStages, kPipeline, kData, kRecompute, kPrecision };

const std::vector<size_t> kValues = {std::size(kModels),       std::size(kPolicies),  std::size(kSchedules),
                                     std::size(kStageLayouts), std::size(kPipelines), std::size(kReplicas),
                                     std::size(kRecomputes),   std::size(kPrecisions)};

bool SaysSomethingNew(const Case& choice) {
  const Stages stages = kStageLayouts[choice[kStages]].stages;
  const v1::Schedule schedule = kSchedules[choice[kSchedule]].schedule;
  // On one rank a loop is a V.
  if (stages == Stages::kLoop && kPipelines[choice[kPipeline]] == 1) return false;
  // It is ready-first where no rank has several stages.
  return schedule != v1::SCHEDULE_INTERLEAVED || stages != Stages::kOneARank;
}

// Uneven, and with the end of T5's encoder (after layer 4) within a stage, and between two.
std::vector<uint32_t> LayersPerStage(size_t stages) {
  switch (stages) {
    case 1:
      return {8};
    case 2:
      return {5, 3};
    case 4:
      return {1, 3, 2, 2};
    default:
      return std::vector<uint32_t>(stages, 1);
  }
}

void PlaceStages(Stages stages, uint32_t pipeline, v1::PlanningOptions& options) {
  if (stages == Stages::kChosen) {
    options.set_stage_split(v1::STAGE_SPLIT_AUTO);
    return;
  }
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < pipeline; ++rank) ranks.push_back(rank);
  if (stages != Stages::kOneARank) {
    for (uint32_t i = 0; i < pipeline; ++i) ranks.push_back(stages == Stages::kV ? pipeline - 1 - i : i);
  }
  const std::vector<uint32_t> layers = LayersPerStage(ranks.size());
  options.mutable_layers_per_stage()->Assign(layers.begin(), layers.end());
  options.mutable_rank_of_stage()->Assign(ranks.begin(), ranks.end());
}

v1::JobSpec JobOf(const Case& choice) {
  const Policy& policy = kPolicies[choice[kPolicy]];
  const Precision& precision = kPrecisions[choice[kPrecision]];
  v1::JobSpec job = TinyJob();
  job.mutable_model()->set_layers(kLayers);
  // Not the hidden width.
  job.mutable_model()->set_attention_inner(24);
  job.mutable_model()->set_dtype(precision.dtype);
  job.mutable_profile()->set_bytes_per_element(precision.bytes);
  job.mutable_mesh()->set_pipeline(kPipelines[choice[kPipeline]]);
  job.mutable_mesh()->set_data(kReplicas[choice[kData]]);
  v1::PlanningOptions& options = *job.mutable_planning();
  options.set_policy(policy.policy);
  options.set_layout(policy.layout);
  options.set_micro_batch_size(policy.micro_batch_size);
  options.set_token_cap(policy.token_cap);
  options.set_schedule(kSchedules[choice[kSchedule]].schedule);
  options.set_recompute(kRecomputes[choice[kRecompute]].recompute);
  PlaceStages(kStageLayouts[choice[kStages]].stages, kPipelines[choice[kPipeline]], options);
  return job;
}

ReferenceModel ReferenceOf(const v1::ModelSpec& model) {
  return {.layers = model.layers(), .heads = model.heads()};
}

PlanCase MakeCase(const Case& choice) {
  const std::string model = kModels[choice[kModel]].name;
  const Precision& precision = kPrecisions[choice[kPrecision]];
  PlanCase result;
  result.name = absl::StrCat(model, kPolicies[choice[kPolicy]].name, kSchedules[choice[kSchedule]].name,
                             kStageLayouts[choice[kStages]].name, "Pipeline", kPipelines[choice[kPipeline]],
                             "Data", kReplicas[choice[kData]], "Recompute",
                             kRecomputes[choice[kRecompute]].name, precision.name);
  result.job = JobOf(choice);
  result.model = ReferenceOf(result.job.model());
  result.reference = absl::StrCat(model, precision.name);
  result.tolerance = precision.tolerance;
  return result;
}

}  // namespace

std::vector<PlanCase> PlanCases() {
  const char* wanted = std::getenv("PENSTOCK_EQUIVALENCE");
  const bool all = wanted != nullptr && absl::string_view(wanted) == "all";
  std::vector<PlanCase> cases;
  for (const Case& choice : all ? ShuffledProduct(kValues, SaysSomethingNew, kSeed)
                                : CoveringSet(kValues, SaysSomethingNew, kSeed)) {
    cases.push_back(MakeCase(choice));
  }
  return cases;
}

}  // namespace penstock::testing
