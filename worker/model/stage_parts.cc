#include "worker/model/stage_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::worker {
namespace {

// Takes the parameters in the order of StageParameterSpecs.
class PartMaker {
 public:
  PartMaker(const ModelConfig& config, const StageRange& range, const std::vector<NamedParameter>& parameters)
      : config_(config), range_(range), architecture_(ArchitectureOf(config)), next_(parameters.begin()) {}

  StageParts Make() {
    StageParts parts;
    const std::vector<LayerStack>& stacks = architecture_.stacks;
    if (stacks.size() > 1) parts.source = Stack(stacks.front(), EmbedsSource(config_, range_));
    parts.target = Stack(stacks.back(), EmbedsTarget(config_, range_));
    if (range_.last) {
      parts.final_norm = Norm();
      parts.head = Take();
    }
    return parts;
  }

 private:
  Parameter Take() {
    const NamedParameter& parameter = *next_++;
    return {parameter.value, parameter.gradient};
  }

  NormPart Norm() {
    NormPart part = {
        .kind = architecture_.norm, .epsilon = architecture_.norm_epsilon, .weight = Take(), .bias = {}};
    if (part.kind == NormKind::kLayer) part.bias = Take();
    return part;
  }

  LinearPart Linear() {
    LinearPart part = {.weight = Take(), .bias = {}};
    if (architecture_.bias) part.bias = Take();
    return part;
  }

  EmbeddingPart Embedding() {
    EmbeddingPart part = {.token = Take(), .position = {}};
    if (architecture_.learned_positions) part.position = Take();
    return part;
  }

  AttentionOptions Attention(bool causal, const RelativeBias* bias) const {
    const auto width = static_cast<double>(AttentionInner(config_) / config_.heads);
    return {.heads = config_.heads,
            .causal = causal,
            .scale = architecture_.scaled_scores ? 1 / std::sqrt(width) : 1.0,
            .bias = bias};
  }

  LayerPart Layer(const LayerStack& stack, const RelativeBias* bias) {
    LayerPart part;
    // Braces evaluate in order, which is that of StageParameterSpecs.
    part.attention = SelfAttentionPart{Norm(), Linear(), Linear(), Attention(stack.causal, bias)};
    if (stack.cross) {
      part.cross =
          CrossAttentionPart{Norm(), Linear(), Linear(), Linear(), Attention(/*causal=*/false, nullptr)};
    }
    part.feed_forward.norm = Norm();
    part.feed_forward.part.activation = architecture_.activation;
    part.feed_forward.part.gated = architecture_.gated;
    part.feed_forward.part.up = Linear();
    if (architecture_.gated) part.feed_forward.part.gate = Linear();
    part.feed_forward.part.down = Linear();
    return part;
  }

  StackPart Stack(const LayerStack& stack, bool embeds) {
    StackPart part;
    if (embeds) part.embedding = Embedding();
    const int64_t begin = std::max(range_.first_layer, stack.first_layer);
    const int64_t end = std::min(range_.first_layer + range_.layers, stack.first_layer + stack.layers);
    if (begin >= end) return part;
    if (!architecture_.learned_positions) {
      part.bias = std::make_unique<RelativeBias>(MakeRelativeBias(Take(), /*two_sided=*/!stack.causal,
                                                                  config_.relative_position_max_distance,
                                                                  config_.max_sequence_length));
    }
    for (int64_t layer = begin; layer < end; ++layer) part.layers.push_back(Layer(stack, part.bias.get()));
    if (stack.final_norm && end == stack.first_layer + stack.layers) part.final_norm = Norm();
    return part;
  }

  const ModelConfig& config_;
  const StageRange& range_;
  const ModelArchitecture architecture_;
  std::vector<NamedParameter>::const_iterator next_;
};

}  // namespace

StageParts MakeStageParts(const ModelConfig& config, const StageRange& range,
                          const std::vector<NamedParameter>& parameters) {
  return PartMaker(config, range, parameters).Make();
}

}  // namespace penstock::worker
