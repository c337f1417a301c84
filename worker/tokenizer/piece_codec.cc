// tokenizer.json of SentencePiece's kind: byte pairs over characters, or Unigram, with a mark for spaces
// (Llama 2, Mistral, Gemma, Phi-3, T5 and others).
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/added_tokens.h"
#include "worker/tokenizer/normalizer.h"
#include "worker/tokenizer/piece_decoder.h"
#include "worker/tokenizer/piece_model.h"
#include "worker/tokenizer/text_codec.h"
#include "worker/tokenizer/word_cut.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// The steps of tokenizer.json, in their order.
struct PieceSteps {
  Normalizer normalizer;
  AddedTokens added;
  WordCut cut;
  std::unique_ptr<PieceModel> model;
  PieceDecoder decoder;
};

class PieceCodec : public TextCodec {
 public:
  PieceCodec(TokenizerInfo info, PieceSteps steps) : info_(std::move(info)), steps_(std::move(steps)) {}

  TokenizerInfo info() const override { return info_; }

  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) const override {
    std::vector<int32_t> ids;
    for (AddedTokens::Section& section : steps_.added.Cut(text, steps_.normalizer)) {
      if (section.token >= 0) {
        ids.push_back(section.token);
        continue;
      }
      std::vector<Word> words;
      words.push_back({std::move(section.text), section.is_first});
      for (const Word& word : steps_.cut(std::move(words))) steps_.model->AddPieces(word.text, ids);
    }
    return ids;
  }

  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) const override {
    std::vector<std::string> pieces;
    for (const int32_t token : tokens) {
      if (steps_.added.IsSpecial(token)) continue;
      const std::string* const added = steps_.added.ContentOf(token);
      const std::string* const piece = added != nullptr ? added : steps_.model->PieceOf(token);
      // As Hugging Face's library does it.
      if (piece != nullptr) pieces.push_back(*piece);
    }
    std::string text;
    for (const std::string& piece : steps_.decoder(std::move(pieces))) text += piece;
    return text;
  }

 private:
  const TokenizerInfo info_;
  const PieceSteps steps_;
};

absl::StatusOr<PieceSteps> MakeSteps(const Json& tokenizer) {
  PieceSteps steps;
  PENSTOCK_ASSIGN_OR_RETURN(steps.normalizer, MakeNormalizer(tokenizer.value("normalizer", Json())));
  PENSTOCK_ASSIGN_OR_RETURN(
      steps.added, AddedTokens::Create(tokenizer.value("added_tokens", Json::array()), steps.normalizer));
  PENSTOCK_ASSIGN_OR_RETURN(steps.cut, MakeWordCut(tokenizer.value("pre_tokenizer", Json())));
  PENSTOCK_ASSIGN_OR_RETURN(steps.decoder, MakePieceDecoder(tokenizer.value("decoder", Json())));
  const Json& model = tokenizer["model"];
  const bool unigram = model.value("type", "") == "Unigram";
  PENSTOCK_ASSIGN_OR_RETURN(steps.model, unigram ? MakeUnigramPieces(model) : MakeMergedPieces(model));
  return steps;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextCodec>> MakePieceCodec(const TokenizerFiles& files) {
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<TextCodec>> {
    PENSTOCK_ASSIGN_OR_RETURN(const TextEnds ends, EndsOf(files.tokenizer.value("post_processor", Json())));
    PENSTOCK_ASSIGN_OR_RETURN(PieceSteps steps, MakeSteps(files.tokenizer));
    const int32_t largest = std::max(steps.added.largest(), steps.model->largest());
    TokenizerInfo info = {.prefix = ends.prefix,
                          .suffix = ends.suffix,
                          .end = IdOf(files.tokenizer, SpecialToken(files, "eos_token")),
                          .vocab = static_cast<uint32_t>(largest + 1),
                          .has_chat_template = !files.chat_template.empty()};
    return std::make_unique<PieceCodec>(std::move(info), std::move(steps));
  };
  absl::StatusOr<std::unique_ptr<TextCodec>> codec = make();
  if (codec.ok()) return codec;
  return AnnotateError(codec.status(), absl::StrCat("'", files.json_path, "'"));
}

}  // namespace penstock::worker
