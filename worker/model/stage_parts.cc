#include "worker/model/stage_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Takes the parameters in the order of StageParameterSpecs, and those of adapters in that of AdapterSpecs.
class PartMaker {
 public:
  PartMaker(const ModelConfig& config, const StageRange& range, const PartParameters& parameters,
            at::Device device, StageGroup& group)
      : config_(config),
        range_(range),
        parameters_(parameters.model),
        device_(device),
        group_(group),
        architecture_(ArchitectureOf(config)),
        next_(parameters_.begin()),
        next_adapter_(parameters.adapters.begin()) {}

  StageParts Make() {
    StageParts parts;
    const std::vector<LayerStack>& stacks = architecture_.stacks;
    if (stacks.size() > 1) parts.source = Stack(stacks.front(), EmbedsSource(config_, range_));
    parts.target = Stack(stacks.back(), EmbedsTarget(config_, range_));
    if (range_.last) {
      parts.final_norm = Norm();
      parts.head = Head();
      parts.vocabulary = MakeVocabularyPart(config_.vocab, group_);
      parts.head_scale = architecture_.head_scale;
      parts.logit_cap = config_.logit_cap;
    }
    return parts;
  }

 private:
  Parameter Take() {
    const NamedParameter& parameter = *next_++;
    taken_.insert(parameter.name);
    return {parameter.value, parameter.gradient};
  }

  // Of what is taken next and the stage alone holds: what stages share lies elsewhere. Adapters lie in
  // buffers of their own.
  int64_t NextOffset() const {
    const auto next = std::find_if(next_, parameters_.end(), [](const auto& other) { return !other.shared; });
    if (config_.adapters.any() || next == parameters_.end()) return std::numeric_limits<int64_t>::max();
    return next->offset;
  }

  NormPart Norm() {
    NormPart part = {.kind = architecture_.norm,
                     .epsilon = architecture_.norm_epsilon,
                     .offset = config_.offset_norms,
                     .weight = Take(),
                     .bias = {}};
    if (part.kind == NormKind::kLayer) part.bias = Take();
    return part;
  }

  std::optional<NormPart> NormBefore() {
    return architecture_.norm_before ? std::optional(Norm()) : std::nullopt;
  }
  std::optional<NormPart> NormAfter() {
    return architecture_.norm_after ? std::optional(Norm()) : std::nullopt;
  }

  // Of queries or keys: an RMS norm, whatever the model's are.
  NormPart HeadNorm() {
    return {.kind = NormKind::kRms,
            .epsilon = architecture_.norm_epsilon,
            .offset = config_.offset_norms,
            .weight = Take(),
            .bias = {}};
  }

  JointHeadNormsPart JointHeadNorms() {
    const int64_t tensors = group_.place().tensors;
    JointHeadNormsPart part;
    part.query = {.norm = HeadNorm(), .elements = AttentionInner(config_)};
    part.key = {.norm = HeadNorm(),
                .elements = KeyValueInner(config_),
                .holders = std::max<int64_t>(1, tensors / KeyValueHeads(config_))};
    part.group = &group_;
    return part;
  }

  LinearPart Linear(bool bias) {
    LinearPart part = {.weight = Take(), .bias = {}};
    if (bias) part.bias = Take();
    return part;
  }

  // Where the model has one there; at the output `first`.
  void TakeAdapter(LinearLayer layer, int64_t first, LinearPart& part) {
    if (!config_.adapters.Has(layer)) return;
    const NamedParameter& a = *next_adapter_++;
    const NamedParameter& b = *next_adapter_++;
    part.adapters.push_back({.a = {a.value, a.gradient},
                             .b = {b.value, b.gradient},
                             .first_output = first,
                             .scale = config_.adapters.scale});
  }

  // Behind all parts of a layer, in whose order its adapters are.
  void TakeAdapters(LayerPart& layer) {
    SelfAttentionPart& attention = layer.attention;
    const int64_t queries = attention.options.heads * HeadWidth(config_);
    const int64_t keys = attention.options.key_value_heads * HeadWidth(config_);
    TakeAdapter(LinearLayer::kQuery, 0, attention.query_key_value);
    TakeAdapter(LinearLayer::kKey, queries, attention.query_key_value);
    TakeAdapter(LinearLayer::kValue, queries + keys, attention.query_key_value);
    TakeAdapter(LinearLayer::kOutput, 0, attention.output);
    if (layer.cross.has_value()) {
      TakeAdapter(LinearLayer::kQuery, 0, layer.cross->query);
      TakeAdapter(LinearLayer::kKey, 0, layer.cross->key_value);
      TakeAdapter(LinearLayer::kValue, keys, layer.cross->key_value);
      TakeAdapter(LinearLayer::kOutput, 0, layer.cross->output);
    }
    FeedForwardPart& feed_forward = layer.feed_forward.part;
    TakeAdapter(LinearLayer::kUp, 0, feed_forward.up);
    TakeAdapter(LinearLayer::kGate, 0, feed_forward.gate);
    TakeAdapter(LinearLayer::kDown, 0, feed_forward.down);
  }

  LinearPart Inwards() { return Linear(architecture_.query_key_value_bias); }
  LinearPart Outwards() { return Linear(architecture_.attention_output_bias); }
  LinearPart OfFeedForward() { return Linear(architecture_.feed_forward_bias); }

  // A table that is there already, of an embedding that this one is tied to, or the next parameter.
  Parameter Table(const std::string& name) {
    for (const NamedParameter& parameter : parameters_) {
      if (parameter.name == name && taken_.contains(name)) return {parameter.value, parameter.gradient};
    }
    return Take();
  }

  Parameter Head() { return config_.tied_head ? Table(TokenTableOf(architecture_.stacks.back())) : Take(); }

  EmbeddingPart Embedding(const LayerStack& stack) {
    EmbeddingPart part = {.token = Table(TokenTableOf(stack)),
                          .vocabulary = MakeVocabularyPart(config_.vocab, group_),
                          .position = {},
                          .scale = config_.multipliers.embedding};
    if (architecture_.position == Position::kLearned) part.position = Take();
    return part;
  }

  double ScoreScale() const {
    if (config_.multipliers.attention > 0) return config_.multipliers.attention;
    return architecture_.scaled_scores ? 1 / std::sqrt(static_cast<double>(HeadWidth(config_))) : 1.0;
  }

  AttentionOptions Attention(bool causal, int64_t window, const RelativeBias* bias) const {
    const int tensors = group_.place().tensors;
    return {.heads = config_.heads / tensors,
            .key_value_heads = std::max<int64_t>(1, KeyValueHeads(config_) / tensors),
            .causal = causal,
            .window = window,
            .scale = ScoreScale(),
            .score_cap = config_.score_cap,
            .bias = bias,
            .group = &group_};
  }

  // May be null.
  const RotaryTable* RotaryOf(int64_t number, const StackPart& tables) const {
    if (!HasPositions(config_, number)) return nullptr;
    const bool other = tables.window_rotary != nullptr && WindowOf(config_, number) > 0;
    return other ? tables.window_rotary.get() : tables.rotary.get();
  }

  // `number`: in its stack, from 0.
  LayerPart Layer(const LayerStack& stack, int64_t number, const StackPart& tables) {
    LayerPart part;
    part.residual_scale = config_.multipliers.residual;
    // Braces evaluate in order, which is that of StageParameterSpecs.
    part.attention.norms.before = NormBefore();
    part.attention.query_key_value = Inwards();
    if (config_.head_norms) part.attention.head_norms = HeadNormsPart{HeadNorm(), HeadNorm()};
    if (config_.joint_head_norms) part.attention.joint_head_norms = JointHeadNorms();
    part.attention.output = Outwards();
    part.attention.norms.after = NormAfter();
    part.attention.options = Attention(stack.causal, WindowOf(config_, number), tables.bias.get());
    part.attention.rotary = RotaryOf(number, tables);
    part.attention.clip = config_.query_key_value_clip;
    if (stack.cross) {
      part.cross = CrossAttentionPart{Norm(), Inwards(), Inwards(), Outwards(),
                                      Attention(/*causal=*/false, /*window=*/0, nullptr)};
    }
    part.feed_forward.norms.before = NormBefore();
    if (HasExperts(config_, number)) {
      part.feed_forward.experts = Experts();
    } else {
      part.feed_forward.part = FeedForward();
    }
    part.feed_forward.norms.after = NormAfter();
    TakeAdapters(part);
    return part;
  }

  // Without its layers.
  FeedForwardPart EmptyFeedForward() const {
    return {.activation = architecture_.activation,
            .gated = architecture_.gated,
            .up = {},
            .gate = {},
            .down = {}};
  }

  FeedForwardPart FeedForward() {
    FeedForwardPart part = EmptyFeedForward();
    part.up = OfFeedForward();
    if (part.gated) part.gate = OfFeedForward();
    part.down = OfFeedForward();
    return part;
  }

  // All experts' layers of one kind follow each other.
  ExpertsPart Experts() {
    ExpertsPart part = {
        .router = Linear(/*bias=*/false),
        .experts = std::vector<FeedForwardPart>(static_cast<size_t>(config_.experts / group_.place().experts),
                                                EmptyFeedForward()),
        .count = config_.experts,
        .per_token = config_.experts_per_token,
        .normalised = config_.normalised_experts,
        .losses = {.balance = config_.router_balance_loss, .z = config_.router_z_loss},
        .load = std::make_shared<ExpertLoad>(),
        .loss_sums = std::make_shared<RouterLossSums>()};
    for (FeedForwardPart& expert : part.experts) expert.up = Linear(/*bias=*/false);
    if (architecture_.gated) {
      for (FeedForwardPart& expert : part.experts) expert.gate = Linear(/*bias=*/false);
    }
    for (FeedForwardPart& expert : part.experts) expert.down = Linear(/*bias=*/false);
    if (config_.shared_expert_ffn > 0) part.shared = SharedExpert();
    return part;
  }

  SharedExpertPart SharedExpert() {
    SharedExpertPart part = {.part = FeedForward(), .gate = {}};
    if (config_.gated_shared_expert) part.gate = Linear(/*bias=*/false);
    return part;
  }

  std::unique_ptr<RotaryTable> Rotary(const RotaryConfig& rotary) const {
    return std::make_unique<RotaryTable>(MakeRotaryTable(
        rotary, HeadWidth(config_), config_.max_sequence_length, ToScalarType(config_.dtype), device_));
  }

  void AddRotaryTables(StackPart& part) const {
    part.rotary = Rotary(config_.rotary);
    if (config_.window_rotary_theta == 0) return;
    part.window_rotary = Rotary({.theta = config_.window_rotary_theta, .width = config_.rotary.width});
  }

  StackPart Stack(const LayerStack& stack, bool embeds) {
    StackPart part;
    if (embeds) part.embedding = Embedding(stack);
    const int64_t begin = std::max(range_.first_layer, stack.first_layer);
    const int64_t end = std::min(range_.first_layer + range_.layers, stack.first_layer + stack.layers);
    if (begin >= end) return part;
    if (architecture_.position == Position::kRelativeBias) {
      part.bias = std::make_unique<RelativeBias>(MakeRelativeBias(Take(), /*two_sided=*/!stack.causal,
                                                                  config_.relative_position_max_distance,
                                                                  config_.max_sequence_length));
    }
    if (architecture_.position == Position::kRotary) AddRotaryTables(part);
    for (int64_t layer = begin; layer < end; ++layer) {
      part.layer_begins.push_back(config_.adapters.any() ? next_adapter_->offset : next_->offset);
      part.layers.push_back(Layer(stack, layer - stack.first_layer, part));
      part.layer_ends.push_back(NextOffset());
    }
    if (stack.final_norm && end == stack.first_layer + stack.layers) part.final_norm = Norm();
    // Behind the last stack there is the head alone.
    const bool last = stack.name == architecture_.stacks.back().name;
    part.layer_ends.back() = last ? std::numeric_limits<int64_t>::max() : NextOffset();
    return part;
  }

  const ModelConfig& config_;
  const StageRange& range_;
  const std::vector<NamedParameter>& parameters_;
  const at::Device device_;
  StageGroup& group_;
  const ModelArchitecture architecture_;
  std::vector<NamedParameter>::const_iterator next_;
  std::vector<NamedParameter>::const_iterator next_adapter_;
  std::set<std::string> taken_;
};

}  // namespace

PartParameters PartParametersOf(const ModelConfig& config, const FlatParameters& flat) {
  if (!config.adapters.any()) return {flat.parameters, flat.frozen};
  return {flat.frozen, flat.parameters};
}

StageParts MakeStageParts(const ModelConfig& config, const StageRange& range,
                          const PartParameters& parameters, at::Device device, StageGroup& group) {
  return PartMaker(config, range, parameters, device, group).Make();
}

}  // namespace penstock::worker
