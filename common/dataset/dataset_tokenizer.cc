#include "common/dataset/dataset_tokenizer.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/hash/sha256.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Goes up when the text below changes: records of other versions are not compared.
constexpr int kVersion = 1;

constexpr const char* kText =
    "The quick brown fox doesn't jump over 1,234,567 lazy dogs; it's 3.14159 (or so).\n\n"
    "def f(x):\n\treturn {'a': x ** 2}  # two  spaces, CamelCase, snake_case\r\n"
    "Größe, naïve café, Ελληνικά, Русский, עברית, العربية, हिन्दी, ไทย, 中文, 日本語, 한국어 "
    "🙂\n"
    "<s>[INST]</s><|endoftext|><|im_start|>user<|eot_id|>";

constexpr const char* kConversation =
    R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},)"
    R"( {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"}])";

struct TokenizerRecord {
  std::string dataset;
  uint32_t vocab = 0;
  // SHA-256 of the tokens, in hexadecimal digits.
  std::string tokens;
};

// Whether the tokenizer works, and refuses the text, or has no template for it.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
}

std::string RecordFile(const std::string& prefix) { return absl::StrCat(prefix, ".tokenizer.json"); }

uint64_t TokensOf(const IndexedDataset& dataset) {
  uint64_t tokens = 0;
  for (size_t i = 0; i < dataset.size(); ++i)
    tokens += uint64_t{dataset.Length(i).input} + dataset.Length(i).target;
  return tokens;
}

std::optional<TokenizerRecord> ReadRecord(const PlacedDataset& placed) {
  const auto json = nlohmann::json::parse(ReadFile(RecordFile(placed.prefix)).value_or(""), nullptr,
                                          /*allow_exceptions=*/false);
  const auto number = [&json](const char* name) {
    return json.contains(name) && json[name].is_number_unsigned() ? json[name].get<uint64_t>() : 0;
  };
  if (!json.is_object() || number("version") != kVersion || number("samples") != placed.dataset->size() ||
      number("dataset_tokens") != TokensOf(*placed.dataset) || !json.contains("tokens") ||
      !json["tokens"].is_string())
    return std::nullopt;
  return TokenizerRecord{
      .dataset = placed.prefix, .vocab = static_cast<uint32_t>(number("vocab")), .tokens = json["tokens"]};
}

}  // namespace

absl::StatusOr<std::string> TokenizerFingerprint(TextTokenizer& tokenizer) {
  const TokenizerInfo& info = tokenizer.info();
  const absl::StatusOr<std::vector<int32_t>> tokens = tokenizer.Encode(kText);
  const absl::StatusOr<std::string> chat = tokenizer.Render(kConversation, /*add_generation_prompt=*/true);
  for (const absl::Status& status : {tokens.status(), chat.status()})
    if (!status.ok() && !IsRefusal(status)) return status;
  return absl::BytesToHexString(Sha256(absl::StrCat(
      info.vocab, ";", info.end, ";", absl::StrJoin(info.prefix, ","), ";", absl::StrJoin(info.suffix, ","),
      ";", tokens.ok() ? absl::StrJoin(*tokens, ",") : tokens.status().ToString(), ";",
      chat.ok() ? *chat : chat.status().ToString())));
}

absl::Status RecordTokenizer(const std::string& prefix, TextTokenizer* tokenizer) {
  if (tokenizer == nullptr) return RemoveFile(RecordFile(prefix));
  const absl::StatusOr<std::vector<int32_t>> tokens = tokenizer->Encode(kText);
  if (!tokens.ok()) return RemoveFile(RecordFile(prefix));
  PENSTOCK_ASSIGN_OR_RETURN(const auto dataset, IndexedDataset::Open(prefix));
  const nlohmann::ordered_json json = {
      {"version", kVersion},
      {"samples", dataset->size()},
      {"dataset_tokens", TokensOf(*dataset)},
      {"vocab", tokenizer->info().vocab},
      {"tokens", absl::BytesToHexString(Sha256(absl::StrJoin(*tokens, ",")))}};
  return WriteFileAtomically(RecordFile(prefix), json.dump(1) + "\n");
}

absl::Status CheckSameTokenizer(const std::vector<PlacedDataset>& datasets) {
  std::optional<TokenizerRecord> first;
  for (const PlacedDataset& placed : datasets) {
    std::optional<TokenizerRecord> record = ReadRecord(placed);
    if (!record.has_value()) continue;
    if (!first.has_value())
      first = std::move(record);
    else if (record->vocab != first->vocab || record->tokens != first->tokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", record->dataset, "' was made with another tokenizer (", record->vocab, " ids) than '",
          first->dataset, "' (", first->vocab,
          " ids), and a model has one: import them with the model's, penstock dataset import --tokenizer"));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
