// The parameters of a GPT stage: names, shapes and initial values.
//
// Names and initial values do not depend on how the model is split into stages:
//
//   for (const ParameterSpec& spec : StageParameterSpecs(config, range))
//     at::Tensor value = InitialValue(spec, seed, at::kFloat, at::kCPU);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Which part of the model a stage holds.
struct StageRange {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool first = false;
  bool last = false;
};

enum class Initial : uint8_t { kZero, kOne, kNormal };

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
  Initial initial = Initial::kZero;
  // Of kNormal.
  double standard_deviation = 0;
};

// Inner width of attention: `attention_inner`, or `hidden` where that is 0.
int64_t AttentionInner(const ModelConfig& config);

// In this order, all weights [out, in]:
//   first stage: embedding.token.weight [vocab, hidden], embedding.position.weight [max_sequence_length,
//   hidden] layer N, N counted over the whole model:
//     layers.N.attention_norm.{weight,bias}, layers.N.attention.qkv.{weight,bias} (query, key, value rows,
//     each [attention_inner, hidden], each divided into heads in order),
//     layers.N.attention.output.{weight,bias}, layers.N.ffn_norm.{weight,bias},
//     layers.N.ffn.up.{weight,bias}, layers.N.ffn.down.{weight,bias}
//   last stage: final_norm.{weight,bias}, head.weight [vocab, hidden]
// Norms start at 1 and 0, biases at 0, weights are normal with deviation 0.02; those that write to the
// residual stream (attention.output, ffn.down) are scaled by 1/sqrt(2 * layers) (GPT-2, Radford et al. 2019,
// section 2.3).
std::vector<ParameterSpec> StageParameterSpecs(const ModelConfig& config, const StageRange& range);

// A function of (seed, name, shape) alone, the same on every machine: element i is drawn from a counter-based
// generator whose key is a hash of seed and name, and only integer arithmetic precedes the rounding to
// `type`.
at::Tensor InitialValue(const ParameterSpec& spec, uint64_t seed, at::ScalarType type, at::Device device);

}  // namespace penstock::worker
