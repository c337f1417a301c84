#include "common/dataset/importer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/text_sample.h"
#include "common/dataset/validation_share.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Items for each of those who read them side by side.
constexpr size_t kItemsTogether = 256;

bool IsBlankItem(const std::string& text) { return text.find_first_not_of(" \t\r") == std::string::npos; }

// Where in the file an error is, where people can find it: sections are ours alone.
std::string Place(const ImportFile& file, uint64_t number) {
  if (file.kind == ImportFormat::kText) return absl::StrCat("'", file.path, "'");
  return absl::StrCat("'", file.path, "', ", ItemWord(file.kind), " ", number);
}

// Of its bytes.
TokenSample SampleOfText(const std::string& text) {
  TokenSample sample;
  for (const char byte : text) sample.target.push_back(static_cast<unsigned char>(byte));
  return sample;
}

absl::StatusOr<std::vector<TokenSample>> SamplesWithoutTokenizer(const std::string& text, ImportFormat kind) {
  if (kind == ImportFormat::kText) return std::vector<TokenSample>{SampleOfText(text)};
  PENSTOCK_ASSIGN_OR_RETURN(TokenSample sample, ParseJsonSample(text));
  return std::vector<TokenSample>{std::move(sample)};
}

uint64_t BytesRead(const ImportFile& file, const ImportReader& reader) {
  return file.regular ? reader.bytes_read() : 0;
}

// To where an earlier import had come. What is read is thrown away: reading takes a small part of the time
// of making tokens.
absl::Status Skip(ImportReader& reader, uint64_t items, const ImportFile& file) {
  std::string ignored;
  while (reader.number() < items) {
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, reader.Next(&ignored));
    if (!more) {
      return absl::DataLossError(absl::StrCat("'", file.path, "' ends behind ", ItemWord(file.kind), " ",
                                              reader.number(), ", and was read up to ", items,
                                              ": import it from its beginning"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Importer::Importer(const ImportOptions& options, const std::vector<ImportFile>& files,
                   IndexedDatasetWriter& writer, IndexedDatasetWriter* validation)
    : options_(options),
      files_(files),
      writer_(writer),
      validation_(validation),
      pool_(std::max<int>(1, static_cast<int>(options.tokenizers.size()))) {}

absl::Status Importer::Run(const ImportPoint& from, const Reached& reached) {
  point_ = from;
  for (size_t i = 0; i < from.file; ++i) bytes_before_ += files_[i].bytes;
  while (point_.file < files_.size()) {
    const ImportFile& file = files_[point_.file];
    if (point_.items == 0) PENSTOCK_RETURN_IF_ERROR(reached(point_, bytes_before_));
    PENSTOCK_RETURN_IF_ERROR(ReadFile(file, reached));
    bytes_before_ += file.bytes;
    ++point_.file;
    point_.items = 0;
  }
  return reached(point_, bytes_before_);
}

absl::Status Importer::ReadFile(const ImportFile& file, const Reached& reached) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<ImportReader> reader, OpenImportReader(file, options_));
  if (reader == nullptr) {
    ++point_.summary.skipped_files;
    return absl::OkStatus();
  }
  if (point_.items == 0) {
    ++point_.summary.files;
    return ReadItems(*reader, file, reached);
  }
  PENSTOCK_RETURN_IF_ERROR(Skip(*reader, point_.items, file));
  PENSTOCK_RETURN_IF_ERROR(reached(point_, bytes_before_ + BytesRead(file, *reader)));
  return ReadItems(*reader, file, reached);
}

absl::Status Importer::ReadItems(ImportReader& reader, const ImportFile& file, const Reached& reached) {
  std::vector<Item> items;
  for (;;) {
    Item item;
    PENSTOCK_ASSIGN_OR_RETURN(const bool more, reader.Next(&item.text));
    item.number = reader.number();
    const bool counts = file.kind == ImportFormat::kText || !IsBlankItem(item.text);
    if (more && counts) items.push_back(std::move(item));
    if (more && items.size() < kItemsTogether * static_cast<size_t>(pool_.threads())) continue;
    PENSTOCK_RETURN_IF_ERROR(AddItems(items, file));
    items.clear();
    if (!more) return absl::OkStatus();
    point_.items = reader.number();
    PENSTOCK_RETURN_IF_ERROR(reached(point_, bytes_before_ + BytesRead(file, reader)));
  }
}

// Each reader, one of a tokenizer, has every so-many-th.
absl::Status Importer::AddItems(std::vector<Item>& items, const ImportFile& file) {
  pool_.Run(pool_.threads(), [&](int reader) {
    std::vector<Item*> own;
    for (size_t i = static_cast<size_t>(reader); i < items.size(); i += static_cast<size_t>(pool_.threads()))
      own.push_back(&items[i]);
    MakeSamples(own, file.kind, reader);
  });
  for (const Item& item : items)
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(AddAll(item.samples), Place(file, item.number)));
  return absl::OkStatus();
}

void Importer::MakeSamples(const std::vector<Item*>& items, ImportFormat kind, int reader) const {
  if (options_.tokenizers.empty()) {
    for (Item* item : items) item->samples = SamplesWithoutTokenizer(item->text, kind);
    return;
  }
  TextTokenizer& tokenizer = *options_.tokenizers[static_cast<size_t>(reader)];
  std::vector<absl::StatusOr<SampleLine>> lines;
  for (const Item* item : items)
    lines.push_back(kind == ImportFormat::kText
                        ? WholeText(item->text)
                        : ReadJsonSample(item->text, tokenizer, options_.conversations));
  std::vector<absl::StatusOr<std::vector<TokenSample>>> samples = TokenizeAll(lines, tokenizer);
  for (size_t i = 0; i < items.size(); ++i) items[i]->samples = std::move(samples[i]);
}

absl::Status Importer::AddAll(const absl::StatusOr<std::vector<TokenSample>>& samples) {
  PENSTOCK_RETURN_IF_ERROR(samples.status());
  if (options_.conversations == Conversations::kWhole)
    point_.summary.split_conversations += samples->size() > 1;
  const bool validates = IsForValidation(point_.counted++, options_.validation_share);
  for (const TokenSample& sample : *samples) PENSTOCK_RETURN_IF_ERROR(Add(sample, validates));
  return absl::OkStatus();
}

absl::Status Importer::Add(const TokenSample& sample, bool validates) {
  ImportSummary& summary = point_.summary;
  IndexedDatasetWriter& writer = validates ? *validation_ : writer_;
  PENSTOCK_RETURN_IF_ERROR(writer.Add(sample.input, sample.target, sample.weights));
  if (validates) {
    ++summary.validation_samples;
    summary.validation_tokens += sample.input.size() + sample.target.size();
  } else {
    Count(sample);
  }
  for (const std::vector<int32_t>* tokens : {&sample.input, &sample.target})
    for (const int32_t token : *tokens) summary.largest_token = std::max(summary.largest_token, token);
  return absl::OkStatus();
}

void Importer::Count(const TokenSample& sample) {
  ImportSummary& summary = point_.summary;
  ++summary.samples;
  summary.input_tokens += sample.input.size();
  summary.target_tokens += sample.target.size();
  const size_t first = sample.input.empty() && !sample.target.empty() ? 1 : 0;
  for (size_t i = first; i < sample.target.size(); ++i)
    summary.predicted_tokens += sample.weights.empty() || sample.weights[i] > 0;
  summary.weighted_samples += !sample.weights.empty();
}

}  // namespace penstock
