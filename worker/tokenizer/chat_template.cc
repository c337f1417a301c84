#include "worker/tokenizer/chat_template.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/jinja_source.h"
#include "worker/tokenizer/python_space.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// OrtxTokenizerBlob.
struct Blob {
  const char* config = nullptr;
  const char* vocab = nullptr;
  const char* module = nullptr;
  const char* model = nullptr;
  const char* reserved = nullptr;
  size_t config_bytes = 0;
  size_t vocab_bytes = 0;
  size_t module_bytes = 0;
  size_t model_bytes = 0;
  size_t reserved_bytes = 0;
};

// What is used of the library's interface: objects are pointers, and each call returns 0 or an error's
// number.
struct Library {
  int (*create_tokenizer_from_blob)(void** tokenizer, const Blob* blob);
  int (*apply_chat_template)(const void* tokenizer, const char* text, const char* input, const char* tools,
                             void** output, bool add_generation_prompt, bool tokenize);
  int (*tensor_result_get_at)(const void* result, size_t index, void** tensor);
  int (*get_tensor_data)(const void* tensor, const void** data, const int64_t** shape, size_t* dimensions);
  int (*dispose)(void** object);
  const char* (*get_last_error_message)();
};

template <typename Function>
bool Find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

absl::StatusOr<Library> OpenLibrary() {
  void* const handle = dlopen("libonnxruntime_extensions.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr) return absl::UnavailableError(absl::StrCat("chat templates: ", dlerror()));
  Library library = {};
  const bool found = Find(handle, "OrtxCreateTokenizerFromBlob", library.create_tokenizer_from_blob) &&
                     Find(handle, "OrtxApplyChatTemplate", library.apply_chat_template) &&
                     Find(handle, "OrtxTensorResultGetAt", library.tensor_result_get_at) &&
                     Find(handle, "OrtxGetTensorData", library.get_tensor_data) &&
                     Find(handle, "OrtxDispose", library.dispose) &&
                     Find(handle, "OrtxGetLastErrorMessage", library.get_last_error_message);
  if (!found) return absl::UnavailableError("chat templates: another version of onnxruntime-extensions");
  return library;
}

// Every string in it, however deep.
void AddStrings(const Json& json, std::vector<std::string>& strings) {
  if (json.is_string()) strings.push_back(json.get<std::string>());
  if (!json.is_structured()) return;
  for (const Json& inner : json) AddStrings(inner, strings);
}

// Whether a message begins or ends with spaces that are none to the library.
bool HasOtherSpaces(const Json& message) {
  if (!message.is_object() || !message.contains("content") || !message["content"].is_string()) return false;
  const std::string content = message["content"].get<std::string>();
  constexpr const char* kKnown = " \t\r\n";
  const size_t first = content.find_first_not_of(kKnown);
  if (first == std::string::npos) return false;
  const std::string known = content.substr(first, content.find_last_not_of(kKnown) + 1 - first);
  return StripRight(StripLeft(content)) != known;
}

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(const Library& library, void* tokenizer, const std::string& text)
      : library_(library), tokenizer_(tokenizer), searched_(SearchedStrings(text)) {}
  ~JinjaTemplate() override { library_.dispose(&tokenizer_); }

  absl::StatusOr<std::string> Render(const std::string& messages, bool add_generation_prompt) const override {
    Json conversation = Json::parse(messages, nullptr, /*allow_exceptions=*/false);
    PENSTOCK_RETURN_IF_ERROR(CheckStrings(conversation));
    Trim(conversation, add_generation_prompt);
    return RenderAsItIs(conversation.dump(), add_generation_prompt);
  }

 private:
  // What the library would make something else of without a word.
  absl::Status CheckStrings(const Json& conversation) const {
    std::vector<std::string> strings;
    AddStrings(conversation, strings);
    for (const std::string& text : strings) {
      if (text.find('\0') != std::string::npos)
        return absl::InvalidArgumentError("chat template: a text with the character U+0000: take it out");
      for (const std::string& searched : searched_) {
        if (!searched.empty() && text.find(searched) == std::string::npos) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("chat template: it asks whether '", searched,
                         "' is in a text, which Penstock does not do where it is: make the tokens with "
                         "transformers, and give {\"tokens\": [...]}"));
      }
    }
    return absl::OkStatus();
  }

  // The library's trim knows few spaces: where the template trims a message, the others are taken away
  // before. Whether it does, the template itself says, asked with a content that has only those that the
  // library knows.
  void Trim(Json& conversation, bool add_generation_prompt) const {
    for (size_t i = 0; i < conversation.size(); ++i) {
      if (!HasOtherSpaces(conversation[i])) continue;
      Json asked = conversation;
      asked[i]["content"] = "  penstock  ";
      const absl::StatusOr<std::string> text = RenderAsItIs(asked.dump(), add_generation_prompt);
      if (!text.ok() || text->find("penstock") == std::string::npos) continue;
      std::string content = conversation[i]["content"].get<std::string>();
      if (text->find("  penstock") == std::string::npos) content = StripLeft(content);
      if (text->find("penstock  ") == std::string::npos) content = StripRight(content);
      conversation[i]["content"] = content;
    }
  }

  absl::StatusOr<std::string> RenderAsItIs(const std::string& messages, bool add_generation_prompt) const {
    void* result = nullptr;
    // Without a text it takes the one that it has parsed already; a text it would parse each time, which
    // takes a thousand times as long.
    if (library_.apply_chat_template(tokenizer_, /*text=*/nullptr, messages.c_str(), /*tools=*/nullptr,
                                     &result, add_generation_prompt, /*tokenize=*/false) != 0)
      return absl::InvalidArgumentError(absl::StrCat("chat template: ", library_.get_last_error_message()));
    void* tensor = nullptr;
    const void* data = nullptr;
    const int64_t* shape = nullptr;
    size_t dimensions = 0;
    std::string text;
    if (library_.tensor_result_get_at(result, 0, &tensor) == 0 &&
        library_.get_tensor_data(tensor, &data, &shape, &dimensions) == 0)
      text = static_cast<const char*>(data);
    library_.dispose(&tensor);
    library_.dispose(&result);
    return text;
  }

  const Library library_;
  // Its own template is the parsed one.
  void* tokenizer_;
  const std::vector<std::string> searched_;
};

// Templates name the first and last token of a text. The library wants a whole tokenizer with them: it gets
// the smallest one that it takes, whatever the model's is.
Json SmallestTokenizer() {
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> MakeChatTemplate(const TokenizerFiles& files) {
  if (files.chat_template.empty()) return absl::FailedPreconditionError("the tokenizer has no chat template");
  if (!files.sentence_piece_path.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", files.sentence_piece_path,
        "': SentencePiece alone does not know the special tokens that a chat template writes: put "
        "the model's tokenizer.json beside it (save_pretrained of transformers makes one)"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Library library, OpenLibrary());
  const std::string config = Json({{"tokenizer_class", "GPT2Tokenizer"},
                                   {"bos_token", SpecialToken(files, "bos_token")},
                                   {"eos_token", SpecialToken(files, "eos_token")},
                                   {"chat_template", TrimBlocks(files.chat_template)}})
                                 .dump();
  const std::string vocab = SmallestTokenizer().dump();
  const Blob blob = {.config = config.c_str(),
                     .vocab = vocab.c_str(),
                     .config_bytes = config.size(),
                     .vocab_bytes = vocab.size()};
  void* tokenizer = nullptr;
  if (library.create_tokenizer_from_blob(&tokenizer, &blob) != 0)
    return absl::InvalidArgumentError(absl::StrCat("chat template: ", library.get_last_error_message()));
  return std::make_unique<JinjaTemplate>(library, tokenizer, files.chat_template);
}

}  // namespace penstock::worker
