// The models that the tests divide over tensor ranks, and slices of whole parameters.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/worker/model_testing.h"
#include "worker/model/parameter_part.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {

struct DividedModel {
  const char* name;
  ModelConfig (*config)(DataType type);
};

inline ModelConfig WithFourHeads(ModelConfig config, int64_t key_value_heads = 0) {
  config.heads = 4;
  config.attention_inner = 32;
  config.key_value_heads = key_value_heads;
  return config;
}

inline ModelConfig Tied(ModelConfig config) {
  config.tied_head = true;
  config.tied_embeddings = config.architecture == Architecture::kT5;
  return config;
}

// 4 tensor ranks can divide all of them, and none of them the vocabulary evenly. The Llama has 2 heads of
// keys and values.
inline const std::vector<DividedModel>& DividedModels() {
  static const std::vector<DividedModel> models = {
      {"Gpt", [](DataType type) { return WithFourHeads(SmallConfig(type)); }},
      {"GptTied", [](DataType type) { return Tied(WithFourHeads(SmallConfig(type))); }},
      {"Llama", [](DataType type) { return WithFourHeads(SmallLlamaConfig(type), 2); }},
      {"Experts", [](DataType type) { return WithFourHeads(SmallExpertsConfig(type), 2); }},
      {"Gemma", [](DataType type) { return WithFourHeads(SmallGemmaConfig(type), 2); }},
      {"SharedExpert", [](DataType type) { return WithFourHeads(SmallSharedExpertConfig(type), 2); }},
      {"SomeExperts", [](DataType type) { return WithFourHeads(SmallSomeExpertsConfig(type), 2); }},
      {"Olmo", [](DataType type) { return WithFourHeads(SmallOlmoConfig(type), 2); }},
      {"T5", [](DataType type) { return WithFourHeads(SmallT5Config(type)); }},
      {"T5Tied", [](DataType type) { return Tied(WithFourHeads(SmallT5Config(type))); }},
  };
  return models;
}

inline std::string NameOfModel(const ::testing::TestParamInfo<DividedModel>& info) { return info.param.name; }

// A view of the block of a whole parameter.
inline at::Tensor BlockOfWhole(const Block& block, const at::Tensor& whole) {
  const at::Tensor matrix = whole.dim() < 2 ? whole.view({1, -1}) : whole.flatten(1);
  return matrix.narrow(0, block.first_row, block.rows()).narrow(1, block.first_column, block.columns());
}

// What a rank has of the whole parameter, in its shape.
inline at::Tensor SliceOfWhole(const ParameterPart& part, const at::Tensor& whole) {
  std::vector<at::Tensor> blocks;
  for (const OwnBlock& own : part.blocks) blocks.push_back(BlockOfWhole(own.block, whole).flatten());
  return at::cat(blocks).view(part.shape);
}

}  // namespace penstock::worker
