#include "worker/tokenizer/text_codec.h"

namespace penstock::worker {

absl::StatusOr<std::unique_ptr<TextCodec>> MakeTextCodec(const TokenizerFiles& files) {
  return files.json_path.empty() ? MakeSentencePieceCodec(files) : MakeBytePairCodec(files);
}

}  // namespace penstock::worker
