// The residual parts of a Transformer layer, x + part(norm(x)) (Xiong et al., "On layer normalization in the
// Transformer architecture", 2020), or with norms behind the part, and the layer made of them. Which norms,
// attention and feed-forward these are is a matter of values: the same code runs all models.
//
// The backward pass is written out rather than left to autograd, so that what is kept between the passes, and
// what is put aside of a split backward pass, is what these structs hold and nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "worker/model/attention.h"
#include "worker/model/experts.h"
#include "worker/model/feed_forward.h"
#include "worker/model/head_norms.h"
#include "worker/model/joint_head_norms.h"
#include "worker/model/linear.h"
#include "worker/model/norm.h"
#include "worker/model/rotary.h"
#include "worker/model/stage_group.h"
#include "worker/model/token_rows.h"

namespace penstock::worker {

// What a layer keeps of its forward pass. kSelective: all but what attention makes between its operands and
// its result. kFull: the input.
enum class Recompute : uint8_t { kNone, kSelective, kFull };

// The input of a part and what its norm made of it.
struct NormMemory {
  at::Tensor input;
  NormStatistics statistics;
  at::Tensor output;
};

// What a part gives, before it is added to the residual stream, and its norm's statistics.
struct OutputNormMemory {
  at::Tensor input;
  NormStatistics statistics;
};

// Norms of a part; at least one is there.
struct PartNorms {
  std::optional<NormPart> before;
  std::optional<NormPart> after;
};

struct SelfAttentionPart {
  PartNorms norms;
  // Query, key and value rows. Tensor ranks divide its outputs, and the inputs of `output`.
  LinearPart query_key_value;
  LinearPart output;
  AttentionOptions options;
  // May be null.
  const RotaryTable* rotary = nullptr;
  // One of them at most.
  std::optional<HeadNormsPart> head_norms;
  std::optional<JointHeadNormsPart> joint_head_norms;
  // Queries, keys and values are clipped to [-clip, clip] behind their norms; 0: they stay.
  double clip = 0;
};

// What norms of queries and keys keep, and where nothing was clipped, which gradients pass: bool, as queries,
// keys and values.
struct ProjectionMemory {
  HeadNormsMemory heads;
  JointHeadNormsMemory joint_heads;
  at::Tensor unclipped;
};

struct SelfAttentionMemory {
  NormMemory norm;
  // Of what the linear layer made, where queries and keys are normalised.
  ProjectionMemory projection;
  // Queries and keys as attention sees them: turned, where positions are rotary.
  at::Tensor query_key_value;
  at::Tensor attended;
  AttentionMemory attention;
  OutputNormMemory output_norm;
};

// Queries of the decoder, keys and values of the encoder's output.
struct CrossAttentionPart {
  NormPart norm;
  // Tensor ranks divide its outputs and those of `key_value`, and the inputs of `output`.
  LinearPart query;
  LinearPart key_value;
  LinearPart output;
  AttentionOptions options;
};

struct CrossAttentionMemory {
  NormMemory norm;
  at::Tensor query;
  at::Tensor key_value;
  at::Tensor attended;
  AttentionMemory attention;
};

// The dense part, or the experts.
struct FeedForwardBlock {
  PartNorms norms;
  FeedForwardPart part;
  std::optional<ExpertsPart> experts;
};

struct FeedForwardBlockMemory {
  NormMemory norm;
  FeedForwardMemory part;
  ExpertsMemory experts;
  OutputNormMemory output_norm;
};

struct LayerPart {
  // Factor of what each part adds to the residual stream.
  double residual_scale = 1;
  SelfAttentionPart attention;
  // Decoder layers behind an encoder.
  std::optional<CrossAttentionPart> cross;
  FeedForwardBlock feed_forward;
};

// kFull: `input` alone.
struct LayerMemory {
  Recompute recompute = Recompute::kNone;
  at::Tensor input;
  SelfAttentionMemory attention;
  CrossAttentionMemory cross;
  FeedForwardBlockMemory feed_forward;
};

// What a layer sees beside its input. Pointers outlive the call.
struct LayerContext {
  const AttentionShape* attention = nullptr;
  // With cross-attention: its shape, and the encoder's output, own tokens.
  const AttentionShape* cross = nullptr;
  at::Tensor source;
  StageGroup* group = &SoleRank();
  // In a forward pass of a part: what the layer has for this part and the next one (attention.h). Else null.
  CarriedKeys* carried = nullptr;

  TokenRows rows() const {
    const std::optional<RoutedSamples>& routed = attention->routed;
    return {group, attention->listed_queries(), routed.has_value() ? &*routed : nullptr};
  }
  TokenRows source_rows() const { return {group, cross->keys}; }
};

// What stands between norm and attention: query, key and value rows, with queries and keys normalised and
// turned where the model does that. `rotary_rows`: as of AttentionShape.
at::Tensor ProjectHeads(const SelfAttentionPart& part, const TokenRows& rows, const at::Tensor& rotary_rows,
                        const at::Tensor& normalised, ProjectionMemory& memory);
// Views of such rows.
AttentionOperands SelfOperands(const AttentionOptions& options, const at::Tensor& query_key_value);

// What a part reads: the input, or what the norm before the part makes of it.
at::Tensor PartInput(const PartNorms& norms, const at::Tensor& input, NormMemory& memory);
// What a part gave, a tensor of its own, to the residual stream, through the norm behind the part.
at::Tensor AddToResidual(const PartNorms& norms, at::Tensor added, double residual_scale,
                         const at::Tensor& input, OutputNormMemory& memory);

// Passes are made in steps, so that whoever has several of them runs others while rows of experts travel:
//
//   LayerForwardSteps steps(part, context, input, recompute, memory);
//   while (steps.Advance()) ...
//   at::Tensor output = steps.TakeOutput();
//
// Advance runs the next step. True: it has ended where rows have begun to travel, which the step after it
// waits for; there is one. Steps are as many for each pass through a layer of one shape and level. What they
// are made with by reference outlives them. Not moved: they hold references to their own.

// Which step of experts is next.
enum class ExpertsTurn : uint8_t { kSend, kCompute, kFinish };

// Through norm, part and around them.
class FeedForwardForwardSteps {
 public:
  FeedForwardForwardSteps(const FeedForwardBlock& block, double residual_scale, const TokenRows& rows,
                          at::Tensor input, FeedForwardBlockMemory& memory);

  bool Advance();
  at::Tensor TakeOutput() { return std::move(output_); }

 private:
  void Finish(at::Tensor added);

  const FeedForwardBlock& block_;
  const double residual_scale_;
  const TokenRows rows_;
  at::Tensor input_;
  FeedForwardBlockMemory& memory_;
  std::optional<ExpertsForward> experts_;
  ExpertsTurn turn_ = ExpertsTurn::kSend;
  at::Tensor output_;
};

class FeedForwardBackwardSteps {
 public:
  FeedForwardBackwardSteps(const FeedForwardBlock& block, double residual_scale, const TokenRows& rows,
                           FeedForwardBlockMemory memory, at::Tensor output_gradient,
                           WeightProducts& products);

  bool Advance();
  // Of the input.
  at::Tensor TakeGradient() { return std::move(gradient_); }

 private:
  void Send();
  void Finish(at::Tensor normalised_gradient);

  const FeedForwardBlock& block_;
  const double residual_scale_;
  const TokenRows rows_;
  FeedForwardBlockMemory memory_;
  at::Tensor output_gradient_;
  WeightProducts& products_;
  std::optional<ExpertsBackward> experts_;
  ExpertsTurn turn_ = ExpertsTurn::kSend;
  at::Tensor gradient_;
};

// `input`: [own tokens, hidden] (token_rows.h); so is the result, a tensor of its own, and with the same bits
// for every `recompute`.
class LayerForwardSteps {
 public:
  LayerForwardSteps(const LayerPart& part, const LayerContext& context, at::Tensor input, Recompute recompute,
                    LayerMemory& memory);
  LayerForwardSteps(const LayerForwardSteps&) = delete;
  LayerForwardSteps& operator=(const LayerForwardSteps&) = delete;

  bool Advance();
  at::Tensor TakeOutput() { return feed_forward_->TakeOutput(); }

 private:
  at::Tensor ForgetfulAttention(const at::Tensor& input) const;
  at::Tensor RememberingAttention(const at::Tensor& input);

  const LayerPart& part_;
  const LayerContext& context_;
  at::Tensor input_;
  const Recompute recompute_;
  LayerMemory& memory_;
  // Of kFull, while the part runs.
  FeedForwardBlockMemory forgotten_;
  std::optional<FeedForwardForwardSteps> feed_forward_;
};

// Adds the gradient of the encoder's output to `source_gradient`, which may be undefined and is replaced by a
// new tensor.
class LayerBackwardSteps {
 public:
  LayerBackwardSteps(const LayerPart& part, const LayerContext& context, LayerMemory memory,
                     at::Tensor output_gradient, at::Tensor& source_gradient, WeightProducts& products);
  LayerBackwardSteps(const LayerBackwardSteps&) = delete;
  LayerBackwardSteps& operator=(const LayerBackwardSteps&) = delete;

  bool Advance();
  // Of the input.
  at::Tensor TakeGradient() { return std::move(gradient_); }

 private:
  void Begin();
  // Of what stands before the feed-forward part.
  void FinishAttention(at::Tensor gradient);

  const LayerPart& part_;
  const LayerContext& context_;
  LayerMemory memory_;
  at::Tensor output_gradient_;
  at::Tensor& source_gradient_;
  WeightProducts& products_;
  bool begun_ = false;
  // kFull: until the layer has run again.
  std::optional<LayerForwardSteps> again_;
  std::optional<FeedForwardBackwardSteps> feed_forward_;
  at::Tensor gradient_;
};

// In one go.
at::Tensor FeedForwardBlockForward(const FeedForwardBlock& block, double residual_scale,
                                   const TokenRows& rows, const at::Tensor& input,
                                   FeedForwardBlockMemory& memory);
at::Tensor LayerForward(const LayerPart& part, const LayerContext& context, const at::Tensor& input,
                        Recompute recompute, LayerMemory& memory);

}  // namespace penstock::worker
