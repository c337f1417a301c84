#include "worker/tokenizer/chat_template.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

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

class JinjaTemplate : public ChatTemplate {
 public:
  JinjaTemplate(const Library& library, void* tokenizer, std::string text)
      : library_(library), tokenizer_(tokenizer), text_(std::move(text)) {}
  ~JinjaTemplate() override { library_.dispose(&tokenizer_); }

  absl::StatusOr<std::string> Render(const std::string& messages, bool add_generation_prompt) const override {
    void* result = nullptr;
    if (library_.apply_chat_template(tokenizer_, text_.c_str(), messages.c_str(), nullptr, &result,
                                     add_generation_prompt, /*tokenize=*/false) != 0)
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

 private:
  const Library library_;
  void* tokenizer_;
  const std::string text_;
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
  PENSTOCK_ASSIGN_OR_RETURN(const Library library, OpenLibrary());
  const std::string config = Json({{"tokenizer_class", "GPT2Tokenizer"},
                                   {"bos_token", SpecialToken(files, "bos_token")},
                                   {"eos_token", SpecialToken(files, "eos_token")}})
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
