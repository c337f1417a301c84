// config.json of one model of each family, as Hugging Face has it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// As meta-llama/Llama-3.2-1B has it.
nlohmann::json Llama();
nlohmann::json Gpt2();
// As mistralai/Mixtral-8x7B-v0.1 has it.
nlohmann::json Mixtral();
// As Qwen/Qwen3-0.6B has it.
nlohmann::json Qwen3();
// As Qwen/Qwen3-30B-A3B has it.
nlohmann::json Qwen3Moe();
// As Qwen/Qwen2.5-0.5B has it.
nlohmann::json Qwen2();
// As Qwen/Qwen1.5-MoE-A2.7B has it.
nlohmann::json Qwen2Moe();
// As allenai/OLMoE-1B-7B-0924 has it.
nlohmann::json Olmoe();
// As google/t5-v1_1-small has it.
nlohmann::json T5();
// ibm-granite/granite-3.1-2b-base
nlohmann::json Granite();
// HuggingFaceTB/SmolLM3-3B
nlohmann::json SmolLm3();
// As google/gemma-2-2b has it.
nlohmann::json Gemma2();
// As google/gemma-3-1b-it has it.
nlohmann::json Gemma3();
// As allenai/OLMo-2-0425-1B has it.
nlohmann::json Olmo2();
// As microsoft/Phi-4-mini-instruct has it, with as many factors.
nlohmann::json Phi4Mini();
// As mistralai/Mistral-7B-v0.3 has it.
nlohmann::json Mistral();

// What a configuration says, which must be read without an error.
v1::ModelSpec SpecOf(const nlohmann::json& config);
// Why a configuration with another value in one field is refused; empty: it is not.
std::string RefusalOf(nlohmann::json config, const std::string& field, const nlohmann::json& value);

}  // namespace penstock::cli
