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
                                     keep_attention ? &memory.attention : nullptr, context.carried);
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

FeedForwardForwardSteps::FeedForwardForwardSteps(const FeedForwardBlock& block, double residual_scale,
                                                 const TokenRows& rows, at::Tensor input,
                                                 FeedForwardBlockMemory& memory)
    : block_(block), residual_scale_(residual_scale), rows_(rows), input_(std::move(input)), memory_(memory) {
  if (block.experts.has_value()) experts_.emplace(*block.experts, rows, memory.experts);
}

bool FeedForwardForwardSteps::Advance() {
  if (!experts_.has_value()) {
    const at::Tensor normalised = PartInput(block_.norms, input_, memory_.norm);
    Finish(FeedForwardForward(block_.part, rows_, normalised, memory_.part));
    return false;
  }
  switch (turn_) {
    case ExpertsTurn::kSend:
      experts_->Send(PartInput(block_.norms, input_, memory_.norm));
      turn_ = ExpertsTurn::kCompute;
      return true;
    case ExpertsTurn::kCompute:
      experts_->Compute();
      turn_ = ExpertsTurn::kFinish;
      return true;
    case ExpertsTurn::kFinish:
      Finish(experts_->Finish());
      break;
  }
  return false;
}

void FeedForwardForwardSteps::Finish(at::Tensor added) {
  output_ = AddToResidual(block_.norms, std::move(added), residual_scale_, input_, memory_.output_norm);
  input_.reset();
}

FeedForwardBackwardSteps::FeedForwardBackwardSteps(const FeedForwardBlock& block, double residual_scale,
                                                   const TokenRows& rows, FeedForwardBlockMemory memory,
                                                   at::Tensor output_gradient, WeightProducts& products)
    : block_(block),
      residual_scale_(residual_scale),
      rows_(rows),
      memory_(std::move(memory)),
      output_gradient_(std::move(output_gradient)),
      products_(products) {}

bool FeedForwardBackwardSteps::Advance() {
  if (!block_.experts.has_value()) {
    const at::Tensor own =
        OutputNormBackward(block_.norms, residual_scale_, std::move(memory_.output_norm), output_gradient_);
    Finish(FeedForwardBackward(block_.part, rows_, memory_.norm.output, std::move(memory_.part), own,
                               products_));
    return false;
  }
  switch (turn_) {
    case ExpertsTurn::kSend:
      Send();
      turn_ = ExpertsTurn::kCompute;
      return true;
    case ExpertsTurn::kCompute:
      experts_->Compute();
      products_.RunBesideReturn();
      turn_ = ExpertsTurn::kFinish;
      return true;
    case ExpertsTurn::kFinish:
      Finish(experts_->Finish());
      break;
  }
  return false;
}

void FeedForwardBackwardSteps::Send() {
  experts_.emplace(*block_.experts, rows_, memory_.norm.output, std::move(memory_.experts), products_);
  experts_->Send(
      OutputNormBackward(block_.norms, residual_scale_, std::move(memory_.output_norm), output_gradient_));
  products_.RunBesideArrival();
}

void FeedForwardBackwardSteps::Finish(at::Tensor normalised_gradient) {
  experts_.reset();
  gradient_ = ResidualBackward(block_.norms, std::move(memory_.norm), std::move(normalised_gradient),
                               output_gradient_);
  output_gradient_.reset();
}

LayerForwardSteps::LayerForwardSteps(const LayerPart& part, const LayerContext& context, at::Tensor input,
                                     Recompute recompute, LayerMemory& memory)
    : part_(part), context_(context), input_(std::move(input)), recompute_(recompute), memory_(memory) {}

// Without keeping anything beyond the part that runs.
at::Tensor LayerForwardSteps::ForgetfulAttention(const at::Tensor& input) const {
  at::Tensor hidden;
  {
    SelfAttentionMemory memory;
    hidden = SelfAttentionForward(part_, context_, input, /*keep_attention=*/false, memory);
  }
  if (!part_.cross.has_value()) return hidden;
  CrossAttentionMemory memory;
  return CrossAttentionForward(*part_.cross, context_, hidden, /*keep_attention=*/false, memory);
}

at::Tensor LayerForwardSteps::RememberingAttention(const at::Tensor& input) {
  const bool keep_attention = recompute_ == Recompute::kNone;
  const at::Tensor hidden = SelfAttentionForward(part_, context_, input, keep_attention, memory_.attention);
  if (!part_.cross.has_value()) return hidden;
  return CrossAttentionForward(*part_.cross, context_, hidden, keep_attention, memory_.cross);
}

bool LayerForwardSteps::Advance() {
  if (!feed_forward_.has_value()) {
    const bool forgets = recompute_ == Recompute::kFull;
    memory_.recompute = recompute_;
    if (forgets) memory_.input = input_;
    at::Tensor hidden = forgets ? ForgetfulAttention(input_) : RememberingAttention(input_);
    input_.reset();
    feed_forward_.emplace(part_.feed_forward, part_.residual_scale, context_.rows(), std::move(hidden),
                          forgets ? forgotten_ : memory_.feed_forward);
  }
  return feed_forward_->Advance();
}

LayerBackwardSteps::LayerBackwardSteps(const LayerPart& part, const LayerContext& context, LayerMemory memory,
                                       at::Tensor output_gradient, at::Tensor& source_gradient,
                                       WeightProducts& products)
    : part_(part),
      context_(context),
      memory_(std::move(memory)),
      output_gradient_(std::move(output_gradient)),
      source_gradient_(source_gradient),
      products_(products) {}

void LayerBackwardSteps::Begin() {
  begun_ = true;
  if (memory_.recompute != Recompute::kNone) products_.RunBeforeLayerAgain();
  if (memory_.recompute != Recompute::kFull) return;
  memory_.attention.attention.keep_received = true;
  again_.emplace(part_, context_, std::exchange(memory_.input, {}), Recompute::kNone, memory_);
}

bool LayerBackwardSteps::Advance() {
  if (!begun_) Begin();
  if (again_.has_value()) {
    if (again_->Advance()) {
      products_.RunBesideArrival();
      return true;
    }
    again_.reset();
  }
  if (!feed_forward_.has_value()) {
    // Keys and values of others travel beside the feed-forward part.
    ReceiveAhead(part_.attention.options, *context_.attention,
                 SelfOperands(part_.attention.options, memory_.attention.query_key_value),
                 memory_.attention.attention);
    feed_forward_.emplace(part_.feed_forward, part_.residual_scale, context_.rows(),
                          std::move(memory_.feed_forward), std::move(output_gradient_), products_);
  }
  if (feed_forward_->Advance()) return true;
  at::Tensor gradient = feed_forward_->TakeGradient();
  feed_forward_.reset();
  FinishAttention(std::move(gradient));
  return false;
}

void LayerBackwardSteps::FinishAttention(at::Tensor gradient) {
  if (part_.cross.has_value()) {
    gradient = CrossAttentionBackward(*part_.cross, context_, std::move(memory_.cross), gradient,
                                      source_gradient_, products_);
  }
  gradient_ = SelfAttentionBackward(part_, context_, std::move(memory_.attention), gradient, products_);
}

at::Tensor FeedForwardBlockForward(const FeedForwardBlock& block, double residual_scale,
                                   const TokenRows& rows, const at::Tensor& input,
                                   FeedForwardBlockMemory& memory) {
  FeedForwardForwardSteps steps(block, residual_scale, rows, input, memory);
  while (steps.Advance()) continue;
  return steps.TakeOutput();
}

at::Tensor LayerForward(const LayerPart& part, const LayerContext& context, const at::Tensor& input,
                        Recompute recompute, LayerMemory& memory) {
  LayerForwardSteps steps(part, context, input, recompute, memory);
  while (steps.Advance()) continue;
  return steps.TakeOutput();
}

}  // namespace penstock::worker
