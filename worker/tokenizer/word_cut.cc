#include "worker/tokenizer/word_cut.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/text_pattern.h"
#include "worker/tokenizer/utf8.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// What becomes of a match that cuts.
enum class Delimiter { kRemoved, kIsolated, kWithPrevious, kWithNext };

// Adds what is not empty.
void AddWord(const std::string& text, bool is_first, std::vector<Word>& words) {
  if (!text.empty()) words.push_back({text, is_first});
}

void CutAt(const Word& word, const TextPattern& pattern, Delimiter delimiter, std::vector<Word>& words) {
  size_t begin = 0;
  const auto add_until = [&](size_t end) {
    AddWord(word.text.substr(begin, end - begin), word.is_first && begin == 0, words);
    begin = end;
  };
  size_t from = 0;
  for (;;) {
    const TextPattern::Match match = pattern.Find(word.text, from);
    if (match.begin == std::string_view::npos) break;
    if (delimiter != Delimiter::kWithPrevious) add_until(match.begin);
    if (delimiter == Delimiter::kRemoved) begin = match.end;
    if (delimiter == Delimiter::kIsolated || delimiter == Delimiter::kWithPrevious) add_until(match.end);
    from = match.end;
  }
  add_until(word.text.size());
}

WordCut CutEach(std::function<void(const Word& word, std::vector<Word>& words)> cut) {
  return [cut = std::move(cut)](const std::vector<Word>& words) {
    std::vector<Word> result;
    for (const Word& word : words) cut(word, result);
    return result;
  };
}

absl::StatusOr<WordCut> MakeSplit(const Json& json) {
  PENSTOCK_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(json.value("pattern", Json()), "pre_tokenizer"));
  const std::string behavior = json.value("behavior", "");
  Delimiter delimiter = Delimiter::kIsolated;
  if (behavior == "Removed") {
    delimiter = Delimiter::kRemoved;
  } else if (behavior == "MergedWithPrevious") {
    delimiter = Delimiter::kWithPrevious;
  } else if (behavior == "MergedWithNext") {
    delimiter = Delimiter::kWithNext;
  } else if (behavior != "Isolated") {
    return absl::InvalidArgumentError(absl::StrCat("pre_tokenizer: Split: behavior '", behavior,
                                                   "'; known are Removed, Isolated, MergedWithPrevious and "
                                                   "MergedWithNext"));
  }
  if (json.value("invert", false))
    return absl::InvalidArgumentError("pre_tokenizer: Split: invert is true, which Penstock does not do");
  return CutEach([pattern = std::move(pattern), delimiter](const Word& word, std::vector<Word>& words) {
    CutAt(word, pattern, delimiter, words);
  });
}

void CutAtSpaces(const Word& word, std::vector<Word>& words) {
  std::string part;
  size_t begin = 0;
  for (size_t at = 0; at < word.text.size();) {
    const size_t space = SpaceBytes(std::string_view(word.text).substr(at));
    if (space > 0) {
      AddWord(word.text.substr(begin, at - begin), word.is_first && begin == 0, words);
      begin = at + space;
    }
    at += space > 0 ? space : CharacterBytes(word.text, at);
  }
  AddWord(word.text.substr(begin), word.is_first && begin == 0, words);
}

absl::StatusOr<WordCut> MakeMetaspace(const Json& json) {
  const std::string mark = json.value("replacement", "");
  const std::string scheme = json.value("prepend_scheme", "always");
  if (mark.empty() || (scheme != "always" && scheme != "first" && scheme != "never")) {
    return absl::InvalidArgumentError(absl::StrCat("pre_tokenizer: Metaspace: prepend_scheme '", scheme,
                                                   "'; known are always, first and never"));
  }
  if (!json.value("add_prefix_space", true) && scheme != "never")
    return absl::InvalidArgumentError(
        "pre_tokenizer: Metaspace: add_prefix_space is false; prepend_scheme is not");
  return CutEach(
      [mark, scheme, split = json.value("split", true)](const Word& word, std::vector<Word>& words) {
        Word marked = {absl::StrReplaceAll(word.text, {{" ", mark}}), word.is_first};
        const bool prepends = scheme == "always" || (scheme == "first" && word.is_first);
        if (prepends && !marked.text.starts_with(mark)) marked.text = mark + marked.text;
        if (split) return CutAt(marked, {.text = mark}, Delimiter::kWithNext, words);
        words.push_back(std::move(marked));
      });
}

absl::StatusOr<WordCut> MakeSequence(const Json& json) {
  std::vector<WordCut> steps;
  for (const Json& step : json.value("pretokenizers", Json::array())) {
    PENSTOCK_ASSIGN_OR_RETURN(WordCut cut, MakeWordCut(step));
    steps.push_back(std::move(cut));
  }
  return [steps = std::move(steps)](std::vector<Word> words) {
    for (const WordCut& step : steps) words = step(std::move(words));
    return words;
  };
}

}  // namespace

absl::StatusOr<WordCut> MakeWordCut(const Json& json) {
  if (json.is_null()) return [](std::vector<Word> words) { return words; };
  const std::string type = json.is_object() ? json.value("type", "") : "";
  if (type == "Sequence") return MakeSequence(json);
  if (type == "Metaspace") return MakeMetaspace(json);
  if (type == "WhitespaceSplit") return CutEach(CutAtSpaces);
  if (type == "Split") return MakeSplit(json);
  return absl::InvalidArgumentError(
      absl::StrCat("Penstock does not know its pre_tokenizer (", type,
                   ") without a vocabulary of bytes: make the tokens with transformers, and give "
                   "{\"tokens\": [...]}"));
}

}  // namespace penstock::worker
