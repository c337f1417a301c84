// One pre-norm Transformer block (Xiong et al., "On layer normalization in the Transformer architecture",
// 2020): x + attention(norm(x)), then x + ffn(norm(x)) with the tanh form of GELU.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/attention.h"

namespace penstock::worker {

struct BlockParameters {
  // In the order of StageParameterSpecs.
  at::Tensor attention_norm_weight;
  at::Tensor attention_norm_bias;
  at::Tensor qkv_weight;
  at::Tensor qkv_bias;
  at::Tensor attention_output_weight;
  at::Tensor attention_output_bias;
  at::Tensor ffn_norm_weight;
  at::Tensor ffn_norm_bias;
  at::Tensor ffn_up_weight;
  at::Tensor ffn_up_bias;
  at::Tensor ffn_down_weight;
  at::Tensor ffn_down_bias;
};

// Layer norm over the last dimension, epsilon 1e-5.
at::Tensor LayerNorm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

// `input`: [rows, length, hidden] or [tokens, hidden]; so is the result.
at::Tensor BlockForward(const BlockParameters& parameters, int64_t heads, const AttentionShape& shape,
                        const at::Tensor& input);

}  // namespace penstock::worker
