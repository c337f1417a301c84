#include "planner/core/cost/memory_model.h"

#include <algorithm>

#include "planner/core/cost/level_counts.h"
#include "planner/core/cost/rounding.h"

namespace penstock::core {
namespace {

// Two integers of 64 bits for each token embedded (id, position) and for each loss position (place, label).
constexpr int64_t kLoadedTokenBytes = 16;

// Of a context rank's tokens, those of a tensor rank between layers: equal shares, and the last one has the
// rest.
int64_t ShareOfTokens(int64_t tokens, int tensor, int tensors) {
  const int64_t each = tokens / tensors;
  return tensor + 1 == tensors ? tokens - each * (tensors - 1) : each;
}

// Tokens whose rows a split backward pass puts aside gathered, beyond those that the rank has of them: the
// input and the output gradient of each divided part, and in T5's decoder layers the encoder's output, of
// which layers keep nothing.
int64_t GatheredOperands(const Stage& stage, bool feeds_own_tokens, int tensors, const TokenSums& sums) {
  const auto source = static_cast<int64_t>(sums.source);
  const auto others = [tensors](int64_t tokens) { return tokens - tokens / tensors; };
  const int64_t target = others(static_cast<int64_t>(sums.target));
  const int64_t of_decoder = stage.crosses ? 6 * target + source : (feeds_own_tokens ? 2 : 4) * target;
  return stage.count(kEncoder) * 4 * others(source) + stage.count(kDecoder) * of_decoder +
         stage.count(kDense) * 4 * target;
}

// Of the layers of a rank that has one part in so many of each, and of a target token so many bytes more.
int64_t PartOf(const LayerBytes& bytes, const TokenSums& sums, int tensors, double more = 0) {
  return RoundToInteger((bytes.source_token_bytes * sums.source + bytes.target_token_bytes * sums.target) /
                            tensors +
                        more * sums.target);
}

// Layers that a part goes through at most before the next part follows: up to the next one with experts.
int64_t LayersInARow(const Stage& stage) {
  int64_t dense = 0;
  for (const LayerRun& run : RunsOf(stage, {}))
    if (run.kind == kDense) dense = std::max<int64_t>(dense, run.layers);
  return dense + 1;
}

// Element by element the larger one.
void Enlarge(const ShareMemory& by, ShareMemory* memory) {
  const auto enlarge = [](int64_t by, int64_t* value) { *value = std::max(*value, by); };
  for (const LayerKind kind : kKindsOfStacks) {
    const ShareMemory::Layer& by_layer = by.layer[kind];
    ShareMemory::Layer* layer = &memory->layer[kind];
    for (int level = 0; level < kRecomputeLevels; ++level) {
      enlarge(by_layer.stored[level], &layer->stored[level]);
      enlarge(by_layer.peak_at[level], &layer->peak_at[level]);
    }
    enlarge(by_layer.peak_split, &layer->peak_split);
    enlarge(by_layer.peak, &layer->peak);
  }
  for (int64_t ShareMemory::*const member :
       {&ShareMemory::stored_head, &ShareMemory::peak_head, &ShareMemory::head, &ShareMemory::gathered,
        &ShareMemory::keys_values, &ShareMemory::carried_keys, &ShareMemory::rows,
        &ShareMemory::encoder_boundary, &ShareMemory::boundary})
    enlarge(by.*member, &(memory->*member));
}

}  // namespace

MemoryModel::MemoryModel(const Profile& profile, const Job& job, const Topology& topology,
                         const ExchangeModel& exchange_model)
    : profile_(profile),
      topology_(topology),
      exchange_model_(exchange_model),
      repeated_token_bytes_(RepeatedHeadsOf(job, group().tensor).token_bytes),
      hidden_(job.hidden),
      bytes_per_element_(job.bytes_per_element) {
  for (const Stage& stage : topology.shape().stages) {
    for (const LayerKind kind : kKindsOfStacks) has_kind_[kind] = has_kind_[kind] || stage.has(kind);
  }
}

ShareMemory::Layer MemoryModel::OfLayer(LayerKind kind, const TokenSums& sums, int64_t rows) const {
  const LayerProfile& profile = profile_.layers[kind];
  const int tensors = group().tensor;
  const double repeated = kind == kEncoder ? 0 : repeated_token_bytes_;
  ShareMemory::Layer layer;
  for (int level = 0; level < kRecomputeLevels; ++level)
    layer.stored[level] = PartOf(profile.stored[level], sums, tensors, level == kKeepInput ? 0 : repeated);
  // With their gradients.
  layer.peak = PartOf(profile.peak, sums, tensors, 2 * repeated);
  const auto beside = [&](RecomputeLevel level) {
    return layer.peak - (layer.stored[level] - layer.stored[kKeepInput]);
  };
  // Not below what a layer keeps, where nothing is known of its gradients.
  const int64_t kept = std::min(layer.peak, layer.stored[kKeepAll]);
  const int64_t least = profile.peak_has_gradients() ? beside(kKeepAll) : kept;
  for (RecomputeLevel level : {kKeepAll, kKeepSelective, kKeepInput})
    layer.peak_at[level] = std::max(beside(level), least);
  layer.peak_split =
      std::max(beside(kKeepAll), profile.split_backward_peak.has_value()
                                     ? PartOf(*profile.split_backward_peak, sums, tensors, repeated)
                                     : kept);
  layer.stored[kKeepSelective] += rows;
  return layer;
}

ShareMemory MemoryModel::OfShare(const Share& share) const {
  const TokenSums& sums = share.sums;
  ShareMemory memory;
  memory.rows = exchange_model_.RowBytes(sums);
  for (const LayerKind kind : kKindsOfStacks) {
    memory.layer[kind] =
        has_kind_[kind] ? OfLayer(kind, sums, kind == kDecoder ? memory.rows : 0) : ShareMemory::Layer();
  }
  const LayerProfile& head = profile_.layers[kHead];
  memory.peak_head = PartOf(head.peak, sums, group().tensor);
  memory.stored_head = PartOf(head.stored[kKeepAll], sums, group().tensor);
  memory.head = group().tensor > 1 ? DividedHeadBytes(sums) : memory.peak_head;
  memory.gathered = exchange_model_.GatheredBytes(sums);
  memory.keys_values = share.divided_tokens * exchange_model_.key_value_bytes();
  memory.carried_keys = share.cut_tokens * exchange_model_.key_value_bytes();
  // Of the tensor rank with the most.
  const auto boundary_bytes = [&](bool encoder_alone) {
    return BoundaryElements(encoder_alone, sums, group().tensor - 1) * bytes_per_element_;
  };
  memory.boundary = boundary_bytes(false);
  memory.encoder_boundary = has_kind_[kEncoder] ? boundary_bytes(true) : memory.boundary;
  return memory;
}

ShareMemory MemoryModel::OfShares(absl::Span<const Share> shares) const {
  ShareMemory largest = OfShare(shares.front());
  for (const Share& share : shares.subspan(1)) Enlarge(OfShare(share), &largest);
  return largest;
}

int64_t MemoryModel::LoadedBytes(const Stage& stage, const TokenSums& sums) const {
  double loaded = 0;
  if (stage.embeds_source) loaded += sums.source;
  if (stage.embeds_target) loaded += sums.target;
  if (stage.last) loaded += sums.loss;
  return kLoadedTokenBytes * static_cast<int64_t>(loaded);
}

int64_t MemoryModel::GatheredOperandBytes(const Stage& stage, const TokenSums& sums) const {
  if (group().tensor == 1) return 0;
  return GatheredOperands(stage, group().feeds_own_tokens(), group().tensor, sums) * hidden_ *
         bytes_per_element_;
}

// Sets every field but those of kinds that the model has no layers of, which nobody sets: searches ask
// millions of times, and emptying all first would take as long as what is computed.
void MemoryModel::OnStage(int stage, absl::Span<const Share> shares, const ShareMemory& of_shares,
                          StageMemory* memory) const {
  static constexpr ShareMemory::Layer kNoLayer = {};
  const Stage& layers = this->stage(stage);
  memory->rows = layers.has(kDecoder) ? of_shares.rows : 0;
  memory->gathered = of_shares.gathered;
  memory->keys_values = of_shares.keys_values;
  memory->carried_keys = of_shares.carried_keys > 0 ? LayersInARow(layers) * of_shares.carried_keys : 0;
  memory->peak_head = layers.last ? of_shares.peak_head : 0;
  memory->stored_head = layers.last ? of_shares.stored_head : 0;
  memory->head = layers.last ? of_shares.head : 0;
  memory->peak = memory->peak_head;
  for (const LayerKind kind : kKindsOfStacks) {
    if (!has_kind_[kind]) continue;
    const ShareMemory::Layer& layer = layers.has(kind) ? of_shares.layer[kind] : kNoLayer;
    memory->stored_layer[kind] = layer.stored;
    memory->peak_layer[kind] = layer.peak_at;
    memory->peak_split[kind] = layer.peak_split;
    memory->peak = std::max(memory->peak, layer.peak);
  }
  const auto boundary_bytes = [&](const Stage& sender) {
    return sender.encoder_boundary ? of_shares.encoder_boundary : of_shares.boundary;
  };
  memory->input = layers.first ? 0 : boundary_bytes(this->stage(stage - 1));
  memory->output = layers.last ? 0 : boundary_bytes(layers);
  memory->tokens = 0;
  memory->gathered_operands = 0;
  for (const Share& share : shares) {
    memory->tokens = std::max(memory->tokens, LoadedBytes(layers, share.sums));
    memory->gathered_operands = std::max(memory->gathered_operands, GatheredOperandBytes(layers, share.sums));
  }
}

// Tensor ranks exchange the largest logits and the sums of their exponentials, and so need no second tensor
// of that size, which is half of what the head's peak has of them, or a third with capped ones. Each has all
// positions of the input, of its gradient, and of both again for a chunk of them.
int64_t MemoryModel::DividedHeadBytes(const TokenSums& sums) const {
  const LayerProfile& head = profile_.layers[kHead];
  const auto logits = [&](double LayerBytes::*side) {
    return std::max(0.0, head.peak.*side - 3 * head.stored[kKeepAll].*side);
  };
  const double bytes = logits(&LayerBytes::source_token_bytes) * sums.source +
                       logits(&LayerBytes::target_token_bytes) * sums.target;
  return RoundToInteger(2 * bytes / 3 / group().tensor) +
         4 * static_cast<int64_t>(sums.target) * hidden_ * bytes_per_element_;
}

int64_t MemoryModel::StoredBytes(int stage, const StageMemory& memory,
                                 const StageRecompute& recompute) const {
  const LevelCounts levels = CountLevels(this->stage(stage), recompute);
  int64_t bytes = memory.stored_head;
  for (const LayerKind kind : kKindsOfStacks) {
    if (!this->stage(stage).has(kind)) continue;
    for (int level = 0; level < kRecomputeLevels; ++level) {
      bytes += levels.counts[kind][level] * memory.stored_layer[kind][level];
    }
  }
  return bytes;
}

int64_t MemoryModel::BackwardPeak(int stage, const StageMemory& memory,
                                  const StageRecompute& recompute) const {
  const LevelCounts levels = CountLevels(this->stage(stage), recompute);
  int64_t peak = 0;
  for (const LayerKind kind : kKindsOfStacks) {
    // Layers that keep more are above those that keep less, and have given it back when these run.
    int64_t given_back = 0;
    for (int level = 0; level < kRecomputeLevels; ++level) {
      const int count = levels.counts[kind][level];
      if (count == 0) continue;
      peak = std::max(peak, memory.peak_layer[kind][level] - given_back);
      given_back += count * memory.stored_layer[kind][level];
    }
  }
  return memory.WithExchanged(peak);
}

int64_t MemoryModel::InputBackwardPeak(int stage, const StageMemory& memory) const {
  int64_t peak = 0;
  for (const LayerKind kind : kKindsOfStacks)
    if (this->stage(stage).has(kind)) peak = std::max(peak, memory.peak_split[kind]);
  return memory.WithExchanged(peak);
}

int64_t MemoryModel::PutAsideBytes(int stage, const StageMemory& memory) const {
  const Stage& layers = this->stage(stage);
  int64_t bytes = memory.gathered_operands;
  for (const LayerKind kind : kKindsOfStacks)
    bytes += layers.count(kind) * memory.stored_layer[kind][kKeepAll];
  return bytes;
}

int64_t MemoryModel::BoundaryElements(bool encoder_alone, const TokenSums& sums, int tensor) const {
  const int tensors = group().tensor;
  if (tensors == 1) {
    double tokens = sums.source;
    if (!encoder_alone) tokens += sums.target;
    // Whole tokens, also of shapes between samples.
    return RoundToInteger(static_cast<double>(static_cast<int64_t>(tokens)) * static_cast<double>(hidden_));
  }
  int64_t tokens = ShareOfTokens(static_cast<int64_t>(sums.source), tensor, tensors);
  if (!encoder_alone) tokens += ShareOfTokens(static_cast<int64_t>(sums.target), tensor, tensors);
  return tokens * hidden_;
}

}  // namespace penstock::core
