#include "worker/runtime/generated_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/process/binary_folder.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/tokenizer_process.h"

namespace penstock::worker {
namespace {

char Printable(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  const bool control = (code < 0x20 && byte != '\n' && byte != '\t') || code == 0x7f;
  return control ? '?' : byte;
}

class Bytes : public GeneratedText {
 public:
  absl::StatusOr<std::string> Append(int32_t token) override {
    return std::string(1, Printable(static_cast<char>(token)));
  }
};

class Numbers : public GeneratedText {
 public:
  absl::StatusOr<std::string> Append(int32_t token) override {
    return absl::StrCat(std::exchange(first_, false) ? "" : " ", token);
  }

 private:
  bool first_ = true;
};

// Bytes at the end of a text that are the begin of a character alone.
size_t BytesOfUnfinished(const std::string& text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

class TokenizerText : public GeneratedText {
 public:
  explicit TokenizerText(std::unique_ptr<TextTokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  // Of all tokens: what a token is written as depends on those before it.
  absl::StatusOr<std::string> Append(int32_t token) override {
    tokens_.push_back(token);
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, tokenizer_->Decode(tokens_));
    const size_t end = text.size() - BytesOfUnfinished(text);
    if (end <= printed_) return std::string();
    std::string next = text.substr(printed_, end - printed_);
    printed_ = end;
    for (char& byte : next) byte = Printable(byte);
    return next;
  }

 private:
  const std::unique_ptr<TextTokenizer> tokenizer_;
  std::vector<int32_t> tokens_;
  // Bytes of the text.
  size_t printed_ = 0;
};

}  // namespace

std::unique_ptr<GeneratedText> TextOfTokenizer(std::unique_ptr<TextTokenizer> tokenizer) {
  return std::make_unique<TokenizerText>(std::move(tokenizer));
}

absl::StatusOr<std::unique_ptr<GeneratedText>> MakeGeneratedText(const GenerateOptions& options) {
  if (options.as_bytes) return std::make_unique<Bytes>();
  if (options.tokenizer.empty()) return std::make_unique<Numbers>();
  PENSTOCK_ASSIGN_OR_RETURN(const std::string binaries, BinaryFolder());
  PENSTOCK_ASSIGN_OR_RETURN(
      auto tokenizer,
      TokenizerProcess::Start(absl::StrCat(binaries, "/penstock-tokenizer"), options.tokenizer));
  return TextOfTokenizer(std::move(tokenizer));
}

}  // namespace penstock::worker
