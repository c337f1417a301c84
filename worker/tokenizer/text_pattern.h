// What a part of tokenizer.json looks for in texts.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace penstock::worker {

// A text, or a run of at least so many of it: {"String": " "}, {"Regex": " {2,}"}.
struct TextPattern {
  std::string text;
  // 0: it does not repeat.
  size_t least = 0;

  // The first place at or behind `from`; npos as its begin: there is none.
  struct Match {
    size_t begin = std::string_view::npos;
    size_t end = 0;
  };
  Match Find(std::string_view in, size_t from) const;
};

// `part` names it in errors. Possible errors: INVALID_ARGUMENT (an expression of another kind).
absl::StatusOr<TextPattern> ReadPattern(const nlohmann::json& json, const std::string& part);

// All matches, from the left, become `content`.
std::string ReplaceAll(const std::string& in, const TextPattern& pattern, const std::string& content);

}  // namespace penstock::worker
