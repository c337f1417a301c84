#include "worker/model/block.h"

#include <ATen/ATen.h>

namespace penstock::worker {

at::Tensor LayerNorm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  constexpr double kEpsilon = 1e-5;
  return at::layer_norm(input, weight.sizes(), weight, bias, kEpsilon);
}

at::Tensor BlockForward(const BlockParameters& p, int64_t heads, const AttentionShape& shape,
                        const at::Tensor& input) {
  const at::Tensor qkv =
      at::linear(LayerNorm(input, p.attention_norm_weight, p.attention_norm_bias), p.qkv_weight, p.qkv_bias);
  const at::Tensor attended = CausalAttention(qkv, heads, shape);
  const at::Tensor middle = input + at::linear(attended, p.attention_output_weight, p.attention_output_bias);
  const at::Tensor up =
      at::linear(LayerNorm(middle, p.ffn_norm_weight, p.ffn_norm_bias), p.ffn_up_weight, p.ffn_up_bias);
  return middle + at::linear(at::gelu(up, "tanh"), p.ffn_down_weight, p.ffn_down_bias);
}

}  // namespace penstock::worker
