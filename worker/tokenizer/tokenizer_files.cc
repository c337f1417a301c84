#include "worker/tokenizer/tokenizer_files.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

absl::StatusOr<Json> ReadObject(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat("'", path, "' is no JSON object"));
  return json;
}

std::string KindOf(const Json& tokenizer) {
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->is_object()) return "";
  // Old files leave it out of byte pair encodings.
  return model->value("type", model->contains("merges") ? "BPE" : "");
}

bool IsKnownKind(const Json& tokenizer) {
  const std::string kind = KindOf(tokenizer);
  return kind == "BPE" || kind == "Unigram";
}

// A template alone, or the one named "default" of several.
std::string TemplateIn(const Json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const Json& named : *found) {
    if (named.is_object() && named.value("name", "") == "default") return named.value("template", "");
  }
  return "";
}

absl::Status FindIn(const fs::path& folder, TokenizerFiles& files) {
  const fs::path json = folder / "tokenizer.json";
  if (fs::exists(json)) {
    files.json_path = json.string();
    PENSTOCK_ASSIGN_OR_RETURN(files.tokenizer, ReadObject(files.json_path));
    if (IsKnownKind(files.tokenizer)) return absl::OkStatus();
  }
  for (const char* name : {"tokenizer.model", "spiece.model"}) {
    if (!fs::exists(folder / name)) continue;
    files.sentence_piece_path = (folder / name).string();
    files.json_path.clear();
    return absl::OkStatus();
  }
  if (files.json_path.empty()) {
    return absl::NotFoundError(
        absl::StrCat("'", folder.string(), "' has no tokenizer.json, tokenizer.model or spiece.model"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", files.json_path, "': model.type is '", KindOf(files.tokenizer),
      "': BPE and Unigram are read, and SentencePiece's tokenizer.model or spiece.model beside it"));
}

absl::Status FindFile(const fs::path& path, TokenizerFiles& files) {
  if (path.extension() != ".json") {
    files.sentence_piece_path = path.string();
    return absl::OkStatus();
  }
  files.json_path = path.string();
  PENSTOCK_ASSIGN_OR_RETURN(files.tokenizer, ReadObject(files.json_path));
  if (IsKnownKind(files.tokenizer)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", files.json_path, "': model.type is '",
                                                 KindOf(files.tokenizer),
                                                 "': give a tokenizer of type BPE or Unigram, "
                                                 "or SentencePiece's tokenizer.model or spiece.model"));
}

// RobertaProcessing and BertProcessing: ["</s>", 2].
absl::StatusOr<int32_t> IdOfPair(const Json& processor, const char* name) {
  const auto found = processor.find(name);
  if (found != processor.end() && found->is_array() && found->size() == 2 && (*found)[1].is_number_integer())
    return (*found)[1].get<int32_t>();
  return absl::InvalidArgumentError(
      absl::StrCat("post_processor.", name, " is no pair of a token and its id"));
}

absl::StatusOr<TextEnds> EndsOfTemplate(const Json& processor) {
  TextEnds ends;
  bool behind = false;
  for (const Json& part : processor.value("single", Json::array())) {
    if (part.contains("Sequence")) {
      behind = true;
      continue;
    }
    const std::string token = part.value("SpecialToken", Json::object()).value("id", "");
    const Json ids = processor.value("special_tokens", Json::object())
                         .value(token, Json::object())
                         .value("ids", Json::array());
    if (ids.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("post_processor.special_tokens has no ids of '", token,
                                                     "', which its template names"));
    }
    for (const Json& id : ids) (behind ? ends.suffix : ends.prefix).push_back(id.get<int32_t>());
  }
  return ends;
}

}  // namespace

absl::StatusOr<TokenizerFiles> FindTokenizer(const std::string& path) {
  if (!fs::exists(path)) return absl::NotFoundError(absl::StrCat("there is no file or folder '", path, "'"));
  TokenizerFiles files = {.config = Json::object()};
  const bool is_folder = fs::is_directory(path);
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  PENSTOCK_RETURN_IF_ERROR(is_folder ? FindIn(folder, files) : FindFile(path, files));
  const fs::path config = folder / "tokenizer_config.json";
  if (fs::exists(config)) {
    PENSTOCK_ASSIGN_OR_RETURN(files.config, ReadObject(config.string()));
    files.chat_template = TemplateIn(files.config);
  }
  const fs::path jinja = folder / "chat_template.jinja";
  if (fs::exists(jinja)) {
    PENSTOCK_ASSIGN_OR_RETURN(files.chat_template, ReadFile(jinja.string()));
  }
  return files;
}

std::string SpecialToken(const TokenizerFiles& files, const std::string& name) {
  const auto found = files.config.find(name);
  if (found == files.config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_object() ? found->value("content", "") : "";
}

absl::StatusOr<TextEnds> EndsOf(const Json& post_processor) {
  if (!post_processor.is_object()) return TextEnds();
  const std::string type = post_processor.value("type", "");
  if (type == "ByteLevel") return TextEnds();
  if (type == "TemplateProcessing") return EndsOfTemplate(post_processor);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t first, IdOfPair(post_processor, "cls"));
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t last, IdOfPair(post_processor, "sep"));
    return TextEnds{{first}, {last}};
  }
  if (type != "Sequence") {
    return absl::InvalidArgumentError(
        absl::StrCat("post_processor.type is '", type, "', which Penstock does not know"));
  }
  TextEnds ends;
  for (const Json& processor : post_processor.value("processors", Json::array())) {
    PENSTOCK_ASSIGN_OR_RETURN(const TextEnds more, EndsOf(processor));
    ends.prefix.insert(ends.prefix.begin(), more.prefix.begin(), more.prefix.end());
    ends.suffix.insert(ends.suffix.end(), more.suffix.begin(), more.suffix.end());
  }
  return ends;
}

int32_t IdOf(const Json& tokenizer, const std::string& token) {
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    if (added.value("content", "") == token) return added.value("id", -1);
  }
  const auto model = tokenizer.find("model");
  if (model == tokenizer.end() || !model->contains("vocab")) return -1;
  const Json& vocab = (*model)["vocab"];
  // Of a Unigram it is a list of pieces with their scores.
  if (vocab.is_array()) {
    for (size_t i = 0; i < vocab.size(); ++i) {
      if (vocab[i].is_array() && !vocab[i].empty() && vocab[i][0] == token) return static_cast<int32_t>(i);
    }
    return -1;
  }
  const auto found = vocab.find(token);
  return found == vocab.end() ? -1 : found->get<int32_t>();
}

}  // namespace penstock::worker
