#include "planner/cli/inference/prompt.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/kept_files.h"

namespace penstock::cli {
namespace {

constexpr uint32_t kBytes = 256;

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

absl::StatusOr<Prompt> TokenizedPrompt(const PromptRequest& request, TextTokenizer& tokenizer) {
  if (request.chat) {
    const nlohmann::json messages = {{{"role", "user"}, {"content", request.text}}};
    const absl::StatusOr<std::string> text =
        tokenizer.Render(messages.dump(), /*add_generation_prompt=*/true);
    if (!text.ok()) return AnnotateError(text.status(), "--chat");
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.Encode(*text));
    return Prompt{.tokens = std::move(tokens)};
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> own, tokenizer.Encode(request.text));
  const TokenizerInfo& info = tokenizer.info();
  Prompt prompt = {.tokens = info.prefix};
  prompt.tokens.insert(prompt.tokens.end(), own.begin(), own.end());
  // Of a T5, whose input ends where the text does.
  prompt.tokens.insert(prompt.tokens.end(), info.suffix.begin(), info.suffix.end());
  return prompt;
}

absl::StatusOr<Prompt> BytePrompt(const v1::ModelSpec& model, const std::string& text) {
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

}  // namespace

absl::StatusOr<Prompt> PromptOf(const v1::ModelSpec& model, const PromptRequest& request,
                                TextTokenizer* tokenizer) {
  if (request.text.empty() == request.tokens.empty())
    return absl::InvalidArgumentError("give either PROMPT or --tokens");
  if (!request.tokens.empty()) return Prompt{.tokens = request.tokens};
  if (tokenizer != nullptr) return TokenizedPrompt(request, *tokenizer);
  if (request.chat)
    return absl::InvalidArgumentError(
        "--chat: this model came without a tokenizer, and so without a template");
  return BytePrompt(model, request.text);
}

absl::StatusOr<std::vector<int32_t>> EndTokens(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, EndTokensIn(KeptFile(folder, name)));
    if (!tokens.empty()) return tokens;
  }
  return std::vector<int32_t>();
}

}  // namespace penstock::cli
