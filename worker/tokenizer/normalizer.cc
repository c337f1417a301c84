#include "worker/tokenizer/normalizer.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/composed_form.h"
#include "worker/tokenizer/precompiled_map.h"
#include "worker/tokenizer/text_pattern.h"
#include "worker/tokenizer/utf8.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Normalizer> MakePrecompiled(const Json& json) {
  std::string bytes;
  if (!absl::Base64Unescape(json.value("precompiled_charsmap", ""), &bytes))
    return absl::InvalidArgumentError("normalizer: precompiled_charsmap: is no base64");
  PENSTOCK_ASSIGN_OR_RETURN(PrecompiledMap map, PrecompiledMap::Create(bytes));
  return [map = std::move(map)](const std::string& text) { return map.Normalized(text); };
}

absl::StatusOr<Normalizer> MakeReplace(const Json& json) {
  PENSTOCK_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(json.value("pattern", Json()), "normalizer"));
  return [pattern = std::move(pattern), content = json.value("content", "")](const std::string& text) {
    return ReplaceAll(text, pattern, content);
  };
}

Normalizer MakeStrip(const Json& json) {
  return [left = json.value("strip_left", true),
          right = json.value("strip_right", true)](const std::string& text) {
    std::string_view rest = text;
    while (left && SpaceBytes(rest) > 0) rest.remove_prefix(SpaceBytes(rest));
    while (right && SpaceBytesAtEnd(rest) > 0) rest.remove_suffix(SpaceBytesAtEnd(rest));
    return std::string(rest);
  };
}

Normalizer MakePrepend(const Json& json) {
  return [prefix = json.value("prepend", "")](const std::string& text) {
    return text.empty() ? text : prefix + text;
  };
}

absl::StatusOr<Normalizer> MakeSequence(const Json& json) {
  std::vector<Normalizer> steps;
  for (const Json& step : json.value("normalizers", Json::array())) {
    PENSTOCK_ASSIGN_OR_RETURN(Normalizer normalizer, MakeNormalizer(step));
    steps.push_back(std::move(normalizer));
  }
  return [steps = std::move(steps)](std::string text) {
    for (const Normalizer& step : steps) text = step(text);
    return text;
  };
}

}  // namespace

absl::StatusOr<Normalizer> MakeNormalizer(const Json& json) {
  if (json.is_null()) return [](const std::string& text) { return text; };
  const std::string type = json.is_object() ? json.value("type", "") : "";
  if (type == "Sequence") return MakeSequence(json);
  if (type == "NFC") return ToNfc;
  if (type == "NFKC") return ToNfkc;
  if (type == "Precompiled") return MakePrecompiled(json);
  if (type == "Prepend") return MakePrepend(json);
  if (type == "Replace") return MakeReplace(json);
  if (type == "Strip") return MakeStrip(json);
  return absl::InvalidArgumentError(
      absl::StrCat("Penstock does not know its normalizer (", type,
                   "): make the tokens with transformers, and give {\"tokens\": [...]}"));
}

}  // namespace penstock::worker
