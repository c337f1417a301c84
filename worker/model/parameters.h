// The parameters of a stage: names, shapes and initial values.
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

#include "worker/model/architecture.h"
#include "worker/model/parameter_part.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Which part of the model a stage holds. T5's encoder layers come before its decoder layers.
struct StageRange {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool first = false;
  bool last = false;
};

// The range of stage `stage` of a pipeline.
StageRange StageRangeOf(const std::vector<uint32_t>& layers_per_stage, uint32_t stage);

// Which tokens the stage embeds: the encoder's on the first stage; the decoder's, or a decoder-only model's,
// on the first stage, of T5 on the first with a decoder layer.
bool EmbedsSource(const ModelConfig& config, const StageRange& range);
bool EmbedsTarget(const ModelConfig& config, const StageRange& range);

enum class Initial : uint8_t { kZero, kOne, kNormal, kUniform };

struct ParameterSpec {
  std::string name;
  // Of the whole parameter.
  std::vector<int64_t> shape;
  Initial initial = Initial::kZero;
  // Of kNormal.
  double standard_deviation = 0;
  // Of kNormal: the first rows may have another one.
  int64_t leading_rows = 0;
  double leading_deviation = 0;
  // Of kUniform: values are between -bound and bound.
  double bound = 0;
  // Several stages may hold it, with the same values; their gradients are summed. `copy`: this is not the
  // first of them.
  bool shared = false;
  bool copy = false;
  // The first of a layer's.
  bool begins_layer = false;
  // Of an expert that this rank has and others of its stage group have not (GroupPlace::expert).
  bool of_expert = false;
  // What this tensor rank has of it; without blocks: all, and nobody else does.
  ParameterPart part = {};

  ParameterPart own_part() const { return part.blocks.empty() ? WholePart(shape, {}) : part; }
};

// All weights [out, in], in this order:
// GPT:
//   first stage: embedding.token.weight [vocab, hidden], embedding.position.weight [max_sequence_length,
//   hidden] layer N, N counted over the whole model:
//     layers.N.attention_norm.{weight,bias}, layers.N.attention.qkv.{weight,bias} (query rows
//     [attention_inner, hidden], key rows and value rows [key_value_heads * width of a head, hidden], each
//     divided into heads in order),
//     layers.N.attention.{query_norm,key_norm}.weight [width of a head] (where heads are normalised; jointly:
//     [attention_inner] and [key_value_heads * width of a head]),
//     layers.N.attention.output.{weight,bias}, layers.N.attention_output_norm.{weight,bias} (where norms
//     stand behind; attention_norm and ffn_norm where they stand before), layers.N.ffn_norm.{weight,bias},
//     layers.N.ffn.up.{weight,bias}, layers.N.ffn.gate.{weight,bias} (where it is gated),
//     layers.N.ffn.down.{weight,bias}; with experts, in place of these three, layers.N.ffn.router.weight
//     [experts, hidden], layers.N.ffn.experts.E.up.weight of all experts, then .gate, then .down, and of a
//     shared expert layers.N.ffn.shared.{up,gate,down}.weight and layers.N.ffn.shared_gate.weight [1,
//     hidden]; layers.N.ffn_output_norm.{weight,bias} (where norms stand behind)
//   last stage: final_norm.{weight,bias}, head.weight [vocab, hidden]
//   There is no position embedding where positions are not learned, no bias where the model has none, and in
//   place of a head that is tied a copy of the token embedding, by the name of that.
//   Norms start at 1 (their weights at 0 where these are offsets) and 0, biases at 0, weights are normal with
//   deviation 0.02; those that write to the residual stream (attention.output, ffn.down) are scaled by
//   1/sqrt(2 * layers) (GPT-2, Radford et al. 2019, section 2.3).
// T5 (Raffel et al. 2020), without biases:
//   first stage: embedding.token.weight; every stage with encoder layers: encoder.relative_bias.weight
//   [buckets, heads], encoder.N as layers.N above, N counted over the encoder; behind the last of them
//   encoder.final_norm.weight
//   first stage with a decoder layer: decoder.embedding.token.weight; every stage with decoder layers:
//   decoder.relative_bias.weight, decoder.N likewise, with decoder.N.cross_norm.weight,
//   decoder.N.cross.query.weight, decoder.N.cross.key_value.weight (key rows, then value rows) and
//   decoder.N.cross.output.weight between attention and ffn_norm
//   last stage: final_norm.weight, head.weight
//   Deviations: embeddings 1; query rows (hidden * width of a head)^-0.5; key and value rows, up, gate,
//   relative biases and head hidden^-0.5; outputs inner^-0.5; down ffn^-0.5.
// Tensor ranks (CheckTensorRanks, stage_checks.h) divide
//   by rows: attention.qkv and cross.query by heads, cross.key_value and the key and value rows of
//   attention.qkv by heads of keys and values, which neighbours share where there are fewer; ffn.up,
//   ffn.gate; token tables and head; biases as the rows of their weights by columns: attention.output and
//   cross.output by heads, ffn.down, relative biases by heads and have whole: norms, biases of what is
//   divided by columns, learned positions, routers, shared_gate. Each expert is divided as a dense part is,
//   unless ranks divide the experts (GroupPlace::experts): the specifications are then those of the rank's
//   own ones.
std::vector<ParameterSpec> StageParameterSpecs(const ModelConfig& config, const StageRange& range,
                                               const GroupPlace& place = {});

// What several stages of a pipeline may hold and learn, in the order of the stacks; the same on every stage.
// Nothing where adapters alone learn.
std::vector<ParameterSpec> SharedParameterSpecs(const ModelConfig& config, const GroupPlace& place = {});

// What this tensor rank has of the parameter. Of the whole it is a function of (seed, name, shape) alone, the
// same on every machine: element i is drawn from a counter-based generator whose key is a hash of seed and
// name, and only integer arithmetic precedes the rounding to `type`.
at::Tensor InitialValue(const ParameterSpec& spec, uint64_t seed, at::ScalarType type, at::Device device);

}  // namespace penstock::worker
