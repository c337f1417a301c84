#include "common/dataset/import_state.h"

#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/dataset_tokenizer.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "common/version/version.h"

namespace penstock {
namespace {

using StateJson = nlohmann::ordered_json;

// Goes up when the layout changes: states of other versions are not read.
constexpr uint64_t kStateVersion = 1;

const char* NameOf(ImportFormat format) {
  switch (format) {
    case ImportFormat::kAuto:
      return "auto";
    case ImportFormat::kJsonLines:
      return "jsonl";
    case ImportFormat::kParquet:
      return "parquet";
    case ImportFormat::kText:
      return "text";
  }
  return "";
}

// Names of files are bytes, JSON is UTF-8.
std::string Escaped(const std::string& bytes) { return absl::CEscape(bytes); }

// Counters of a summary by name, for both directions.
struct Counter {
  const char* name;
  uint64_t ImportSummary::*value;
};
constexpr Counter kCounters[] = {{"samples", &ImportSummary::samples},
                                 {"input_tokens", &ImportSummary::input_tokens},
                                 {"target_tokens", &ImportSummary::target_tokens},
                                 {"predicted_tokens", &ImportSummary::predicted_tokens},
                                 {"weighted_samples", &ImportSummary::weighted_samples},
                                 {"split_conversations", &ImportSummary::split_conversations},
                                 {"validation_samples", &ImportSummary::validation_samples},
                                 {"validation_tokens", &ImportSummary::validation_tokens},
                                 {"files", &ImportSummary::files},
                                 {"skipped_files", &ImportSummary::skipped_files}};

StateJson ToJson(const FileMark& mark) { return {{"bytes", mark.bytes}, {"crc32", mark.crc32}}; }

StateJson ToJson(const TokenWeightsMark& mark) {
  return {{"tokens", mark.tokens},
          {"begun", mark.begun},
          {"wide", mark.wide},
          {"file", ToJson(mark.file)},
          {"distinct", mark.distinct}};
}

StateJson ToJson(const DatasetWriterMark& mark) {
  return {{"sequences", mark.sequences},
          {"widened", mark.widened},
          {"data", ToJson(mark.data)},
          {"lengths", ToJson(mark.lengths)},
          {"weights", ToJson(mark.weights)}};
}

StateJson ToJson(const ImportMark& mark) {
  StateJson summary = {{"largest_token", mark.point.summary.largest_token}};
  for (const Counter& counter : kCounters) summary[counter.name] = mark.point.summary.*counter.value;
  StateJson json = {{"file", mark.point.file},
                    {"items", mark.point.items},
                    {"counted", mark.point.counted},
                    {"summary", summary},
                    {"writer", ToJson(mark.writer)}};
  if (mark.validation.has_value()) json["validation"] = ToJson(*mark.validation);
  return json;
}

StateJson ToJson(const ImportFile& file) {
  return {{"path", Escaped(file.path)},
          {"kind", static_cast<int>(file.kind)},
          {"regular", file.regular},
          {"bytes", file.bytes},
          {"modified_ns", file.modified_ns}};
}

// Reads fields, and remembers whether one was missing or of another type.
class Fields {
 public:
  Fields(const StateJson& json, bool& sound) : json_(json), sound_(sound) {}

  bool Has(const char* name) const { return json_.is_object() && json_.contains(name); }

  template <typename T>
  void Number(const char* name, T& to) const {
    const StateJson& value = At(name);
    const bool fits = value.is_number_unsigned() &&
                      value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<T>::max());
    if (fits || (std::is_same_v<T, int64_t> && value.is_number_integer()))
      to = value.get<T>();
    else
      sound_ = false;
  }
  void Flag(const char* name, bool& to) const {
    if (const StateJson& value = At(name); value.is_boolean())
      to = value.get<bool>();
    else
      sound_ = false;
  }
  void Text(const char* name, std::string& to) const {
    const StateJson& value = At(name);
    if (!value.is_string() || !absl::CUnescape(value.get_ref<const std::string&>(), &to)) sound_ = false;
  }
  Fields Object(const char* name) const { return {At(name), sound_}; }
  // Calls visit(element) for each of a list.
  template <typename Visit>
  void ForEach(const char* name, const Visit& visit) const {
    const StateJson& list = At(name);
    sound_ = sound_ && list.is_array();
    if (!list.is_array()) return;
    for (const StateJson& element : list) visit(element);
  }

  const StateJson& json() const { return json_; }
  bool& sound() const { return sound_; }

 private:
  const StateJson& At(const char* name) const {
    static const StateJson& none = *new StateJson();
    return Has(name) ? json_[name] : none;
  }

  const StateJson& json_;
  bool& sound_;
};

void Read(const Fields& from, FileMark& to) {
  from.Number("bytes", to.bytes);
  from.Number("crc32", to.crc32);
}

void Read(const Fields& from, TokenWeightsMark& to) {
  from.Number("tokens", to.tokens);
  from.Flag("begun", to.begun);
  from.Flag("wide", to.wide);
  Read(from.Object("file"), to.file);
  from.ForEach("distinct", [&](const StateJson& weight) {
    from.sound() = from.sound() && weight.is_number();
    if (weight.is_number()) to.distinct.push_back(weight.get<float>());
  });
}

void Read(const Fields& from, DatasetWriterMark& to) {
  from.Number("sequences", to.sequences);
  from.Flag("widened", to.widened);
  Read(from.Object("data"), to.data);
  Read(from.Object("lengths"), to.lengths);
  Read(from.Object("weights"), to.weights);
}

void Read(const Fields& from, ImportMark& to) {
  from.Number("file", to.point.file);
  from.Number("items", to.point.items);
  from.Number("counted", to.point.counted);
  const Fields summary = from.Object("summary");
  summary.Number("largest_token", to.point.summary.largest_token);
  for (const Counter& counter : kCounters) summary.Number(counter.name, to.point.summary.*counter.value);
  Read(from.Object("writer"), to.writer);
  if (from.Has("validation")) Read(from.Object("validation"), to.validation.emplace());
}

void Read(const Fields& from, ImportFile& to) {
  uint64_t kind = 0;
  from.Text("path", to.path);
  from.Number("kind", kind);
  from.Flag("regular", to.regular);
  from.Number("bytes", to.bytes);
  from.Number("modified_ns", to.modified_ns);
  to.kind = static_cast<ImportFormat>(kind);
}

void Read(const Fields& from, ImportShape& to) {
  from.sound() = from.sound() && from.json().is_object();
  if (!from.json().is_object()) return;
  for (const auto& [name, unused] : from.json().items()) from.Text(name.c_str(), to[name]);
}

// The files that a mark needs are there.
bool IsSound(const ImportMark& mark, const ImportState& state) {
  return mark.point.file + (mark.point.items > 0 ? 1 : 0) <= state.files.size() &&
         mark.validation.has_value() == !state.shape.at(kShapeValidation).empty();
}

}  // namespace

absl::StatusOr<ImportShape> ShapeOf(const ImportOptions& options) {
  const bool validates = options.validation_share > 0;
  std::string tokenizer;
  if (!options.tokenizers.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(tokenizer, TokenizerFingerprint(*options.tokenizers.front()));
  }
  return ImportShape{
      {kShapeProgram, VersionOf("penstock")},
      {"--format", NameOf(options.format)},
      {"--vocab", absl::StrCat(options.vocab)},
      {"--min-section", absl::StrCat(options.sections.min_bytes)},
      {"--max-section", absl::StrCat(options.sections.max_bytes)},
      {"--sample-per-answer", options.conversations == Conversations::kEachAnswer ? "yes" : "no"},
      // All digits.
      {"--validation-share", StateJson(options.validation_share).dump()},
      {kShapeValidation, validates ? options.validation_prefix : ""},
      {"--tokenizer", tokenizer}};
}

std::string ImportStateFile(const std::string& prefix) { return absl::StrCat(prefix, ".import.json"); }

absl::StatusOr<std::optional<ImportState>> ReadImportState(const std::string& prefix) {
  const std::string path = ImportStateFile(prefix);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  PENSTOCK_RETURN_IF_ERROR(text.status());
  const StateJson json = StateJson::parse(*text, nullptr, /*allow_exceptions=*/false);
  bool sound = true;
  uint64_t version = 0;
  const Fields fields(json, sound);
  fields.Number("version", version);
  if (!sound || version != kStateVersion)
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not of this version of penstock"));
  ImportState state;
  Read(fields.Object("shape"), state.shape);
  fields.ForEach("files",
                 [&](const StateJson& file) { Read(Fields(file, sound), state.files.emplace_back()); });
  Read(fields.Object("latest"), state.latest);
  Read(fields.Object("file_begin"), state.file_begin);
  sound = sound && state.shape.contains(kShapeValidation) && IsSound(state.latest, state) &&
          IsSound(state.file_begin, state);
  if (!sound) return absl::InvalidArgumentError(absl::StrCat("'", path, "' is damaged"));
  return state;
}

absl::Status WriteImportState(const std::string& prefix, const ImportState& state) {
  StateJson files = StateJson::array(), shape = StateJson::object();
  for (const ImportFile& file : state.files) files.push_back(ToJson(file));
  for (const auto& [name, value] : state.shape) shape[name] = Escaped(value);
  const StateJson json = {{"version", kStateVersion},
                          {"shape", shape},
                          {"files", files},
                          {"latest", ToJson(state.latest)},
                          {"file_begin", ToJson(state.file_begin)}};
  return WriteFileAtomically(ImportStateFile(prefix), json.dump(1) + "\n");
}

absl::Status RemoveImportState(const std::string& prefix) {
  const std::string path = ImportStateFile(prefix);
  for (const std::string& file : {path, absl::StrCat(path, ".partial")})
    PENSTOCK_RETURN_IF_ERROR(RemoveFile(file));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return SyncFolder(folder.empty() ? "." : folder.string());
}

}  // namespace penstock
