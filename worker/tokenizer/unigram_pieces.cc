#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/tokenizer/piece_model.h"
#include "worker/tokenizer/piece_trie.h"
#include "worker/tokenizer/utf8.h"
#include "worker/tokenizer/vocabulary.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// How much less probable than the least probable piece an unknown character is, in the logarithm
// (SentencePiece, unigram_model.cc, kUnkPenalty).
constexpr double kUnknownPenalty = 10;

class UnigramPieces : public PieceModel {
 public:
  UnigramPieces(Vocabulary vocabulary, std::vector<double> scores, int32_t unknown, bool has_bytes)
      : vocabulary_(std::move(vocabulary)),
        scores_(std::move(scores)),
        unknown_(unknown),
        has_bytes_(has_bytes) {
    double least = std::numeric_limits<double>::infinity();
    for (const double score : scores_) least = std::min(least, score);
    unknown_score_ = least - kUnknownPenalty;
    for (int32_t id = 0; id <= vocabulary_.largest(); ++id) {
      // Of two pieces of one text the later counts.
      const std::string& piece = *vocabulary_.PieceOf(id);
      if (vocabulary_.IdOf(piece) == id) trie_.Add(piece, id);
    }
  }

  void AddPieces(const std::string& word, std::vector<int32_t>& ids) const override {
    const std::vector<Node> nodes = BestPaths(word);
    std::vector<std::string_view> parts;
    // Of a run of unknown ones, from behind: its end; 0: there is none.
    size_t end_of_run = 0;
    for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
      const std::string_view text = word;
      if (nodes[end].id == unknown_) {
        if (end_of_run == 0) end_of_run = end;
        continue;
      }
      if (end_of_run > 0) parts.push_back(text.substr(end, end_of_run - end));
      end_of_run = 0;
      parts.push_back(text.substr(nodes[end].begin, end - nodes[end].begin));
    }
    if (end_of_run > 0) parts.push_back(std::string_view(word).substr(0, end_of_run));
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) AddPart(*part, ids);
  }
  const std::string* PieceOf(int32_t id) const override { return vocabulary_.PieceOf(id); }
  int32_t IdOf(const std::string& piece) const override { return vocabulary_.IdOf(piece); }
  int32_t largest() const override { return vocabulary_.largest(); }

 private:
  // The best way to a place of the word: its last piece.
  struct Node {
    int32_t id = -1;
    size_t begin = std::string::npos;
    double score = 0;
  };

  std::vector<Node> BestPaths(std::string_view word) const {
    std::vector<Node> nodes(word.size() + 1);
    for (size_t at = 0; at < word.size();) {
      const size_t bytes = CharacterBytes(word, at);
      const double score = nodes[at].score;
      bool has_character = false;
      const auto offer = [&](size_t end, int32_t id, double more) {
        Node& node = nodes[end];
        if (node.begin == std::string::npos || score + more > node.score) node = {id, at, score + more};
      };
      trie_.ForEachBegin(word.substr(at), [&](size_t length, int32_t id) {
        offer(at + length, id, scores_[static_cast<size_t>(id)]);
        has_character = has_character || length == bytes;
      });
      if (!has_character) offer(at + bytes, unknown_, unknown_score_);
      at += bytes;
    }
    return nodes;
  }

  void AddPart(std::string_view part, std::vector<int32_t>& ids) const {
    const int32_t id = vocabulary_.IdOf(part);
    if (id >= 0) return ids.push_back(id);
    if (has_bytes_ && vocabulary_.AddBytes(part, ids)) return;
    ids.push_back(unknown_);
  }

  const Vocabulary vocabulary_;
  // By id.
  const std::vector<double> scores_;
  const int32_t unknown_;
  const bool has_bytes_;
  double unknown_score_ = 0;
  PieceTrie trie_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PieceModel>> MakeUnigramPieces(const Json& model) {
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const Json& entry : model.value("vocab", Json::array())) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      return absl::InvalidArgumentError(
          absl::StrCat("model.vocab: ", entry.dump(), " is no piece with its score"));
    vocabulary.Add(entry[0].get<std::string>(), static_cast<int32_t>(scores.size()));
    scores.push_back(entry[1].get<double>());
  }
  vocabulary.FindBytes();
  const auto unknown = model.find("unk_id");
  if (unknown == model.end() || !unknown->is_number_unsigned() || unknown->get<uint64_t>() >= scores.size())
    return absl::InvalidArgumentError("model.unk_id: is missing, or no piece of the vocabulary");
  return std::make_unique<UnigramPieces>(std::move(vocabulary), std::move(scores), unknown->get<int32_t>(),
                                         model.value("byte_fallback", false));
}

}  // namespace penstock::worker
