#include "worker/tokenizer/text_pattern.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// Characters that mean something else than themselves in an expression.
constexpr std::string_view kSpecial = R"(\^$.|?*+()[]{})";

// Of "TEXT{n,}" and "TEXT+", TEXT one character that stands for itself; else nothing.
bool ReadRun(const std::string& expression, TextPattern& pattern) {
  std::string_view text = expression;
  if (text.ends_with("+")) {
    pattern.least = 1;
    text.remove_suffix(1);
  } else {
    const size_t brace = text.find('{');
    if (brace == std::string_view::npos || !text.ends_with(",}")) return false;
    uint32_t least = 0;
    const std::string count(text.substr(brace + 1, text.size() - brace - 3));
    if (!absl::SimpleAtoi(count, &least) || least == 0) return false;
    pattern.least = least;
    text = text.substr(0, brace);
  }
  pattern.text = text;
  // Of several characters the last alone would repeat.
  size_t characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return characters == 1 && text.find_first_of(kSpecial) == std::string_view::npos;
}

}  // namespace

TextPattern::Match TextPattern::Find(std::string_view in, size_t from) const {
  if (text.empty()) return {};
  for (;;) {
    const size_t begin = in.find(text, from);
    if (begin == std::string_view::npos) return {};
    size_t end = begin + text.size();
    if (least == 0) return {begin, end};
    while (in.substr(end).starts_with(text)) end += text.size();
    if (end - begin >= least * text.size()) return {begin, end};
    from = end;
  }
}

absl::StatusOr<TextPattern> ReadPattern(const Json& json, const std::string& part) {
  TextPattern pattern;
  if (json.is_object() && json.contains("String") && json["String"].is_string()) {
    pattern.text = json["String"].get<std::string>();
    return pattern;
  }
  if (json.is_object() && json.contains("Regex") && json["Regex"].is_string()) {
    const auto expression = json["Regex"].get<std::string>();
    if (ReadRun(expression, pattern)) return pattern;
    const bool plain = expression.find_first_of(kSpecial) == std::string::npos;
    if (plain) return TextPattern{.text = expression};
    return absl::InvalidArgumentError(
        absl::StrCat(part, ": the expression ", expression,
                     " is none that Penstock reads without a vocabulary of bytes: make the tokens with "
                     "transformers, and give {\"tokens\": [...]}"));
  }
  return absl::InvalidArgumentError(absl::StrCat(part, ": the pattern ", json.dump(), " is not known"));
}

std::string ReplaceAll(const std::string& in, const TextPattern& pattern, const std::string& content) {
  std::string result;
  size_t at = 0;
  for (TextPattern::Match match = pattern.Find(in, 0); match.begin != std::string_view::npos;
       match = pattern.Find(in, at)) {
    result.append(in, at, match.begin - at);
    result += content;
    at = match.end;
  }
  return result.append(in, at);
}

}  // namespace penstock::worker
