// Byte pair encodings of tokenizer.json, by pytorch-tokenizers (PyPI). What that library does otherwise than
// Hugging Face's is done here (forms of Unicode, text between matches), or refused.
#include <pytorch/tokenizers/hf_tokenizer.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utf8proc.h>

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/tokenizer/composed_form.h"
#include "worker/tokenizer/regular_expressions.h"
#include "worker/tokenizer/text_codec.h"

namespace penstock::worker {
namespace {

using Json = nlohmann::json;

// What a text is brought to before the library sees it; null: it stays.
using Form = std::string (*)(const std::string& text);

Form FormOf(const Json& normalizer) {
  const std::string type = normalizer.is_object() ? normalizer.value("type", "") : "";
  if (type == "NFC") return ToNfc;
  return type == "NFKC" ? ToNfkc : nullptr;
}

// Takes a form, the library's own of which changes nothing, out of the normalizers. It is done before the
// others: anywhere else than first it stays, and is refused.
Form TakeForm(Json& tokenizer) {
  Json& normalizer = tokenizer["normalizer"];
  const bool is_sequence = normalizer.is_object() && normalizer.value("type", "") == "Sequence";
  if (!is_sequence) {
    const Form form = FormOf(normalizer);
    if (form != nullptr) normalizer = nullptr;
    return form;
  }
  Json& steps = normalizer["normalizers"];
  const Form form = steps.is_array() && !steps.empty() ? FormOf(steps.front()) : nullptr;
  if (form != nullptr) steps.erase(steps.begin());
  if (steps.empty()) normalizer = nullptr;
  return form;
}

bool IsSet(const Json& model, const char* field) {
  const auto found = model.find(field);
  return found != model.end() && !found->is_null() && *found != "" && *found != 0.0;
}

absl::Status CheckKnown(const Json& tokenizer) {
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (IsSet(tokenizer["model"], field))
      return absl::InvalidArgumentError(absl::StrCat("model.", field, " is set, which Penstock does not do"));
  }
  for (const char* form : {"NFC", "NFKC"}) {
    if (tokenizer["normalizer"].dump().find(absl::StrCat("\"", form, "\"")) == std::string::npos) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("normalizer: ", form, " behind another one, which Penstock does not do"));
  }
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    if (added.value("single_word", false)) {
      return absl::InvalidArgumentError(absl::StrCat("added_tokens: '", added.value("content", ""),
                                                     "' is a single_word, which Penstock does not do"));
    }
  }
  return absl::OkStatus();
}

absl::Status ToStatus(tokenizers::Error error) {
  return absl::InvalidArgumentError(
      absl::StrCat("the tokenizer's library ends with error ", static_cast<uint32_t>(error)));
}

// The kinds of a part and of those in it: "Sequence Split ByteLevel".
std::string KindsOf(const Json& part) {
  if (!part.is_object()) return "";
  std::string kinds = part.value("type", "");
  for (const char* list : {"normalizers", "pretokenizers", "decoders"}) {
    for (const Json& inner : part.value(list, Json::array())) absl::StrAppend(&kinds, " ", KindsOf(inner));
  }
  return kinds;
}

// Where the library does not say what it does not know.
absl::Status NotKnown(const Json& tokenizer) {
  std::string parts;
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder"}) {
    const std::string kinds = KindsOf(tokenizer.value(part, Json()));
    if (!kinds.empty()) absl::StrAppend(&parts, parts.empty() ? "" : ", ", part, " (", kinds, ")");
  }
  return absl::InvalidArgumentError(absl::StrCat("Penstock does not know all of its ", parts,
                                                 ": make the tokens with transformers, and give "
                                                 "{\"tokens\": [...]}"));
}

// One text of each of Unicode's categories, of the characters below 0x3100.
std::vector<std::string> Probes() {
  std::map<int, std::string> probes;
  for (utf8proc_int32_t code = 1; code < 0x3100; ++code) {
    std::array<utf8proc_uint8_t, 4> bytes = {};
    const auto count = static_cast<size_t>(utf8proc_encode_char(code, bytes.data()));
    probes.try_emplace(utf8proc_category(code), reinterpret_cast<const char*>(bytes.data()), count);
  }
  std::vector<std::string> texts;
  for (const auto& [category, text] : probes) texts.push_back(text);
  return texts;
}

// Of what a pre-tokenizer splits, the library drops what is between the matches, where Hugging Face's keeps
// it: right for patterns that match everything, as most do.
absl::Status CheckKeepsText(const Json& tokenizer, const Json& as_given,
                            const tokenizers::HFTokenizer& library) {
  if (KindsOf(tokenizer.value("pre_tokenizer", Json())).find("ByteLevel") == std::string::npos)
    return absl::OkStatus();
  for (const std::string& probe : Probes()) {
    const auto ids = library.encode(probe, /*bos=*/0, /*eos=*/0);
    if (!ids.ok()) return ToStatus(ids.error());
    const auto text = library.decode(ids.get(), /*skip_special_tokens=*/false);
    // A space may come before it.
    if (!text.ok() || !absl::EndsWith(text.get(), probe)) return NotKnown(as_given);
  }
  return absl::OkStatus();
}

bool WriteAll(int file, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// The library reads files, and throws what it does not know. `as_given`: for people.
absl::Status Load(const Json& tokenizer, const Json& as_given, tokenizers::HFTokenizer& library) {
  // In memory: containers may have no folder to write to.
  const int memory = memfd_create("tokenizer.json", MFD_CLOEXEC);
  const auto close_memory = absl::MakeCleanup([memory] { close(memory); });
  if (!WriteAll(memory, tokenizer.dump()))
    return absl::UnavailableError("cannot hold the tokenizer's text in memory");
  try {
    if (library.load(absl::StrCat("/proc/self/fd/", memory)) == tokenizers::Error::Ok)
      return CheckKeepsText(tokenizer, as_given, library);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return NotKnown(as_given);
}

std::map<int32_t, std::string> TextsOfAdded(const Json& tokenizer) {
  std::map<int32_t, std::string> texts;
  for (const Json& added : tokenizer.value("added_tokens", Json::array())) {
    if (!added.value("special", false)) texts[added.value("id", -1)] = added.value("content", "");
  }
  return texts;
}

class BytePairCodec : public TextCodec {
 public:
  BytePairCodec(TokenizerInfo info, Form form, std::map<int32_t, std::string> texts,
                std::unique_ptr<tokenizers::HFTokenizer> library)
      : info_(std::move(info)), form_(form), texts_(std::move(texts)), library_(std::move(library)) {}

  TokenizerInfo info() const override { return info_; }

  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) const override {
    const auto ids = library_->encode(form_ != nullptr ? form_(text) : text, /*bos=*/0, /*eos=*/0);
    if (!ids.ok()) return ToStatus(ids.error());
    return std::vector<int32_t>(ids.get().begin(), ids.get().end());
  }

  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) const override {
    std::string text;
    std::vector<uint64_t> run;
    for (const int32_t token : tokens) {
      const auto added = texts_.find(token);
      if (added == texts_.end()) {
        run.push_back(static_cast<uint64_t>(token));
        continue;
      }
      PENSTOCK_RETURN_IF_ERROR(DecodeRun(run, text));
      run.clear();
      text += added->second;
    }
    PENSTOCK_RETURN_IF_ERROR(DecodeRun(run, text));
    return text;
  }

 private:
  absl::Status DecodeRun(const std::vector<uint64_t>& tokens, std::string& text) const {
    if (tokens.empty()) return absl::OkStatus();
    const auto decoded = library_->decode(tokens, /*skip_special_tokens=*/true);
    if (!decoded.ok()) return ToStatus(decoded.error());
    text += decoded.get();
    return absl::OkStatus();
  }

  const TokenizerInfo info_;
  const Form form_;
  // Of added tokens that are not special: to the library all of them are, and are no text.
  const std::map<int32_t, std::string> texts_;
  const std::unique_ptr<tokenizers::HFTokenizer> library_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextCodec>> MakeBytePairCodec(const TokenizerFiles& files) {
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<TextCodec>> {
    Json tokenizer = files.tokenizer;
    PENSTOCK_ASSIGN_OR_RETURN(const TextEnds ends, EndsOf(tokenizer.value("post_processor", Json())));
    // What is put around a text is ours.
    tokenizer["post_processor"] = nullptr;
    const Form form = TakeForm(tokenizer);
    PENSTOCK_RETURN_IF_ERROR(CheckKnown(tokenizer));
    PENSTOCK_RETURN_IF_ERROR(WriteExpressionsOut(tokenizer));
    auto library = std::make_unique<tokenizers::HFTokenizer>();
    PENSTOCK_RETURN_IF_ERROR(Load(tokenizer, files.tokenizer, *library));
    TokenizerInfo info = {.prefix = ends.prefix,
                          .suffix = ends.suffix,
                          .end = IdOf(tokenizer, SpecialToken(files, "eos_token")),
                          .vocab = static_cast<uint32_t>(library->vocab_size()),
                          .has_chat_template = !files.chat_template.empty()};
    return std::make_unique<BytePairCodec>(std::move(info), form, TextsOfAdded(tokenizer),
                                           std::move(library));
  };
  absl::StatusOr<std::unique_ptr<TextCodec>> codec = make();
  if (codec.ok()) return codec;
  return AnnotateError(codec.status(), absl::StrCat("'", files.json_path, "'"));
}

}  // namespace penstock::worker
