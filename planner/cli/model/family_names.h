// `model_type` of the families that Penstock knows, as config.json has it.
#pragma once

namespace penstock::cli {

inline constexpr const char* kCwm = "cwm";
inline constexpr const char* kExaone4 = "exaone4";
inline constexpr const char* kGemma = "gemma";
inline constexpr const char* kGemma2 = "gemma2";
inline constexpr const char* kGemma3 = "gemma3_text";
inline constexpr const char* kGpt2 = "gpt2";
inline constexpr const char* kGranite = "granite";
inline constexpr const char* kLlama = "llama";
inline constexpr const char* kMinistral = "ministral";
inline constexpr const char* kMistral = "mistral";
inline constexpr const char* kMixtral = "mixtral";
inline constexpr const char* kMt5 = "mt5";
inline constexpr const char* kOlmo2 = "olmo2";
inline constexpr const char* kOlmo3 = "olmo3";
inline constexpr const char* kOlmoe = "olmoe";
inline constexpr const char* kPhi3 = "phi3";
inline constexpr const char* kQwen2 = "qwen2";
inline constexpr const char* kQwen2Moe = "qwen2_moe";
inline constexpr const char* kQwen3 = "qwen3";
inline constexpr const char* kQwen3Moe = "qwen3_moe";
inline constexpr const char* kSeedOss = "seed_oss";
inline constexpr const char* kSmolLm3 = "smollm3";
inline constexpr const char* kStableLm = "stablelm";
inline constexpr const char* kStarcoder2 = "starcoder2";
inline constexpr const char* kT5 = "t5";

}  // namespace penstock::cli
