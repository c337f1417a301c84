// A model as config.json of each family has it, for transformers to read: one function a family, one file a
// family or those like it.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// Possible errors of all: INVALID_ARGUMENT (the family has no model like this one: names the field).
absl::StatusOr<nlohmann::ordered_json> Exaone4Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Gemma2Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Gemma3Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> GemmaConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Gpt2Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> GraniteConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> LlamaConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> MinistralConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> MistralConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> MixtralConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Olmo2Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Olmo3Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> OlmoeConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Phi3Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Qwen2Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Qwen2MoeConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Qwen3Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Qwen3MoeConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> SmolLm3Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> StableLmConfig(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> Starcoder2Config(const v1::ModelSpec& model);
absl::StatusOr<nlohmann::ordered_json> T5Config(const v1::ModelSpec& model);

}  // namespace penstock::cli
