// SentencePiece's files, by pytorch-tokenizers (PyPI), which has that library in it.
#include <pytorch/tokenizers/sentencepiece.h>

#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "worker/tokenizer/text_codec.h"

namespace penstock::worker {
namespace {

// U+2581, which stands for a space.
constexpr const char* kSpace = "\xe2\x96\x81";

absl::Status ToStatus(tokenizers::Error error) {
  return absl::InvalidArgumentError(
      absl::StrCat("the tokenizer's library ends with error ", static_cast<uint32_t>(error)));
}

// A piece such as <0xE2> stands for a byte.
std::string TextOfPiece(const std::string& piece) {
  uint32_t byte = 0;
  if (piece.size() == 6 && absl::StartsWith(piece, "<0x") && absl::EndsWith(piece, ">") &&
      absl::SimpleHexAtoi(piece.substr(3, 2), &byte))
    return std::string(1, static_cast<char>(byte));
  return absl::StrReplaceAll(piece, {{kSpace, " "}});
}

class SentencePieceCodec : public TextCodec {
 public:
  SentencePieceCodec(TokenizerInfo info, std::unique_ptr<tokenizers::SPTokenizer> library)
      : info_(std::move(info)), library_(std::move(library)) {}

  TokenizerInfo info() const override { return info_; }

  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) const override {
    // Of nothing the library makes an error.
    if (text.empty()) return std::vector<int32_t>();
    // It would lose what is behind it.
    if (text.find('\0') != std::string::npos)
      return absl::InvalidArgumentError("a text with the character U+0000: take it out");
    const auto ids = library_->encode(text, /*bos=*/0, /*eos=*/0);
    if (!ids.ok()) return ToStatus(ids.error());
    return std::vector<int32_t>(ids.get().begin(), ids.get().end());
  }

  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) const override {
    std::string text;
    for (const int32_t token : tokens) {
      if (IsAroundText(token)) continue;
      const auto piece = library_->id_to_piece(static_cast<uint64_t>(token));
      if (!piece.ok()) return ToStatus(piece.error());
      text += TextOfPiece(piece.get());
    }
    // The one that SentencePiece puts before the first word.
    return absl::StartsWith(text, " ") ? text.substr(1) : text;
  }

 private:
  bool IsAroundText(int32_t token) const {
    return token == static_cast<int32_t>(library_->bos_tok()) ||
           token == static_cast<int32_t>(library_->eos_tok());
  }

  const TokenizerInfo info_;
  const std::unique_ptr<tokenizers::SPTokenizer> library_;
};

// As the classes of transformers do it by default: a Llama's texts have a begin, a T5's an end.
TextEnds EndsOf(const TokenizerFiles& files, int32_t begin, int32_t end) {
  const bool t5 = absl::StartsWith(files.config.value("tokenizer_class", ""), "T5") ||
                  absl::EndsWith(files.sentence_piece_path, "spiece.model");
  TextEnds ends;
  if (files.config.value("add_bos_token", !t5) && begin >= 0) ends.prefix = {begin};
  if (files.config.value("add_eos_token", t5) && end >= 0) ends.suffix = {end};
  return ends;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextCodec>> MakeSentencePieceCodec(const TokenizerFiles& files) {
  auto library = std::make_unique<tokenizers::SPTokenizer>();
  try {
    const tokenizers::Error error = library->load(files.sentence_piece_path);
    if (error != tokenizers::Error::Ok) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", files.sentence_piece_path, "' is no model of SentencePiece"));
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("'", files.sentence_piece_path, "': ", error.what()));
  }
  const auto begin = static_cast<int32_t>(library->bos_tok());
  const auto end = static_cast<int32_t>(library->eos_tok());
  const TextEnds ends = EndsOf(files, begin, end);
  TokenizerInfo info = {.prefix = ends.prefix,
                        .suffix = ends.suffix,
                        .end = end,
                        .vocab = static_cast<uint32_t>(library->vocab_size()),
                        .has_chat_template = !files.chat_template.empty()};
  return std::make_unique<SentencePieceCodec>(std::move(info), std::move(library));
}

}  // namespace penstock::worker
