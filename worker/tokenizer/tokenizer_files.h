// What a folder of Hugging Face's says of its tokenizer.
//
//   tokenizer.json                 a vocabulary of byte pairs or Unigram, with how text is cut and what is
//   put around it tokenizer.model, spiece.model  SentencePiece's tokenizer_config.json          names of
//   special tokens, and often the chat template chat_template.jinja            the chat template, where it is
//   a file of its own
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock::worker {

struct TokenizerFiles {
  // One of them is empty.
  std::string json_path = {};
  std::string sentence_piece_path = {};
  // Of json_path.
  nlohmann::json tokenizer = {};
  // Of tokenizer_config.json; an object, empty where there is none.
  nlohmann::json config = {};
  // Empty: none.
  std::string chat_template = {};
};

// `path`: a folder, or one of the first three files above. Where a folder has both, tokenizer.json counts,
// unless its kind is not known. Possible errors: NOT_FOUND,
// INVALID_ARGUMENT; both name the file.
absl::StatusOr<TokenizerFiles> FindTokenizer(const std::string& path);

// The text of a special token of tokenizer_config.json, such as "eos_token"; "" where it has none.
std::string SpecialToken(const TokenizerFiles& files, const std::string& name);

// Tokens around a text.
struct TextEnds {
  std::vector<int32_t> prefix = {};
  std::vector<int32_t> suffix = {};
};

// As the post-processor of tokenizer.json has them. Possible errors: INVALID_ARGUMENT (one of an unknown
// kind).
absl::StatusOr<TextEnds> EndsOf(const nlohmann::json& post_processor);

// The id of a token of tokenizer.json; -1: it has none of this text.
int32_t IdOf(const nlohmann::json& tokenizer, const std::string& token);

}  // namespace penstock::worker
