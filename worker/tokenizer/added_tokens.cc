#include "worker/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/tokenizer/utf8.h"

namespace penstock::worker {
namespace {

// Where the spaces at the end of the text begin.
size_t BeginOfSpaces(std::string_view text) {
  while (SpaceBytesAtEnd(text) > 0) text.remove_suffix(SpaceBytesAtEnd(text));
  return text.size();
}

size_t SpacesAtBegin(std::string_view text) {
  const size_t bytes = text.size();
  while (SpaceBytes(text) > 0) text.remove_prefix(SpaceBytes(text));
  return bytes - text.size();
}

}  // namespace

void AddedTokens::Insert(Added added, Set& set) {
  if (added.text.empty()) return;
  set.longest = std::max(set.longest, added.text.size());
  set.begins.insert(added.text.front());
  set.by_text.insert_or_assign(added.text, added);
}

const AddedTokens::Added* AddedTokens::Set::LongestAt(std::string_view text, size_t at) const {
  if (!begins.contains(text[at])) return nullptr;
  for (size_t bytes = std::min(longest, text.size() - at); bytes > 0; --bytes) {
    const auto found = by_text.find(text.substr(at, bytes));
    if (found != by_text.end()) return &found->second;
  }
  return nullptr;
}

absl::StatusOr<AddedTokens> AddedTokens::Create(const nlohmann::json& json, const Normalizer& normalizer) {
  AddedTokens tokens;
  for (const nlohmann::json& entry : json) {
    Added added = {.text = entry.value("content", ""),
                   .id = entry.value("id", -1),
                   .takes_spaces_before = entry.value("lstrip", false),
                   .takes_spaces_behind = entry.value("rstrip", false)};
    if (entry.value("single_word", false)) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: '", added.text, "' is a single_word, which Penstock does not do"));
    }
    const bool special = entry.value("special", false);
    if (special) tokens.special_.insert(added.id);
    const bool normalized = entry.value("normalized", !special);
    // What is made of its id, too.
    if (normalized) added.text = normalizer(added.text);
    tokens.content_[added.id] = added.text;
    if (normalized) {
      Insert(std::move(added), tokens.behind_normalizing_);
    } else {
      Insert(std::move(added), tokens.before_normalizing_);
    }
  }
  return tokens;
}

const std::string* AddedTokens::ContentOf(int32_t token) const {
  const auto found = content_.find(token);
  return found == content_.end() ? nullptr : &found->second;
}

std::vector<AddedTokens::Section> AddedTokens::CutBy(const Set& set, const std::string& text, bool is_first) {
  std::vector<Section> sections;
  // Of the text, what is in no section yet.
  size_t rest = 0;
  for (size_t at = 0; at < text.size();) {
    const Added* const found = set.LongestAt(text, at);
    if (found == nullptr) {
      at += CharacterBytes(text, at);
      continue;
    }
    size_t begin = at;
    at += found->text.size();
    size_t end = at;
    if (found->takes_spaces_before)
      begin = std::max(BeginOfSpaces(std::string_view(text).substr(0, begin)), rest);
    if (found->takes_spaces_behind) end += SpacesAtBegin(std::string_view(text).substr(end));
    if (rest < begin)
      sections.push_back({.text = text.substr(rest, begin - rest), .is_first = is_first && rest == 0});
    sections.push_back({.token = found->id});
    rest = end;
  }
  if (rest < text.size()) sections.push_back({.text = text.substr(rest), .is_first = is_first && rest == 0});
  return sections;
}

std::vector<AddedTokens::Section> AddedTokens::Cut(const std::string& text,
                                                   const Normalizer& normalizer) const {
  std::vector<Section> sections;
  for (Section& section : CutBy(before_normalizing_, text, /*is_first=*/true)) {
    if (section.token >= 0) {
      sections.push_back(std::move(section));
      continue;
    }
    for (Section& inner : CutBy(behind_normalizing_, normalizer(section.text), section.is_first))
      sections.push_back(std::move(inner));
  }
  return sections;
}

}  // namespace penstock::worker
