#include "tests/system/equivalence/plan_case.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/mesh/mesh_ranks.h"
#include "tests/system/equivalence/covering_set.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kLayers = 8;
// Tokens of a sample.
constexpr uint32_t kLongest = 40;

// T5 halves them.
struct Model {
  const char* name;
  v1::Architecture architecture;
  v1::FeedForward feed_forward;
  // T5; 0: the defaults.
  uint32_t buckets;
  uint32_t distance;
  // RMS norm, rotary positions, grouped queries, no biases.
  bool llama = false;
  // The embedding is the head, and of a T5 the only one.
  bool tied = false;
  // Experts, and norms of queries and keys.
  bool experts = false;
  // Ranks of a stage group divide them, as many as can.
  bool divided_experts = false;
  // One that all tokens share, norms over all heads in place of each, clipped heads, and losses of routers.
  bool shared_expert = false;
  // Some layers have no experts, and a width of their own.
  bool dense_layers = false;
};
constexpr Model kModels[] = {
    {"Gpt", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_UNSPECIFIED, 0, 0},
    // So few buckets that most distances of these samples share one.
    {"T5", v1::ARCHITECTURE_T5, v1::FEED_FORWARD_UNSPECIFIED, 8, 20},
    {"Llama", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_GATED_SILU, 0, 0, /*llama=*/true},
    {"DividedExperts", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_GATED_SILU, 0, 0, /*llama=*/true,
     /*tied=*/false, /*experts=*/true, /*divided_experts=*/true},
    {"SharedExpert", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_GATED_SILU, 0, 0, /*llama=*/true, /*tied=*/false,
     /*experts=*/true, /*divided_experts=*/false, /*shared_expert=*/true},
    {"SharedBesideDivided", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_GATED_SILU, 0, 0, /*llama=*/true,
     /*tied=*/false, /*experts=*/true, /*divided_experts=*/true, /*shared_expert=*/true},
    {"SomeDividedExperts", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_GATED_SILU, 0, 0, /*llama=*/true,
     /*tied=*/false, /*experts=*/true, /*divided_experts=*/true, /*shared_expert=*/false,
     /*dense_layers=*/true},
    {"GptGatedTied", v1::ARCHITECTURE_GPT, v1::FEED_FORWARD_GATED_GELU, 0, 0, /*llama=*/false, /*tied=*/true},
    {"T5GatedTied", v1::ARCHITECTURE_T5, v1::FEED_FORWARD_GATED_GELU, 0, 0, /*llama=*/false, /*tied=*/true},
};

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
    {"Packed", v1::POLICY_PACKED, v1::LAYOUT_CHOICE_UNSPECIFIED, 0, kLongest},
    {"TokenBudget", v1::POLICY_TOKEN_BUDGET, v1::LAYOUT_CHOICE_UNSPECIFIED, 0, kLongest},
    {"DynamicPadded", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_PADDED, 0, 0},
    {"DynamicPacked", v1::POLICY_DYNAMIC, v1::LAYOUT_CHOICE_PACKED, 0, 0},
    {"Concatenated", v1::POLICY_CONCATENATED, v1::LAYOUT_CHOICE_UNSPECIFIED, 1, kLongest},
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
constexpr uint32_t kTensorRanks[] = {1, 2, 4};
constexpr uint32_t kContextRanks[] = {1, 2, 4};
// Of a case of a covering set of pairs, and of any other.
constexpr uint32_t kMostRanksOfPairs = 4;
constexpr uint32_t kMostRanks = 8;
constexpr uint32_t kExperts = 4;

struct Recompute {
  const char* name;
  v1::Recompute recompute;
};
constexpr Recompute kRecomputes[] = {{"None", v1::RECOMPUTE_NONE},
                                     {"Selective", v1::RECOMPUTE_SELECTIVE},
                                     {"Full", v1::RECOMPUTE_FULL},
                                     {"Auto", v1::RECOMPUTE_AUTO}};

constexpr Precision kPrecisions[] = {{"Float64", v1::DATA_TYPE_FLOAT64, 8, 1e-9},
                                     {"Float32", v1::DATA_TYPE_FLOAT32, 4, 1e-4}};

// Where the optimizer's state is: with each replica, divided over replicas, or in shares of all ranks.
enum class State : uint8_t { kWhole, kSharded, kShares };
struct StatePlace {
  const char* name;
  State state;
};
constexpr StatePlace kShardings[] = {
    {"", State::kWhole}, {"Sharded", State::kSharded}, {"Shares", State::kShares}};

// Of tokens in the loss; with them goes that samples have tasks.
constexpr const char* kWeightings[] = {"", "Weighted"};
// Of samples with tasks, by turns.
constexpr const char* kTasks[] = {"one", "two", "three"};

enum Factor : size_t {
  kModel,
  kPolicy,
  kSchedule,
  kStages,
  kPipeline,
  kData,
  kRecompute,
  kPrecision,
  kSharding,
  kTensor,
  kContext,
  kWeighting
};

const std::vector<size_t> kValues = {
    std::size(kModels),    std::size(kPolicies),    std::size(kSchedules),    std::size(kStageLayouts),
    std::size(kPipelines), std::size(kReplicas),    std::size(kRecomputes),   std::size(kPrecisions),
    std::size(kShardings), std::size(kTensorRanks), std::size(kContextRanks), std::size(kWeightings)};

v1::Mesh MeshOf(const Case& choice) {
  const uint32_t tensor = kTensorRanks[choice[kTensor]];
  const uint32_t context = kContextRanks[choice[kContext]];
  const uint32_t expert = kModels[choice[kModel]].divided_experts ? std::min(kExperts, tensor * context) : 1;
  return MakeMesh(kPipelines[choice[kPipeline]], kReplicas[choice[kData]], tensor, context, expert);
}

bool SaysSomethingNew(const Case& choice) {
  static const uint32_t most_ranks = WantedCoverage() == Coverage::kPairs ? kMostRanksOfPairs : kMostRanks;
  const Stages stages = kStageLayouts[choice[kStages]].stages;
  const v1::Schedule schedule = kSchedules[choice[kSchedule]].schedule;
  const uint32_t pipeline = kPipelines[choice[kPipeline]];
  const uint32_t copies = kReplicas[choice[kData]] * kContextRanks[choice[kContext]];
  if (pipeline * copies * kTensorRanks[choice[kTensor]] > most_ranks) return false;
  const bool t5 = kModels[choice[kModel]].architecture == v1::ARCHITECTURE_T5;
  if (t5 && kContextRanks[choice[kContext]] > 1) return false;
  if (kModels[choice[kModel]].divided_experts && GroupRanks(MeshOf(choice)) == 1) return false;
  // One rank has nothing to divide.
  if (kShardings[choice[kSharding]].state == State::kSharded && copies == 1) return false;
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

// Costs of an encoder and a decoder layer in place of those of a GPT's layer.
void SetEncoderDecoderCosts(v1::CostProfile& profile) {
  v1::LayerCost encoder = profile.layers(0);
  encoder.set_name("encoder");
  v1::LayerTime& time = *encoder.mutable_forward();
  time.set_source_token_ns(time.target_token_ns());
  time.set_source_square_ns(time.target_square_ns());
  time.clear_target_token_ns();
  time.clear_target_square_ns();
  for (v1::LayerBytes* bytes : {encoder.mutable_stored_none(), encoder.mutable_stored_selective(),
                                encoder.mutable_stored_full(), encoder.mutable_peak()}) {
    bytes->set_source_token_bytes(bytes->target_token_bytes());
    bytes->clear_target_token_bytes();
  }
  v1::LayerCost decoder = profile.layers(0);
  decoder.set_name("decoder");
  decoder.mutable_forward()->set_cross_ns(decoder.forward().target_square_ns());
  decoder.mutable_stored_none()->set_source_token_bytes(400);
  decoder.mutable_stored_selective()->set_source_token_bytes(100);
  const v1::LayerCost head = profile.layers(1);
  profile.clear_layers();
  *profile.add_layers() = encoder;
  *profile.add_layers() = decoder;
  *profile.add_layers() = head;
}

void SetLlamaParts(v1::ModelSpec& spec) {
  spec.set_norm(v1::NORM_RMS);
  spec.set_position(v1::POSITION_ROTARY);
  spec.mutable_rotary()->set_theta(50);
  spec.mutable_rotary()->set_scaling(v1::ROTARY_SCALING_LINEAR);
  spec.mutable_rotary()->set_factor(2);
  // Fewer than tensor ranks.
  spec.set_key_value_heads(2);
  spec.set_attention_biases(v1::BIASES_NONE);
  spec.set_feed_forward_biases(v1::BIASES_NONE);
}

// So slow that products for weights find time while rows travel.
void SetSlowExchanges(v1::Cluster& cluster) {
  cluster.set_exchange_overlap(1);
  cluster.set_intra_node_collective_bytes_per_second(3e8);
  cluster.set_inter_node_collective_bytes_per_second(3e8);
}

// First, between, and behind layers with experts; stages of one layer and of several have none or some.
void SetDenseLayers(v1::JobSpec& job) {
  v1::ModelSpec& spec = *job.mutable_model();
  for (const uint32_t layer : {1, 2, 4, 7}) spec.add_dense_layers(layer);
  spec.set_dense_ffn(20);
  spec.set_router_balance_loss(0.3);
  v1::CostProfile& profile = *job.mutable_profile();
  v1::LayerCost dense = profile.layers(0);
  dense.set_name("dense");
  dense.mutable_forward()->set_target_token_ns(dense.forward().target_token_ns() / 2);
  *profile.add_layers() = dense;
}

void SetModel(const Model& model, v1::JobSpec& job) {
  v1::ModelSpec& spec = *job.mutable_model();
  spec.set_architecture(model.architecture);
  spec.set_feed_forward(model.feed_forward);
  spec.set_heads(4);
  // Not the hidden width.
  spec.set_attention_inner(24);
  spec.set_layers(kLayers);
  spec.set_max_sequence_length(kLongest);
  spec.set_tied_head(model.tied);
  if (model.llama) SetLlamaParts(spec);
  if (model.experts) {
    spec.set_head_norms(true);
    spec.set_experts(kExperts);
    spec.set_experts_per_token(2);
    spec.set_normalised_experts(true);
  }
  if (model.shared_expert) {
    spec.set_head_norms(false);
    spec.set_joint_head_norms(true);
    spec.set_query_key_value_clip(0.8);
    spec.set_normalised_experts(false);
    spec.set_shared_expert_ffn(12);
    spec.set_gated_shared_expert(true);
    spec.set_router_balance_loss(0.3);
    spec.set_router_z_loss(0.2);
    spec.set_expert_capacity_factor(0.9);
  }
  if (model.dense_layers) SetDenseLayers(job);
  if (model.divided_experts) SetSlowExchanges(*job.mutable_profile()->mutable_cluster());
  if (model.architecture != v1::ARCHITECTURE_T5) return;
  spec.set_layers(0);
  spec.set_tied_embeddings(model.tied);
  spec.set_encoder_layers(kLayers / 2);
  spec.set_decoder_layers(kLayers / 2);
  spec.set_decoder_start_token(3);
  spec.set_relative_position_buckets(model.buckets);
  spec.set_relative_position_max_distance(model.distance);
  SetEncoderDecoderCosts(*job.mutable_profile());
}

// What a tensor rank takes of each layer's time.
void SetTensorCosts(v1::CostProfile& profile) {
  for (v1::LayerCost& layer : *profile.mutable_layers()) {
    for (const uint32_t degree : {2, 4}) {
      v1::TensorCost& cost = *layer.add_tensor();
      cost.set_degree(degree);
      cost.set_efficiency(0.9);
    }
  }
}

v1::JobSpec JobOf(const Case& choice) {
  const Policy& policy = kPolicies[choice[kPolicy]];
  const Precision& precision = kPrecisions[choice[kPrecision]];
  v1::JobSpec job = TinyJob();
  SetModel(kModels[choice[kModel]], job);
  job.mutable_model()->set_dtype(precision.dtype);
  job.mutable_profile()->set_bytes_per_element(precision.bytes);
  *job.mutable_mesh() = MeshOf(choice);
  if (kTensorRanks[choice[kTensor]] > 1) SetTensorCosts(*job.mutable_profile());
  v1::PlanningOptions& options = *job.mutable_planning();
  options.set_policy(policy.policy);
  options.set_layout(policy.layout);
  options.set_micro_batch_size(policy.micro_batch_size);
  options.set_token_cap(policy.token_cap);
  options.set_schedule(kSchedules[choice[kSchedule]].schedule);
  options.set_recompute(kRecomputes[choice[kRecompute]].recompute);
  options.set_shard_optimizer_state(kShardings[choice[kSharding]].state == State::kSharded);
  options.set_parameter_shares(kShardings[choice[kSharding]].state == State::kShares);
  PlaceStages(kStageLayouts[choice[kStages]].stages, kPipelines[choice[kPipeline]], options);
  if (choice[kWeighting] > 0)
    for (const char* task : kTasks) job.add_tasks(task);
  return job;
}

ReferenceModel ReferenceOf(const v1::ModelSpec& model) {
  const bool t5 = model.architecture() == v1::ARCHITECTURE_T5;
  ReferenceModel reference = {
      .encoder_decoder = t5,
      .layers = model.layers(),
      .encoder_layers = model.encoder_layers(),
      .decoder_layers = model.decoder_layers(),
      .decoder_start_token = model.decoder_start_token(),
      .relative_position_buckets = model.relative_position_buckets(),
      .relative_position_max_distance = model.relative_position_max_distance(),
      .heads = model.heads(),
      .rms_norm = t5 || model.norm() == v1::NORM_RMS,
      .key_value_heads = model.key_value_heads() > 0 ? model.key_value_heads() : model.heads(),
      .head_norms = model.head_norms(),
      .joint_head_norms = model.joint_head_norms(),
      .query_key_value_clip = model.query_key_value_clip(),
      .experts = model.experts(),
      .experts_per_token = model.experts_per_token(),
      .normalised_experts = model.normalised_experts(),
      .shared_expert_ffn = model.shared_expert_ffn(),
      .router_balance_loss = model.router_balance_loss(),
      .router_z_loss = model.router_z_loss(),
      .expert_capacity_factor = model.expert_capacity_factor(),
      .rotary_theta = model.rotary().theta(),
      .rotary_factor = std::max(1.0, model.rotary().factor()),
      .tied_head = model.tied_head(),
      .tied_embeddings = model.tied_embeddings()};
  reference.dense_layers.assign(model.dense_layers().begin(), model.dense_layers().end());
  if (reference.relative_position_buckets == 0) reference.relative_position_buckets = 32;
  if (reference.relative_position_max_distance == 0) reference.relative_position_max_distance = 128;
  using FeedForward = ReferenceModel::FeedForward;
  reference.feed_forward = t5 ? FeedForward::kRelu : FeedForward::kGelu;
  if (model.feed_forward() == v1::FEED_FORWARD_GATED_GELU) reference.feed_forward = FeedForward::kGatedGelu;
  if (model.feed_forward() == v1::FEED_FORWARD_GATED_SILU) reference.feed_forward = FeedForward::kGatedSilu;
  return reference;
}

PlanCase MakeCase(const Case& choice) {
  const std::string model = kModels[choice[kModel]].name;
  const Precision& precision = kPrecisions[choice[kPrecision]];
  PlanCase result;
  result.name =
      absl::StrCat(model, kPolicies[choice[kPolicy]].name, kSchedules[choice[kSchedule]].name,
                   kStageLayouts[choice[kStages]].name, "Pipeline", kPipelines[choice[kPipeline]], "Data",
                   kReplicas[choice[kData]], "Tensor", kTensorRanks[choice[kTensor]], "Context",
                   kContextRanks[choice[kContext]], "Recompute", kRecomputes[choice[kRecompute]].name,
                   precision.name, kShardings[choice[kSharding]].name, kWeightings[choice[kWeighting]]);
  result.job = JobOf(choice);
  result.model = ReferenceOf(result.job.model());
  result.weighted = choice[kWeighting] > 0;
  result.reference = absl::StrCat(model, precision.name);
  result.tolerance = precision.tolerance;
  return result;
}

std::vector<PlanCase> MakeCases(const std::vector<Case>& choices) {
  std::vector<PlanCase> cases;
  for (const Case& choice : choices) cases.push_back(MakeCase(choice));
  return cases;
}

}  // namespace

std::vector<PlanCase> RandomPlanCases(size_t count, uint64_t seed) {
  std::vector<Case> choices = ShuffledProduct(kValues, SaysSomethingNew, seed);
  choices.resize(std::min(count, choices.size()));
  return MakeCases(choices);
}

std::vector<PlanCase> RandomStageGroupCases(size_t count, uint64_t seed) {
  const auto in_groups = [](const Case& choice) {
    const Model& model = kModels[choice[kModel]];
    const bool known = model.architecture == v1::ARCHITECTURE_GPT && !model.experts && !model.shared_expert &&
                       kShardings[choice[kSharding]].state != State::kShares;
    return known && kTensorRanks[choice[kTensor]] * kContextRanks[choice[kContext]] > 1 &&
           SaysSomethingNew(choice);
  };
  std::vector<Case> choices = ShuffledProduct(kValues, in_groups, seed);
  choices.resize(std::min(count, choices.size()));
  return MakeCases(choices);
}

namespace {

// TOKEN_BUDGET fills packed micro-batches, which workers run as they run those of PACKED.
bool IsOfItsOwnForWorkers(const Case& choice) {
  return kPolicies[choice[kPolicy]].policy != v1::POLICY_TOKEN_BUDGET && SaysSomethingNew(choice);
}

// What tells parts apart: layouts, and whether products for weights are put aside. Other policies and
// schedules group and order the same passes.
bool IsOfItsOwnForParts(const Case& choice) {
  const v1::Policy policy = kPolicies[choice[kPolicy]].policy;
  const v1::Schedule schedule = kSchedules[choice[kSchedule]].schedule;
  return policy != v1::POLICY_DYNAMIC && policy != v1::POLICY_TOKEN_BUDGET &&
         (schedule == v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD || schedule == v1::SCHEDULE_SPLIT_BACKWARD) &&
         kPrecisions[choice[kPrecision]].dtype == v1::DATA_TYPE_FLOAT64;
}

// GPT, T5 and Llama, pipelines of 1 and 2, float64, with each replica's state whole or divided.
bool IsOfTheProduct(const Case& choice) {
  const Model& model = kModels[choice[kModel]];
  return !model.experts && !model.tied && kPipelines[choice[kPipeline]] <= 2 &&
         kPrecisions[choice[kPrecision]].dtype == v1::DATA_TYPE_FLOAT64 &&
         kShardings[choice[kSharding]].state != State::kShares && SaysSomethingNew(choice);
}

}  // namespace

std::vector<PlanCase> PlanCasesForParts(Coverage coverage) {
  std::vector<size_t> models;
  for (size_t model = 0; model < std::size(kModels); ++model)
    if (kModels[model].divided_experts) models.push_back(model);
  std::vector<size_t> values = kValues;
  values[kModel] = models.size();
  const auto whole = [&](Case choice) {
    choice[kModel] = models[choice[kModel]];
    return choice;
  };
  const auto possible = [&](const Case& choice) {
    const Case full = whole(choice);
    const bool few = coverage == Coverage::kPairs || coverage == Coverage::kProduct;
    return SaysSomethingNew(full) && (!few || IsOfItsOwnForParts(full));
  };
  std::vector<PlanCase> cases;
  for (const Case& choice : CoveringSet(values, possible, kSeed)) cases.push_back(MakeCase(whole(choice)));
  return cases;
}

Coverage WantedCoverage() {
  const char* variable = std::getenv("PENSTOCK_EQUIVALENCE");
  const absl::string_view wanted = variable != nullptr ? variable : "";
  if (wanted == "all") return Coverage::kAll;
  if (wanted == "product") return Coverage::kProduct;
  return wanted == "triples" ? Coverage::kTriples : Coverage::kPairs;
}

std::vector<PlanCase> PlanCases(Coverage coverage) {
  if (coverage == Coverage::kAll) return MakeCases(ShuffledProduct(kValues, SaysSomethingNew, kSeed));
  if (coverage == Coverage::kProduct) {
    const std::vector<size_t> factors = {kModel,  kSchedule, kPipeline,  kData,
                                         kTensor, kContext,  kRecompute, kSharding};
    return MakeCases(ProductOf(factors, kValues, IsOfTheProduct, kSeed));
  }
  if (coverage == Coverage::kTriples) return MakeCases(CoveringSet(kValues, SaysSomethingNew, kSeed, 3));
  return MakeCases(CoveringSet(kValues, IsOfItsOwnForWorkers, kSeed));
}

}  // namespace penstock::testing
