// Small models and micro-batches for the tests of worker/model, and GPT and T5 written a second time in the
// plainest way: row by row, attention as a masked softmax, cross entropy as a log-softmax, gradients by
// autograd.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/model/transformer_stage.h"

namespace penstock::worker {

using Tokens = std::vector<std::vector<int32_t>>;

struct TestSample {
  uint32_t input = 0;
  uint32_t target = 0;
};

// A GPT of four layers, and a T5 of two encoder and two decoder layers with few buckets.
ModelConfig SmallConfig(DataType type);
ModelConfig SmallT5Config(DataType type);
// Like the GPT, but with RMS norm, rotary positions with the scaling of Llama 3, grouped queries, SwiGLU and
// biases for queries, keys and values alone.
ModelConfig SmallLlamaConfig(DataType type);
// The same with norms of queries and keys, and four experts, two a token.
ModelConfig SmallExpertsConfig(DataType type);
// The same with norms over all queries and keys in place of those, which are clipped as values are, weights
// of experts as the router gives them, a gated shared expert, and both losses of routers.
ModelConfig SmallSharedExpertConfig(DataType type);
// Like that with four experts, but for the first and the third layer, which have none and a width of their
// own; with both losses of routers.
ModelConfig SmallSomeExpertsConfig(DataType type);
// Like the Llama, but with norms on both sides of parts and of queries and keys, all of 1 + weight, caps that
// bend, and windows of 5 tokens in every other layer, which turn by another theta.
ModelConfig SmallGemmaConfig(DataType type);
// Like the Llama, but with norms behind its parts alone and over all queries and keys, windows of 3 tokens in
// all layers, and longrope, by which four elements of a head turn.
ModelConfig SmallOlmoConfig(DataType type);
// Tokens of the samples, of ids below `vocab`, that depend on nothing else.
Tokens MakeTokens(const std::vector<TestSample>& samples, int64_t vocab);
// Concatenated rows hold two samples each, and end with padding.
MicroBatch MakeMicroBatch(const ModelConfig& config, const std::vector<TestSample>& samples, Layout layout);
uint64_t CountTokens(const std::vector<TestSample>& samples);
// How many positions the loss counts.
double CountLossTokens(const ModelConfig& config, const std::vector<TestSample>& samples);

struct Result {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
  // Not part of `loss`.
  double router_balance_loss = 0;
  double router_z_loss = 0;
};

// The plain implementation, in float64, from the initial values of `seed`. Concatenated samples see their
// row.
Result PlainModel(const ModelConfig& config, uint64_t seed, const std::vector<TestSample>& samples,
                  Layout layout);

// A pipeline in this process, over the micro-batches in order. Expects of every backward pass that gradients
// stay as they are when the stage has called them ready.
class TestPipeline {
 public:
  TestPipeline(const ModelConfig& config, uint64_t seed, const std::vector<uint32_t>& layers_per_stage);

  struct Options {
    // Of every stage, as far as it has layers.
    LayerRecompute recompute = {};
    // Weight gradients of all stages after all input gradients.
    bool split_backward = false;
    ProductsBeside beside = {};
    // Of all micro-batches; 0: of this one alone.
    uint64_t batch_tokens = 0;
  };
  // Adds loss and gradients of one micro-batch.
  void Run(const std::vector<TestSample>& samples, Layout layout, const Options& options, double loss_tokens);
  // The same with tokens of the caller's.
  void Run(const std::vector<TestSample>& samples, const Tokens& tokens, Layout layout,
           const Options& options, double loss_tokens);
  // The loss of one micro-batch that is not learnt.
  double RunForwardAlone(const std::vector<TestSample>& samples, Layout layout, double loss_tokens);
  // Gradients of shared parameters are summed.
  Result result() const;
  Stage& stage(size_t index) { return *stages_[index]; }

 private:
  ModelConfig config_;
  std::vector<uint32_t> layers_;
  std::vector<std::unique_ptr<Stage>> stages_;
  double loss_ = 0;
  RouterLosses router_losses_;
};

// Largest difference, relative to the largest value, over all gradients and the loss; infinite if names
// differ.
double RelativeDifference(const Result& left, const Result& right);
bool SameBits(const Result& left, const Result& right);

}  // namespace penstock::worker
