#include "worker/tokenizer/text_codec.h"

namespace penstock::worker {
namespace {

// Whether letters of the vocabulary stand for bytes.
bool HasVocabularyOfBytes(const nlohmann::json& tokenizer) {
  for (const char* part : {"pre_tokenizer", "decoder"}) {
    const auto found = tokenizer.find(part);
    if (found != tokenizer.end() && found->dump().find("\"ByteLevel\"") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextCodec>> MakeTextCodec(const TokenizerFiles& files) {
  if (files.json_path.empty()) return MakeSentencePieceCodec(files);
  return HasVocabularyOfBytes(files.tokenizer) ? MakeBytePairCodec(files) : MakePieceCodec(files);
}

}  // namespace penstock::worker
