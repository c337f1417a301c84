// One function for each family of models that config.json may describe. Private to hugging_face_config.cc.
#pragma once

#include "penstock/v1/job.pb.h"
#include "planner/cli/model/config_fields.h"

namespace penstock::cli {

void ReadGpt2(ConfigFields& fields, v1::ModelSpec& model);
void ReadLlama(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama whose queries, keys and values alone have biases.
void ReadQwen2(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama without biases, with a window in all layers.
void ReadMistral(ConfigFields& fields, v1::ModelSpec& model);
// The same with a window in any layers.
void ReadMinistral(ConfigFields& fields, v1::ModelSpec& model);
// As a Mistral, with other tensors: queries, keys and values are one, gate and up another.
void ReadPhi3(ConfigFields& fields, v1::ModelSpec& model);
// As a Mistral with experts, whose weights sum to 1.
void ReadMixtral(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama whose queries and keys are normalised.
void ReadQwen3(ConfigFields& fields, v1::ModelSpec& model);
// The same with experts in every layer.
void ReadQwen3Moe(ConfigFields& fields, v1::ModelSpec& model);
// As a Qwen2 with experts in every layer, and one that all tokens share.
void ReadQwen2Moe(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama with experts in every layer, norms over all queries and over all keys, and clipped queries, keys
// and values.
void ReadOlmoe(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama with multipliers.
void ReadGranite(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama of whose layers every fourth has no positions.
void ReadSmolLm3(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama with other norms and another activation, of which embeddings are multiplied by the root of
// `hidden`.
void ReadGemma(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama with norms behind its parts too, capped scores and logits, and windows in every other layer.
void ReadGemma2(ConfigFields& fields, v1::ModelSpec& model);
// The same without capped scores, with norms of queries and keys, and windows in five of six layers, which
// turn by another theta.
void ReadGemma3(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama whose norms stand behind its parts alone, with norms over all queries and over all keys.
void ReadOlmo2(ConfigFields& fields, v1::ModelSpec& model);
// The same with windows in three of four layers, which turn without a scaling.
void ReadOlmo3(ConfigFields& fields, v1::ModelSpec& model);
// The same with norms of each head, and positions in layers with a window alone.
void ReadExaone4(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama whose queries, keys and values may have biases without the output having one.
void ReadSeedOss(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama with windows in three of four layers.
void ReadCwm(ConfigFields& fields, v1::ModelSpec& model);
// As a Llama with layer norms, of whose heads a part turns.
void ReadStableLm(ConfigFields& fields, v1::ModelSpec& model);
// As a Mistral with layer norms, biases and a GELU without a gate.
void ReadStarcoder2(ConfigFields& fields, v1::ModelSpec& model);
// A T5 whose head is never scaled, and tied unless the checkpoint has one.
void ReadMt5(ConfigFields& fields, v1::ModelSpec& model);
void ReadT5(ConfigFields& fields, v1::ModelSpec& model);

}  // namespace penstock::cli
