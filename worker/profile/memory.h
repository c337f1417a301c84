// Bytes that a stage keeps for each token, counted from the tensors that it makes. Without LibTorch.
#pragma once

#include "worker/profile/measured_profile.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Bytes of one element.
double ElementBytes(DataType type);

// One layer keeps without recompute, e bytes an element: input, both norms' outputs and the middle of the
// residual stream (4 hidden), query, key and value (3 inner), attention's output twice (packed samples are
// put together: 2 inner), both sides of GELU (2 ffn), the norms' statistics (4 float32) and attention's
// log-sum (1 float32 a head). With full recompute: the input. While it runs backward, gradients of the widest
// of these exist besides.
TokenBytes LayerTokenBytes(const ModelConfig& config);

// The head keeps the final norm's output and its gradient. While it runs, one chunk of logits exists, twice,
// in float32; it is spread over the tokens of one longest sample.
TokenBytes HeadTokenBytes(const ModelConfig& config);

// Parameters of one layer, the head (with the final norm) and the embeddings, bytes.
double LayerParameterBytes(const ModelConfig& config);
double HeadParameterBytes(const ModelConfig& config);
double EmbeddingParameterBytes(const ModelConfig& config);

// Parameter, gradient and AdamW state for each byte of parameters, and the part that is optimizer state
// (moments, and masters of bfloat16).
double StateBytesPerParameterByte(DataType type);
double OptimizerBytesPerParameterByte(DataType type);

}  // namespace penstock::worker
