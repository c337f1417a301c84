// Text to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/text_tokenizer.h"
#include "worker/tokenizer/tokenizer_files.h"

namespace penstock::worker {

class TextCodec {
 public:
  virtual ~TextCodec() = default;

  virtual TokenizerInfo info() const = 0;
  // Without the tokens around a text. Possible errors: INVALID_ARGUMENT.
  virtual absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) const = 0;
  virtual absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) const = 0;
};

// Of tokenizer.json with a vocabulary of bytes (byte_pair_codec.cc) or of pieces of text (piece_codec.cc), or
// of SentencePiece's file (sentence_piece_codec.cc). Possible errors: INVALID_ARGUMENT (names the file, and
// the part of it that is not known).
absl::StatusOr<std::unique_ptr<TextCodec>> MakeTextCodec(const TokenizerFiles& files);
absl::StatusOr<std::unique_ptr<TextCodec>> MakeBytePairCodec(const TokenizerFiles& files);
absl::StatusOr<std::unique_ptr<TextCodec>> MakePieceCodec(const TokenizerFiles& files);
absl::StatusOr<std::unique_ptr<TextCodec>> MakeSentencePieceCodec(const TokenizerFiles& files);

}  // namespace penstock::worker
