#include "worker/tokenizer/regular_expressions.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// White_Space of Unicode. PCRE2's \s also has U+180E.
constexpr absl::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// What ByteLevel splits by (Radford et al. 2019, encoder.py), whose letters the library knows from an older
// Unicode.
constexpr absl::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

absl::Status WriteOut(const std::string& expression, std::string& result) {
  bool in_brackets = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] == '[') in_brackets = true;
    if (expression[i] == ']') in_brackets = false;
    if (expression[i] != '\\' || i + 1 == expression.size()) {
      result += expression[i];
      continue;
    }
    const char kind = expression[++i];
    if (kind == 's') {
      absl::StrAppend(&result, in_brackets ? "" : "[", kSpaces, in_brackets ? "" : "]");
    } else if (kind == 'S' && !in_brackets) {
      absl::StrAppend(&result, "[^", kSpaces, "]");
    } else if (absl::string_view("SwWdDbBhHRXyY").find(kind) != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("the expression ", expression, " has \\", std::string(1, kind),
                       ", which Penstock does not read as Hugging Face's library does: make the tokens with "
                       "transformers, and give {\"tokens\": [...]}"));
    } else {
      absl::StrAppend(&result, "\\", std::string(1, kind));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteExpressionOut(Json& part) {
  const auto pattern = part.find("pattern");
  if (pattern == part.end() || !pattern->is_object() || !pattern->contains("Regex")) return absl::OkStatus();
  std::string result;
  PENSTOCK_RETURN_IF_ERROR(WriteOut((*pattern)["Regex"].get<std::string>(), result));
  // The library drops what is between matches; to Hugging Face's that is a word of its own.
  const std::string behavior = part.value("behavior", "");
  if (behavior == "Isolated" && !part.value("invert", false))
    result = absl::StrCat("(?:", result, ")|(?:(?!", result, ")(?s:.))++");
  (*pattern)["Regex"] = result;
  return absl::OkStatus();
}

bool SplitsLikeGpt2(const Json& part) {
  // A space that is put in front belongs to the whole text: with it, splitting and bytes cannot be told
  // apart.
  return part.value("type", "") == "ByteLevel" && part.value("use_regex", true) &&
         !part.value("add_prefix_space", true);
}

Json Gpt2Split() {
  return {{"type", "Split"},
          {"pattern", {{"Regex", std::string(kGpt2)}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

// The steps with every ByteLevel that splits in two.
Json Apart(const Json& steps) {
  Json apart = Json::array();
  for (Json step : steps) {
    if (SplitsLikeGpt2(step)) {
      apart.push_back(Gpt2Split());
      step["use_regex"] = false;
    }
    apart.push_back(std::move(step));
  }
  return apart;
}

}  // namespace

absl::Status WriteExpressionsOut(Json& tokenizer) {
  const auto found = tokenizer.find("pre_tokenizer");
  if (found == tokenizer.end() || !found->is_object()) return absl::OkStatus();
  Json& part = *found;
  if (SplitsLikeGpt2(part)) part = {{"type", "Sequence"}, {"pretokenizers", Json::array({part})}};
  if (part.value("type", "") != "Sequence") return WriteExpressionOut(part);
  if (!part.contains("pretokenizers") || !part["pretokenizers"].is_array()) return absl::OkStatus();
  part["pretokenizers"] = Apart(part["pretokenizers"]);
  for (Json& step : part["pretokenizers"]) {
    if (step.is_object()) PENSTOCK_RETURN_IF_ERROR(WriteExpressionOut(step));
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
