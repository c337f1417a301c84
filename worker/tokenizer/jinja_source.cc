#include "worker/tokenizer/jinja_source.h"

#include <cctype>
#include <cstddef>

namespace penstock::worker {
namespace {

// {{ }}, {% %} or {# #}: [begin, end) of the source, with its braces.
struct Tag {
  char kind = '{';
  size_t begin = 0;
  size_t end = 0;
};

// Behind the string that begins here.
size_t EndOfString(const std::string& source, size_t begin) {
  const char quote = source[begin];
  for (size_t i = begin + 1; i < source.size(); ++i) {
    if (source[i] == '\\') {
      ++i;
    } else if (source[i] == quote) {
      return i + 1;
    }
  }
  return source.size();
}

// Strings of tags other than comments may hold what ends a tag.
size_t EndOfTag(const std::string& source, size_t begin, char kind) {
  const char closing = kind == '{' ? '}' : kind;
  for (size_t i = begin + 2; i + 1 < source.size();) {
    if (source[i] == closing && source[i + 1] == '}') return i + 2;
    const bool is_string = kind != '#' && (source[i] == '\'' || source[i] == '"');
    i = is_string ? EndOfString(source, i) : i + 1;
  }
  return source.size();
}

std::vector<Tag> TagsOf(const std::string& source) {
  std::vector<Tag> tags;
  for (size_t i = 0; i + 1 < source.size();) {
    const char kind = source[i + 1];
    if (source[i] != '{' || (kind != '{' && kind != '%' && kind != '#')) {
      ++i;
      continue;
    }
    tags.push_back({kind, i, EndOfTag(source, i, kind)});
    i = tags.back().end;
  }
  return tags;
}

// Where the spaces and tabs in front of `end` begin, if nothing else is before them on their line; else
// `end`.
size_t BeginOfIndent(const std::string& source, size_t least, size_t end) {
  size_t begin = end;
  while (begin > least && (source[begin - 1] == ' ' || source[begin - 1] == '\t')) --begin;
  const bool begins_line = begin == 0 || source[begin - 1] == '\n';
  return begins_line ? begin : end;
}

// {%+ %} and {% +%} keep what is around them, which is what the library does with {% %}: it knows no plus.
std::string WithoutPlus(std::string tag) {
  if (tag.size() < 5 || tag[1] == '{') return tag;
  if (tag[tag.size() - 3] == '+') tag.erase(tag.size() - 3, 1);
  if (tag[2] == '+') tag.erase(2, 1);
  return tag;
}

struct Word {
  // A string's is its text.
  std::string text;
  bool is_string = false;
};

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Names, strings and single characters of a tag.
std::vector<Word> WordsOf(const std::string& source, const Tag& tag) {
  std::vector<Word> words;
  for (size_t i = tag.begin + 2; i + 2 < tag.end;) {
    size_t end = i + 1;
    if (source[i] == '\'' || source[i] == '"') {
      end = EndOfString(source, i);
      words.push_back({source.substr(i + 1, end - i - 2), true});
    } else if (IsOfName(source[i])) {
      while (end < tag.end && IsOfName(source[end])) ++end;
      words.push_back({source.substr(i, end - i)});
    } else if (std::isspace(static_cast<unsigned char>(source[i])) == 0 && source[i] != '-') {
      words.push_back({std::string(1, source[i])});
    }
    i = end;
  }
  return words;
}

}  // namespace

std::string TrimBlocks(const std::string& source) {
  std::string result;
  // Of the source, what comes next.
  size_t next = 0;
  for (const Tag& tag : TagsOf(source)) {
    const bool trims = tag.kind != '{';
    const char first = tag.begin + 2 < source.size() ? source[tag.begin + 2] : ' ';
    const char last = tag.end >= 3 ? source[tag.end - 3] : ' ';
    const size_t until =
        trims && first != '+' && first != '-' ? BeginOfIndent(source, next, tag.begin) : tag.begin;
    result += source.substr(next, until - next);
    result += WithoutPlus(source.substr(tag.begin, tag.end - tag.begin));
    next = tag.end;
    if (trims && last != '+' && last != '-' && next < source.size() && source[next] == '\n') ++next;
  }
  result += source.substr(next);
  // And the last line end of all.
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<std::string> SearchedStrings(const std::string& source) {
  std::vector<std::string> strings;
  for (const Tag& tag : TagsOf(source)) {
    if (tag.kind == '#') continue;
    const std::vector<Word> words = WordsOf(source, tag);
    for (size_t i = 1; i + 1 < words.size(); ++i) {
      if (words[i].is_string || words[i].text != "in") continue;
      const bool negated = !words[i - 1].is_string && words[i - 1].text == "not" && i >= 2;
      const Word& searched = words[negated ? i - 2 : i - 1];
      const Word& in = words[i + 1];
      const bool in_list = !in.is_string && (in.text == "[" || in.text == "(");
      if (searched.is_string && !in_list) strings.push_back(searched.text);
    }
  }
  return strings;
}

}  // namespace penstock::worker
