#include <cstddef>
#include <functional>
#include <queue>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/piece_model.h"
#include "worker/tokenizer/utf8.h"
#include "worker/tokenizer/vocabulary.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

struct Merge {
  // The smaller comes first.
  uint32_t rank = 0;
  int32_t id = -1;
};

// Two ids side by side, as a key.
uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

using Merges = absl::flat_hash_map<uint64_t, Merge>;

// A word on the way from characters to pieces: a list in both directions.
class Joining {
 public:
  Joining(const std::vector<int32_t>& ids, const Merges& merges) : merges_(merges), parts_(ids.size()) {
    for (size_t i = 0; i < ids.size(); ++i)
      parts_[i] = {ids[i], static_cast<int64_t>(i) - 1, static_cast<int64_t>(i) + 1};
    for (size_t i = 0; i + 1 < parts_.size(); ++i) Ask(i);
  }

  // Until nothing is left to merge: the best rank first, from the left.
  void Run() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      if (IsStillThere(top)) Join(top);
    }
  }

  void AddIds(std::vector<int32_t>& ids) const {
    for (size_t i = 0; i < parts_.size(); i = static_cast<size_t>(parts_[i].next))
      ids.push_back(parts_[i].id);
  }

 private:
  struct Part {
    // -1: it has gone into the one before it.
    int32_t id = -1;
    int64_t previous = -1;
    int64_t next = 0;
  };
  struct Candidate {
    uint32_t rank = 0;
    size_t at = 0;
    int32_t id = -1;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  bool HasNext(size_t at) const { return parts_[at].next < static_cast<int64_t>(parts_.size()); }
  const Part& Next(size_t at) const { return parts_[static_cast<size_t>(parts_[at].next)]; }

  // Whether a part and the one behind it merge.
  void Ask(size_t at) {
    if (!HasNext(at)) return;
    const auto found = merges_.find(PairOf(parts_[at].id, Next(at).id));
    if (found != merges_.end()) queue_.push({found->second.rank, at, found->second.id});
  }

  bool IsStillThere(const Candidate& candidate) const {
    if (parts_[candidate.at].id < 0 || !HasNext(candidate.at)) return false;
    const auto found = merges_.find(PairOf(parts_[candidate.at].id, Next(candidate.at).id));
    return found != merges_.end() && found->second.id == candidate.id;
  }

  void Join(const Candidate& candidate) {
    Part& left = parts_[candidate.at];
    Part& right = parts_[static_cast<size_t>(left.next)];
    left.id = candidate.id;
    left.next = right.next;
    right.id = -1;
    if (HasNext(candidate.at))
      parts_[static_cast<size_t>(left.next)].previous = static_cast<int64_t>(candidate.at);
    if (left.previous >= 0) Ask(static_cast<size_t>(left.previous));
    Ask(candidate.at);
  }

  const Merges& merges_;
  std::vector<Part> parts_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

struct MergedOptions {
  // -1: characters that are unknown are left out.
  int32_t unknown = -1;
  bool fuses_unknown = false;
  bool has_bytes = false;
  // A word that is a piece is one, whatever its merges make.
  bool takes_whole_words = false;
};

class MergedPieces : public PieceModel {
 public:
  MergedPieces(Vocabulary vocabulary, Merges merges, MergedOptions options)
      : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(options) {}

  void AddPieces(const std::string& word, std::vector<int32_t>& ids) const override {
    const int32_t whole = options_.takes_whole_words ? vocabulary_.IdOf(word) : -1;
    if (whole >= 0) return ids.push_back(whole);
    Joining joining(Characters(word), merges_);
    joining.Run();
    joining.AddIds(ids);
  }
  const std::string* PieceOf(int32_t id) const override { return vocabulary_.PieceOf(id); }
  int32_t IdOf(const std::string& piece) const override { return vocabulary_.IdOf(piece); }
  int32_t largest() const override { return vocabulary_.largest(); }

 private:
  // In the order in which Hugging Face's library has them: what is unknown comes behind bytes that follow it.
  std::vector<int32_t> Characters(std::string_view word) const {
    std::vector<int32_t> ids;
    size_t unknown = 0;
    const auto add_unknown = [&] {
      ids.insert(ids.end(), options_.fuses_unknown && unknown > 0 ? 1 : unknown, options_.unknown);
      unknown = 0;
    };
    for (size_t at = 0; at < word.size();) {
      const std::string_view character = word.substr(at, CharacterBytes(word, at));
      at += character.size();
      const int32_t id = vocabulary_.IdOf(character);
      if (id >= 0) {
        add_unknown();
        ids.push_back(id);
      } else if (!options_.has_bytes || !vocabulary_.AddBytes(character, ids)) {
        if (options_.unknown < 0) continue;
        if (!options_.fuses_unknown) add_unknown();
        ++unknown;
      }
    }
    add_unknown();
    return ids;
  }

  const Vocabulary vocabulary_;
  const Merges merges_;
  const MergedOptions options_;
};

absl::Status CheckOptions(const Json& model) {
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto found = model.find(field);
    const bool set = found != model.end() && !found->is_null() && *found != "" && *found != 0.0;
    if (set)
      return absl::InvalidArgumentError(absl::StrCat("model.", field, " is set, which Penstock does not do"));
  }
  return absl::OkStatus();
}

// "a b", or ["a", "b"].
bool ReadMerge(const Json& json, std::string& left, std::string& right) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    left = json[0].get<std::string>();
    right = json[1].get<std::string>();
    return true;
  }
  if (!json.is_string()) return false;
  const auto text = json.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos) return false;
  left = text.substr(0, space);
  right = text.substr(space + 1);
  return true;
}

absl::StatusOr<Merges> ReadMerges(const Json& json, const Vocabulary& vocabulary) {
  Merges merges;
  merges.reserve(json.size());
  uint32_t rank = 0;
  std::string left;
  std::string right;
  for (const Json& merge : json) {
    if (!ReadMerge(merge, left, right))
      return absl::InvalidArgumentError(absl::StrCat("model.merges: ", merge.dump(), " is no pair"));
    const int32_t first = vocabulary.IdOf(left);
    const int32_t second = vocabulary.IdOf(right);
    const int32_t both = vocabulary.IdOf(left + right);
    if (first < 0 || second < 0 || both < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("model.merges: ", merge.dump(), " is not in the vocabulary"));
    merges.insert_or_assign(PairOf(first, second), Merge{rank++, both});
  }
  return merges;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PieceModel>> MakeMergedPieces(const Json& model) {
  PENSTOCK_RETURN_IF_ERROR(CheckOptions(model));
  Vocabulary vocabulary;
  const Json vocab = model.value("vocab", Json::object());
  for (const auto& [piece, id] : vocab.items()) vocabulary.Add(piece, id.get<int32_t>());
  vocabulary.FindBytes();
  PENSTOCK_ASSIGN_OR_RETURN(Merges merges, ReadMerges(model.value("merges", Json::array()), vocabulary));
  MergedOptions options = {.fuses_unknown = model.value("fuse_unk", false),
                           .has_bytes = model.value("byte_fallback", false),
                           .takes_whole_words = model.value("ignore_merges", false)};
  if (model.contains("unk_token") && model["unk_token"].is_string())
    options.unknown = vocabulary.IdOf(model["unk_token"].get<std::string>());
  return std::make_unique<MergedPieces>(std::move(vocabulary), std::move(merges), options);
}

}  // namespace penstock::worker
