// Small models and micro-batches for the tests of worker/model, and a GPT written a second time in the
// plainest way: sample by sample, attention as a masked softmax, cross entropy as a log-softmax.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "worker/model/transformer_stage.h"

namespace penstock::worker {

using Tokens = std::vector<std::vector<int32_t>>;

struct TestSample {
  uint32_t input = 0;
  uint32_t target = 0;
};

ModelConfig SmallConfig(DataType type);
// Tokens of the samples, of ids below `vocab`, that depend on nothing else.
Tokens MakeTokens(const std::vector<TestSample>& samples, int64_t vocab);
MicroBatch MakeMicroBatch(const std::vector<TestSample>& samples, Layout layout);
// How many positions the loss counts.
double CountLossTokens(const std::vector<TestSample>& samples);

struct Result {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
};

// The plain implementation, in float64, from the initial values of `seed`.
Result PlainGpt(const ModelConfig& config, uint64_t seed, const std::vector<TestSample>& samples);

// A pipeline of `stages` equal stages in this process, over the micro-batches in order.
class TestPipeline {
 public:
  TestPipeline(const ModelConfig& config, uint64_t seed, int64_t stages);
  // Adds loss and gradients of one micro-batch.
  void Run(const std::vector<TestSample>& samples, Layout layout, const LayerRecompute& recompute,
           double loss_tokens);
  Result result() const;
  Stage& stage(size_t index) { return *stages_[index]; }

 private:
  ModelConfig config_;
  std::vector<std::unique_ptr<Stage>> stages_;
  double loss_ = 0;
};

// Largest difference, relative to the largest value, over all gradients and the loss; infinite if names
// differ.
double RelativeDifference(const Result& left, const Result& right);
bool SameBits(const Result& left, const Result& right);

}  // namespace penstock::worker
