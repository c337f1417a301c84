#include "worker/tokenizer/piece_decoder.h"

#include <utf8proc.h>

#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/text_pattern.h"
#include "worker/tokenizer/utf8.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;
using Pieces = std::vector<std::string>;

PieceDecoder EachPiece(std::function<std::string(const std::string& piece)> change) {
  return [change = std::move(change)](Pieces pieces) {
    for (std::string& piece : pieces) piece = change(piece);
    return pieces;
  };
}

// Of "<0xE2>".
std::optional<char> ByteOf(const std::string& piece) {
  uint32_t byte = 0;
  if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return std::nullopt;
  if (!absl::SimpleHexAtoi(piece.substr(3, 2), &byte)) return std::nullopt;
  return static_cast<char>(byte);
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    utf8proc_int32_t code = -1;
    const utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                    static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (bytes <= 0) return false;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return true;
}

// Bytes of a run are text together, or U+FFFD each.
void AddBytes(std::string& bytes, Pieces& result) {
  if (IsUtf8(bytes)) {
    if (!bytes.empty()) result.push_back(bytes);
  } else {
    result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");
  }
  bytes.clear();
}

Pieces JoinBytes(const Pieces& pieces) {
  Pieces result;
  std::string bytes;
  for (const std::string& piece : pieces) {
    if (const auto byte = ByteOf(piece)) {
      bytes += *byte;
      continue;
    }
    AddBytes(bytes, result);
    result.push_back(piece);
  }
  AddBytes(bytes, result);
  return result;
}

PieceDecoder MakeStrip(const Json& json) {
  return EachPiece([mark = json.value("content", ""), start = json.value("start", 0),
                    stop = json.value("stop", 0)](const std::string& piece) {
    std::string_view rest = piece;
    if (mark.empty()) return piece;
    for (int i = 0; i < start && rest.starts_with(mark); ++i) rest.remove_prefix(mark.size());
    for (int i = 0; i < stop && rest.ends_with(mark); ++i) rest.remove_suffix(mark.size());
    return std::string(rest);
  });
}

absl::StatusOr<PieceDecoder> MakeReplace(const Json& json) {
  PENSTOCK_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(json.value("pattern", Json()), "decoder"));
  return EachPiece([pattern = std::move(pattern), content = json.value("content", "")](
                       const std::string& piece) { return ReplaceAll(piece, pattern, content); });
}

// Marks of the first piece stand for what was put in front.
PieceDecoder MakeMetaspace(const Json& json) {
  return [mark = json.value("replacement", ""),
          prepends = json.value("prepend_scheme", "always") != "never"](Pieces pieces) {
    for (size_t i = 0; i < pieces.size(); ++i)
      pieces[i] = absl::StrReplaceAll(pieces[i], {{mark, i == 0 && prepends ? "" : " "}});
    return pieces;
  };
}

absl::StatusOr<PieceDecoder> MakeSequence(const Json& json) {
  std::vector<PieceDecoder> steps;
  for (const Json& step : json.value("decoders", Json::array())) {
    PENSTOCK_ASSIGN_OR_RETURN(PieceDecoder decoder, MakePieceDecoder(step));
    steps.push_back(std::move(decoder));
  }
  return [steps = std::move(steps)](Pieces pieces) {
    for (const PieceDecoder& step : steps) pieces = step(std::move(pieces));
    return pieces;
  };
}

}  // namespace

absl::StatusOr<PieceDecoder> MakePieceDecoder(const Json& json) {
  if (json.is_null()) return [](const Pieces& pieces) { return Pieces{absl::StrJoin(pieces, " ")}; };
  const std::string type = json.is_object() ? json.value("type", "") : "";
  if (type == "Sequence") return MakeSequence(json);
  if (type == "Metaspace") return MakeMetaspace(json);
  if (type == "Replace") return MakeReplace(json);
  if (type == "ByteFallback") return JoinBytes;
  if (type == "Fuse") return [](const Pieces& pieces) { return Pieces{absl::StrJoin(pieces, "")}; };
  if (type == "Strip") return MakeStrip(json);
  return absl::InvalidArgumentError(
      absl::StrCat("Penstock does not know its decoder (", type,
                   ") without a vocabulary of bytes: make the tokens with transformers, and give "
                   "{\"tokens\": [...]}"));
}

}  // namespace penstock::worker
