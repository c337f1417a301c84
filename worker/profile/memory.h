// Bytes that a stage keeps for each token, counted from the tensors that it makes (worker/model/block.h).
// Without LibTorch.
#pragma once

#include <cstdint>

#include "worker/model/score_chunk.h"
#include "worker/profile/measured_profile.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Bytes of one element.
double ElementBytes(DataType type);

// Of a layer of the decoder, or of a decoder-only model; and of T5's encoder.
//
// Without recompute a layer keeps, e bytes an element: the input and the output of each norm (2 hidden each),
// the operands of attention and what it attended (4 inner), of cross-attention query and what it attended (2
// inner a target token) and key and value (2 inner a source token), what the feed-forward part's products
// read and what its activation needs (1 to 3 ffn); and for each norm its statistics, for each attention the
// logarithm of a sum for each head. With selective recompute all but the latter, with full recompute the
// input. What a split backward pass puts aside is no more than the first of these, which counts it where it
// is the larger (ReLU). While it runs backward, what it recomputes exists besides, and gradients of the
// feed-forward part or, when what that computed with is gone, of attention; of attention with a relative bias
// also the scores of some heads (score_chunk.h).
LayerBytes DecoderLayerBytes(const ModelConfig& config, int64_t scores_per_chunk = kScoresPerChunkOnCpu);
LayerBytes EncoderLayerBytes(const ModelConfig& config, int64_t scores_per_chunk = kScoresPerChunkOnCpu);

// Of a layer without experts in a model whose others have some.
LayerBytes DenseLayerBytes(const ModelConfig& config, int64_t scores_per_chunk = kScoresPerChunkOnCpu);

// The head keeps the gradient of its input. While it runs, the final norm's output and its gradient exist and
// one chunk of logits, twice, in float32; it is spread over the tokens of one longest sample.
LayerBytes HeadBytes(const ModelConfig& config);

// Parameters of one layer, the head (with the final norm) and the embedding of one stage, bytes.
double DecoderParameterBytes(const ModelConfig& config);
double DenseParameterBytes(const ModelConfig& config);
double EncoderParameterBytes(const ModelConfig& config);
double HeadParameterBytes(const ModelConfig& config);
double EmbeddingParameterBytes(const ModelConfig& config);

// Parameter, gradient and AdamW state for each byte of parameters, and the part that is optimizer state
// (moments, and masters of bfloat16).
double StateBytesPerParameterByte(DataType type);
double OptimizerBytesPerParameterByte(DataType type);

}  // namespace penstock::worker
