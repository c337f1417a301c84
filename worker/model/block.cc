#include "worker/model/block.h"

#include <ATen/ATen.h>

#include <utility>

namespace penstock::worker {
namespace {

// Columns of a fused projection: part `index` of `parts`.
at::Tensor Columns(const at::Tensor& fused, int64_t parts, int64_t index) {
  const int64_t width = fused.size(1) / parts;
  return fused.narrow(1, index * width, width);
}

// Columns of all query heads, and of all key heads, which are as many as those of the value heads.
struct HeadColumns {
  HeadColumns(const AttentionOptions& options, int64_t columns) {
    const int64_t width = columns / (options.heads + 2 * options.key_value_heads);
    query = options.heads * width;
    key = options.key_value_heads * width;
  }
  int64_t query = 0;
  int64_t key = 0;
};

// Queries and keys in place, where positions are rotary.
void RotateHeads(const SelfAttentionPart& part, const at::Tensor& positions, Turn turn,
                 const at::Tensor& query_key_value) {
  if (part.rotary == nullptr) return;
  const HeadColumns columns(part.options, query_key_value.size(1));
  Rotate(*part.rotary, positions, turn, query_key_value.narrow(1, 0, columns.query + columns.key));
}

AttentionOperands CrossOperands(const at::Tensor& query, const at::Tensor& key_value) {
  return {query, Columns(key_value, 2, 0), Columns(key_value, 2, 1)};
}

at::Tensor Normalise(const NormPart& part, const at::Tensor& input, NormMemory& memory) {
  memory.input = input;
  memory.output = NormForward(part, input, memory.statistics);
  return memory.output;
}

at::Tensor Scaled(const at::Tensor& gradient, double factor) {
  return factor == 1 ? gradient : gradient * factor;
}

// Of what a part gave; the output's gradient where nothing stands between.
at::Tensor OutputNormBackward(const PartNorms& norms, double residual_scale, OutputNormMemory memory,
                              const at::Tensor& output_gradient) {
  const at::Tensor gradient = Scaled(output_gradient, residual_scale);
  return norms.after.has_value() ? NormBackward(*norms.after, memory.input, memory.statistics, gradient)
                                 : gradient;
}

// Through the norm, and around it. The result is a tensor of its own.
at::Tensor ResidualBackward(const NormPart& part, NormMemory memory, const at::Tensor& normalised_gradient,
                            const at::Tensor& output_gradient) {
  memory.output.reset();
  return NormBackward(part, memory.input, memory.statistics, normalised_gradient).add_(output_gradient);
}

// The same where there may be no norm; `gradient`: of what the part read, a tensor of its own.
at::Tensor ResidualBackward(const PartNorms& norms, NormMemory memory, at::Tensor gradient,
                            const at::Tensor& output_gradient) {
  if (!norms.before.has_value()) return gradient.add_(output_gradient);
  return ResidualBackward(*norms.before, std::move(memory), gradient, output_gradient);
}

at::Tensor SelfAttentionForward(const LayerPart& layer, const LayerContext& context, const at::Tensor& input,
                                bool keep_attention, SelfAttentionMemory& memory) {
  const SelfAttentionPart& part = layer.attention;
  const AttentionShape& shape = *context.attention;
  const TokenRows rows = context.rows();
  memory.query_key_value = ProjectHeads(part, rows, shape.rotary_rows,
                                        PartInput(part.norms, input, memory.norm), memory.projection);
  memory.attended = AttentionForward(part.options, shape, SelfOperands(part.options, memory.query_key_value),
                                     keep_attention ? &memory.attention : nullptr);
  return AddToResidual(part.norms, InputsForward(part.output, rows, memory.attended), layer.residual_scale,
                       input, memory.output_norm);
}

at::Tensor SelfAttentionBackward(const LayerPart& layer, const LayerContext& context,
                                 SelfAttentionMemory memory, const at::Tensor& output_gradient,
                                 WeightProducts& products) {
  const SelfAttentionPart& part = layer.attention;
  const AttentionShape& shape = *context.attention;
  const TokenRows rows = context.rows();
  at::Tensor gradient = at::empty_like(memory.query_key_value);
  {
    const at::Tensor added_gradient =
        OutputNormBackward(part.norms, layer.residual_scale, std::move(memory.output_norm), output_gradient);
    const at::Tensor attended_gradient =
        InputsBackward(part.output, rows, memory.attended, added_gradient, products);
    AttentionBackward(part.options, shape, SelfOperands(part.options, memory.query_key_value),
                      memory.attended, std::move(memory.attention), attended_gradient,
                      SelfOperands(part.options, gradient));
  }
  RotateHeads(part, shape.rotary_rows, Turn::kBackward, gradient);
  if (part.clip > 0) gradient.mul_(std::exchange(memory.projection.unclipped, {}));
  if (part.head_norms.has_value()) {
    const AttentionOperands heads = SelfOperands(part.options, gradient);
    HeadNormsBackward(*part.head_norms, std::move(memory.projection.heads), heads.query, heads.key);
  }
  if (part.joint_head_norms.has_value()) {
    const AttentionOperands heads = SelfOperands(part.options, gradient);
    JointHeadNormsBackward(*part.joint_head_norms, memory.projection.joint_heads, heads.query, heads.key);
    memory.projection.joint_heads = {};
  }
  memory.query_key_value.reset();
  memory.attended.reset();
  gradient = OutputsBackward(part.query_key_value, rows, memory.norm.output, gradient, products);
  return ResidualBackward(part.norms, std::move(memory.norm), std::move(gradient), output_gradient);
}

at::Tensor CrossAttentionForward(const CrossAttentionPart& part, const LayerContext& context,
                                 const at::Tensor& input, bool keep_attention, CrossAttentionMemory& memory) {
  memory.query = OutputsForward(part.query, context.rows(), Normalise(part.norm, input, memory.norm));
  memory.key_value = OutputsForward(part.key_value, context.source_rows(), context.source);
  memory.attended =
      AttentionForward(part.options, *context.cross, CrossOperands(memory.query, memory.key_value),
                       keep_attention ? &memory.attention : nullptr);
  return InputsForward(part.output, context.rows(), memory.attended).add_(input);
}

at::Tensor CrossAttentionBackward(const CrossAttentionPart& part, const LayerContext& context,
                                  CrossAttentionMemory memory, const at::Tensor& output_gradient,
                                  at::Tensor& source_gradient, WeightProducts& products) {
  const TokenRows rows = context.rows();
  at::Tensor gradient = at::empty_like(memory.query);
  at::Tensor key_value_gradient = at::empty_like(memory.key_value);
  {
    const at::Tensor attended_gradient =
        InputsBackward(part.output, rows, memory.attended, output_gradient, products);
    AttentionBackward(part.options, *context.cross, CrossOperands(memory.query, memory.key_value),
                      memory.attended, std::move(memory.attention), attended_gradient,
                      CrossOperands(gradient, key_value_gradient));
  }
  memory.query.reset();
  memory.key_value.reset();
  memory.attended.reset();
  at::Tensor source =
      OutputsBackward(part.key_value, context.source_rows(), context.source, key_value_gradient, products);
  source_gradient = source_gradient.defined() ? source.add_(source_gradient) : std::move(source);
  gradient = OutputsBackward(part.query, rows, memory.norm.output, gradient, products);
  return ResidualBackward(part.norm, std::move(memory.norm), gradient, output_gradient);
}

at::Tensor FeedForwardBlockBackward(const LayerPart& layer, const TokenRows& rows,
                                    FeedForwardBlockMemory memory, const at::Tensor& output_gradient,
                                    WeightProducts& products) {
  const FeedForwardBlock& block = layer.feed_forward;
  const at::Tensor own_gradient =
      OutputNormBackward(block.norms, layer.residual_scale, std::move(memory.output_norm), output_gradient);
  at::Tensor gradient = block.experts.has_value()
                            ? ExpertsBackward(*block.experts, rows, memory.norm.output,
                                              std::move(memory.experts), own_gradient, products)
                            : FeedForwardBackward(block.part, rows, memory.norm.output,
                                                  std::move(memory.part), own_gradient, products);
  return ResidualBackward(block.norms, std::move(memory.norm), std::move(gradient), output_gradient);
}

// Without keeping anything beyond the part that runs.
at::Tensor ForgetfulForward(const LayerPart& part, const LayerContext& context, const at::Tensor& input) {
  at::Tensor hidden;
  {
    SelfAttentionMemory memory;
    hidden = SelfAttentionForward(part, context, input, /*keep_attention=*/false, memory);
  }
  if (part.cross.has_value()) {
    CrossAttentionMemory memory;
    hidden = CrossAttentionForward(*part.cross, context, hidden, /*keep_attention=*/false, memory);
  }
  FeedForwardBlockMemory memory;
  return FeedForwardBlockForward(part.feed_forward, part.residual_scale, context.rows(), hidden, memory);
}

at::Tensor RememberingForward(const LayerPart& part, const LayerContext& context, const at::Tensor& input,
                              bool keep_attention, LayerMemory& memory) {
  at::Tensor hidden = SelfAttentionForward(part, context, input, keep_attention, memory.attention);
  if (part.cross.has_value()) {
    hidden = CrossAttentionForward(*part.cross, context, hidden, keep_attention, memory.cross);
  }
  return FeedForwardBlockForward(part.feed_forward, part.residual_scale, context.rows(), hidden,
                                 memory.feed_forward);
}

}  // namespace

AttentionOperands SelfOperands(const AttentionOptions& options, const at::Tensor& query_key_value) {
  const HeadColumns columns(options, query_key_value.size(1));
  return {query_key_value.narrow(1, 0, columns.query), query_key_value.narrow(1, columns.query, columns.key),
          query_key_value.narrow(1, columns.query + columns.key, columns.key)};
}

at::Tensor ProjectHeads(const SelfAttentionPart& part, const TokenRows& rows, const at::Tensor& rotary_rows,
                        const at::Tensor& normalised, ProjectionMemory& memory) {
  at::Tensor query_key_value = OutputsForward(part.query_key_value, rows, normalised);
  if (part.head_norms.has_value()) {
    const AttentionOperands heads = SelfOperands(part.options, query_key_value);
    NormaliseHeads(*part.head_norms, heads.query, heads.key, memory.heads);
  }
  if (part.joint_head_norms.has_value()) {
    const AttentionOperands heads = SelfOperands(part.options, query_key_value);
    NormaliseJointly(*part.joint_head_norms, heads.query, heads.key, memory.joint_heads);
  }
  if (part.clip > 0) {
    memory.unclipped = query_key_value.abs().le(part.clip);
    query_key_value.clamp_(-part.clip, part.clip);
  }
  RotateHeads(part, rotary_rows, Turn::kForward, query_key_value);
  return query_key_value;
}

at::Tensor PartInput(const PartNorms& norms, const at::Tensor& input, NormMemory& memory) {
  if (norms.before.has_value()) return Normalise(*norms.before, input, memory);
  memory.output = input;
  return input;
}

at::Tensor AddToResidual(const PartNorms& norms, at::Tensor added, double residual_scale,
                         const at::Tensor& input, OutputNormMemory& memory) {
  if (norms.after.has_value()) {
    memory.input = std::move(added);
    added = NormForward(*norms.after, memory.input, memory.statistics);
  }
  if (residual_scale != 1) added.mul_(residual_scale);
  return added.add_(input);
}

at::Tensor FeedForwardBlockForward(const FeedForwardBlock& block, double residual_scale,
                                   const TokenRows& rows, const at::Tensor& input,
                                   FeedForwardBlockMemory& memory) {
  const at::Tensor normalised = PartInput(block.norms, input, memory.norm);
  at::Tensor added = block.experts.has_value()
                         ? ExpertsForward(*block.experts, rows, normalised, memory.experts)
                         : FeedForwardForward(block.part, rows, normalised, memory.part);
  return AddToResidual(block.norms, std::move(added), residual_scale, input, memory.output_norm);
}

at::Tensor LayerForward(const LayerPart& part, const LayerContext& context, const at::Tensor& input,
                        Recompute recompute, LayerMemory& memory) {
  memory.recompute = recompute;
  if (recompute != Recompute::kFull) {
    return RememberingForward(part, context, input, recompute == Recompute::kNone, memory);
  }
  memory.input = input;
  return ForgetfulForward(part, context, input);
}

at::Tensor LayerBackward(const LayerPart& part, const LayerContext& context, LayerMemory memory,
                         const at::Tensor& output_gradient, at::Tensor& source_gradient,
                         WeightProducts& products) {
  // What they are made of would be there beside all that the layer makes again.
  if (memory.recompute != Recompute::kNone) products.RunBesideArrival();
  if (memory.recompute == Recompute::kFull) {
    memory.attention.attention.keep_received = true;
    RememberingForward(part, context, std::exchange(memory.input, {}), /*keep_attention=*/true, memory);
  }
  at::Tensor gradient = FeedForwardBlockBackward(part, context.rows(), std::move(memory.feed_forward),
                                                 output_gradient, products);
  if (part.cross.has_value()) {
    gradient = CrossAttentionBackward(*part.cross, context, std::move(memory.cross), gradient,
                                      source_gradient, products);
  }
  return SelfAttentionBackward(part, context, std::move(memory.attention), gradient, products);
}

}  // namespace penstock::worker
