#include "planner/cli/inference/prompt.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/kept_files.h"

namespace penstock::cli {
namespace {

constexpr uint32_t kBytes = 256;

// The file that its tokens are made with; empty: none came.
std::string TokenizerOf(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"}) {
    std::error_code ignored;
    if (std::filesystem::exists(KeptFile(folder, name), ignored)) return name;
  }
  return "";
}

absl::StatusOr<std::vector<int32_t>> EndTokensIn(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) return std::vector<int32_t>();
  PENSTOCK_RETURN_IF_ERROR(text.status());
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat("'", file, "' is no JSON object"));
  const auto found = json.find("eos_token_id");
  if (found == json.end() || found->is_null()) return std::vector<int32_t>();
  const nlohmann::json ids = found->is_array() ? *found : nlohmann::json::array({*found});
  std::vector<int32_t> tokens;
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_integer())
      return absl::InvalidArgumentError(absl::StrCat("'", file, "': eos_token_id: ", found->dump()));
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

}  // namespace

absl::StatusOr<Prompt> PromptOf(const std::string& folder, const v1::ModelSpec& model,
                                const std::string& text, const std::vector<int32_t>& tokens) {
  if (text.empty() == tokens.empty()) return absl::InvalidArgumentError("give either PROMPT or --tokens");
  if (!tokens.empty()) return Prompt{.tokens = tokens};
  const std::string tokenizer = TokenizerOf(folder);
  if (!tokenizer.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("PROMPT: this model's tokens are made by its ", tokenizer,
                     ", which Penstock keeps and does not run: give --tokens 1,2,3"));
  }
  if (model.vocab() > kBytes) {
    return absl::InvalidArgumentError(absl::StrCat("PROMPT: this model has ", model.vocab(),
                                                   " tokens, which are not bytes: give --tokens 1,2,3"));
  }
  Prompt prompt = {.tokens = {}, .as_bytes = true};
  for (const char c : text) prompt.tokens.push_back(static_cast<unsigned char>(c));
  for (const int32_t byte : prompt.tokens) {
    if (static_cast<uint32_t>(byte) < model.vocab()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("PROMPT: byte ", byte, " was in no sample that the model was trained on"));
  }
  return prompt;
}

absl::StatusOr<std::vector<int32_t>> EndTokens(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, EndTokensIn(KeptFile(folder, name)));
    if (!tokens.empty()) return tokens;
  }
  return std::vector<int32_t>();
}

}  // namespace penstock::cli
