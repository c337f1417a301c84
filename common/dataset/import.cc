#include "common/dataset/import.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/data_file.h"
#include "common/dataset/dataset_tokenizer.h"
#include "common/dataset/indexed_dataset_writer.h"
#include "common/dataset/json_sample.h"
#include "common/dataset/line_reader.h"
#include "common/dataset/parquet_lines.h"
#include "common/dataset/text_sample.h"
#include "common/dataset/validation_share.h"
#include "common/parallel/task_pool.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBytesToJudge = 8192;
// Text is read in pieces of so many bytes, and lines of so many are held.
constexpr size_t kPiece = 1 << 20;
constexpr size_t kLongestHeldLine = 1 << 24;
// Lines for each of those who read them side by side.
constexpr size_t kLinesTogether = 256;

class Importer {
 public:
  // `validation`: null where nothing is kept for it.
  Importer(const ImportOptions& options, IndexedDatasetWriter& writer, IndexedDatasetWriter* validation)
      : options_(options),
        writer_(writer),
        validation_(validation),
        pool_(std::max<int>(1, static_cast<int>(options.tokenizers.size()))) {}

  const ImportSummary& summary() const { return summary_; }

  absl::Status Import(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status))
      return absl::NotFoundError(absl::StrCat("there is no file or folder '", path, "'"));
    if (fs::is_directory(status)) return ImportFolder(path);
    return ImportFile(path);
  }

 private:
  bool IsJsonLines(const std::string& path) const {
    if (options_.format != ImportFormat::kAuto) return options_.format == ImportFormat::kJsonLines;
    return absl::EndsWith(path, ".jsonl") || absl::EndsWith(path, ".json") ||
           absl::EndsWith(path, ".jsonl.gz") || absl::EndsWith(path, ".json.gz");
  }

  bool IsParquet(const std::string& path) const {
    if (options_.format != ImportFormat::kAuto) return options_.format == ImportFormat::kParquet;
    return absl::EndsWith(path, ".parquet");
  }

  absl::Status ImportFile(const std::string& path) {
    if (IsParquet(path)) {
      PENSTOCK_ASSIGN_OR_RETURN(ParquetLines rows, ParquetLines::Open(options_.parquet_program, path));
      return ImportLines(rows, path, "row");
    }
    if (!IsJsonLines(path)) return ImportText(path);
    PENSTOCK_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(path));
    return ImportLines(lines, path, "line");
  }

  // In a folder only text and Parquet are told apart by name.
  absl::Status ImportFileOfFolder(const std::string& path) {
    const bool parquet_name = absl::EndsWith(path, ".parquet");
    switch (options_.format) {
      case ImportFormat::kAuto:
        return parquet_name ? ImportFile(path) : ImportText(path);
      case ImportFormat::kParquet:
        return parquet_name ? ImportFile(path) : absl::OkStatus();
      case ImportFormat::kJsonLines:
      case ImportFormat::kText:
        return ImportFile(path);
    }
    return absl::OkStatus();
  }

  absl::Status ImportFolder(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> files;
    for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const bool hidden = absl::StartsWith(entry->path().filename().string(), ".");
      if (hidden) entry.disable_recursion_pending();
      if (!hidden && entry->is_regular_file(error)) files.push_back(entry->path().string());
    }
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list folder '", folder, "'"));
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) PENSTOCK_RETURN_IF_ERROR(ImportFileOfFolder(file));
    return absl::OkStatus();
  }

  // Lines of JSON. `reader`: a LineReader or the like; `word`: what its lines are called.
  template <typename Reader>
  absl::Status ImportLines(Reader& reader, const std::string& path, absl::string_view word) {
    ++summary_.files;
    std::vector<Line> lines;
    for (bool more = true; more;) {
      Line line;
      PENSTOCK_ASSIGN_OR_RETURN(more, reader.Next(&line.text));
      line.number = reader.line_number();
      const bool blank = line.text.find_first_not_of(" \t\r") == std::string::npos;
      if (more && !blank) lines.push_back(std::move(line));
      if (more && lines.size() < kLinesTogether * pool_.threads()) continue;
      PENSTOCK_RETURN_IF_ERROR(AddJsonLines(lines, path, word));
      lines.clear();
    }
    return absl::OkStatus();
  }

  struct Line {
    std::string text;
    uint64_t number = 0;
    absl::StatusOr<std::vector<TokenSample>> samples = std::vector<TokenSample>();
  };

  // Calls read(i, reader) for each of so many texts: each reader, one of a tokenizer, has every so-many-th.
  template <typename Read>
  void ReadSideBySide(size_t texts, const Read& read) {
    pool_.Run(pool_.threads(), [&](int reader) {
      for (size_t i = static_cast<size_t>(reader); i < texts; i += static_cast<size_t>(pool_.threads()))
        read(i, reader);
    });
  }

  absl::Status AddJsonLines(std::vector<Line>& lines, const std::string& path, absl::string_view word) {
    ReadSideBySide(lines.size(),
                   [&](size_t i, int reader) { lines[i].samples = SamplesOf(lines[i].text, reader); });
    for (const Line& line : lines) {
      PENSTOCK_RETURN_IF_ERROR(
          AnnotateError(AddAll(line.samples), absl::StrCat("'", path, "', ", word, " ", line.number)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<TokenSample>> SamplesOf(const std::string& line, int reader) const {
    if (!options_.tokenizers.empty())
      return TokenizeJsonSample(line, *options_.tokenizers[static_cast<size_t>(reader)],
                                options_.conversations);
    PENSTOCK_ASSIGN_OR_RETURN(TokenSample sample, ParseJsonSample(line));
    return std::vector<TokenSample>{std::move(sample)};
  }

  // Those of one conversation stay together.
  absl::Status AddAll(const absl::StatusOr<std::vector<TokenSample>>& samples) {
    PENSTOCK_RETURN_IF_ERROR(samples.status());
    if (options_.conversations == Conversations::kWhole) summary_.split_conversations += samples->size() > 1;
    const bool validates = IsNextForValidation();
    for (const TokenSample& sample : *samples) PENSTOCK_RETURN_IF_ERROR(Add(sample, validates));
    return absl::OkStatus();
  }

  bool IsNextForValidation() { return IsForValidation(read_++, options_.validation_share); }

  absl::Status ImportText(const std::string& path) {
    PENSTOCK_ASSIGN_OR_RETURN(const DataFile file, DataFile::Open(path));
    PENSTOCK_ASSIGN_OR_RETURN(const bool text, IsText(file));
    if (!text) {
      ++summary_.skipped_files;
      return absl::OkStatus();
    }
    ++summary_.files;
    TextSections sections(options_.sections);
    std::string unread;
    for (uint64_t offset = 0; offset < file.size() || !unread.empty();) {
      const size_t bytes = std::min<uint64_t>(kPiece, file.size() - offset);
      const size_t kept = unread.size();
      unread.resize(kept + bytes);
      PENSTOCK_RETURN_IF_ERROR(file.Read(offset, bytes, unread.data() + kept));
      offset += bytes;
      AddLines(unread, /*all=*/offset == file.size(), sections);
      PENSTOCK_RETURN_IF_ERROR(AnnotateError(AddSections(sections), absl::StrCat("'", path, "'")));
    }
    sections.Finish();
    return AnnotateError(AddSections(sections), absl::StrCat("'", path, "'"));
  }

  // Not empty, and without a NUL byte near the beginning, as git judges.
  static absl::StatusOr<bool> IsText(const DataFile& file) {
    std::string beginning(std::min<uint64_t>(kBytesToJudge, file.size()), '\0');
    PENSTOCK_RETURN_IF_ERROR(file.Read(0, beginning.size(), beginning.data()));
    return !beginning.empty() && beginning.find('\0') == std::string::npos;
  }

  // Moves the lines that are complete from `text` to the sections; with `all` also the rest. A line without
  // an end in sight goes in parts: sections are shorter.
  static void AddLines(std::string& text, bool all, TextSections& sections) {
    std::string_view rest = text;
    for (;;) {
      const size_t end = rest.find('\n');
      if (end == std::string_view::npos) break;
      sections.AddLine(rest.substr(0, end + 1));
      rest.remove_prefix(end + 1);
    }
    if (!rest.empty() && (all || rest.size() > kLongestHeldLine)) {
      sections.AddLine(rest);
      rest = {};
    }
    text.erase(0, text.size() - rest.size());
  }

  absl::Status AddSections(TextSections& sections) {
    const std::vector<std::string> texts = sections.Take();
    std::vector<absl::StatusOr<TokenSample>> samples(texts.size(), TokenSample());
    ReadSideBySide(texts.size(), [&](size_t i, int reader) { samples[i] = SampleOf(texts[i], reader); });
    for (const absl::StatusOr<TokenSample>& sample : samples) {
      PENSTOCK_RETURN_IF_ERROR(sample.status());
      PENSTOCK_RETURN_IF_ERROR(Add(*sample, IsNextForValidation()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TokenSample> SampleOf(const std::string& text, int reader) const {
    if (!options_.tokenizers.empty())
      return TokenizeText(text, *options_.tokenizers[static_cast<size_t>(reader)]);
    TokenSample sample;
    for (const char byte : text) sample.target.push_back(static_cast<unsigned char>(byte));
    return sample;
  }

  void Count(const TokenSample& sample) {
    ++summary_.samples;
    summary_.input_tokens += sample.input.size();
    summary_.target_tokens += sample.target.size();
    const size_t first = sample.input.empty() && !sample.target.empty() ? 1 : 0;
    for (size_t i = first; i < sample.target.size(); ++i)
      summary_.predicted_tokens += sample.weights.empty() || sample.weights[i] > 0;
    summary_.weighted_samples += !sample.weights.empty();
  }

  absl::Status Add(const TokenSample& sample, bool validates) {
    IndexedDatasetWriter& writer = validates ? *validation_ : writer_;
    PENSTOCK_RETURN_IF_ERROR(writer.Add(sample.input, sample.target, sample.weights));
    if (validates) {
      ++summary_.validation_samples;
      summary_.validation_tokens += sample.input.size() + sample.target.size();
    } else {
      Count(sample);
    }
    for (const std::vector<int32_t>* tokens : {&sample.input, &sample.target})
      for (int32_t token : *tokens) summary_.largest_token = std::max(summary_.largest_token, token);
    return absl::OkStatus();
  }

  const ImportOptions& options_;
  IndexedDatasetWriter& writer_;
  IndexedDatasetWriter* const validation_;
  // Lines, rows and sections so far.
  uint64_t read_ = 0;
  TaskPool pool_;
  ImportSummary summary_;
};

absl::Status CheckSummary(const ImportSummary& summary, const ImportOptions& options) {
  if (summary.samples + summary.validation_samples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no sample in the files given (", summary.skipped_files, " are empty or not text)"));
  }
  if (options.validation_share == 0 || (summary.samples > 0 && summary.validation_samples > 0))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("of ", summary.samples + summary.validation_samples,
                                                 " samples ", summary.samples > 0 ? "none" : "all",
                                                 " would be for validation: give another share"));
}

}  // namespace

absl::StatusOr<ImportSummary> ImportDataset(const std::vector<std::string>& paths, const std::string& prefix,
                                            const ImportOptions& options) {
  const auto create = [&](const std::string& name) {
    return IndexedDatasetWriter::Create(name, {.vocab = options.vocab});
  };
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<IndexedDatasetWriter> writer, create(prefix));
  std::unique_ptr<IndexedDatasetWriter> validation;
  if (options.validation_share > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(validation, create(options.validation_prefix));
  }
  Importer importer(options, *writer, validation.get());
  for (const std::string& path : paths) PENSTOCK_RETURN_IF_ERROR(importer.Import(path));
  PENSTOCK_RETURN_IF_ERROR(CheckSummary(importer.summary(), options));
  TextTokenizer* const tokenizer = options.tokenizers.empty() ? nullptr : options.tokenizers.front();
  if (validation != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(validation->Finish());
    PENSTOCK_RETURN_IF_ERROR(RecordTokenizer(options.validation_prefix, tokenizer));
  }
  PENSTOCK_RETURN_IF_ERROR(writer->Finish());
  PENSTOCK_RETURN_IF_ERROR(RecordTokenizer(prefix, tokenizer));
  return importer.summary();
}

}  // namespace penstock
