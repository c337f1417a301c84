#include "common/dataset/indexed_dataset_writer.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/index_format.h"
#include "common/dataset/partial_file.h"
#include "common/dataset/token_weights_writer.h"
#include "common/dataset/written_lengths.h"
#include "common/files/files.h"
#include "common/hash/crc32.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using index_format::TokenType;

constexpr int32_t kLargestUint16 = std::numeric_limits<uint16_t>::max();
constexpr const char* kExtension = ".partial";
constexpr const char* kWideExtension = ".wide.partial";

std::string DataOf(const std::string& prefix) { return absl::StrCat(prefix, ".bin"); }
std::string IndexOf(const std::string& prefix) { return absl::StrCat(prefix, ".idx"); }

class FileWriter final : public IndexedDatasetWriter {
 public:
  FileWriter(std::string prefix, const DatasetWriterOptions& options, PartialFile data,
             WrittenLengths lengths)
      : prefix_(std::move(prefix)),
        options_(options),
        data_(std::move(data)),
        lengths_(std::move(lengths)),
        weights_(prefix_, lengths_) {
    if (options.vocab > static_cast<uint32_t>(kLargestUint16) + 1) type_ = TokenType::kInt32;
  }

  // What is not in the files that it was made with.
  absl::Status GoOnAt(const DatasetWriterMark& mark) {
    kept_ = true;
    sequences_ = mark.sequences;
    widened_ = mark.widened;
    if (widened_) type_ = TokenType::kInt32;
    return weights_.OpenAt(mark.weights);
  }

  ~FileWriter() override {
    if (kept_) KeepFiles();
  }

  absl::Status Add(absl::Span<const int32_t> input, absl::Span<const int32_t> target,
                   absl::Span<const float> weights) override {
    if (input.empty() && target.empty()) return absl::InvalidArgumentError("the sample has no token");
    PENSTOCK_RETURN_IF_ERROR(CheckWeights(weights, target.size()));
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(input));
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(target));
    if (!input.empty()) PENSTOCK_RETURN_IF_ERROR(AddSequence(input));
    PENSTOCK_RETURN_IF_ERROR(AddSequence(target));
    const SampleLength length = {.input = static_cast<uint32_t>(input.size()),
                                 .target = static_cast<uint32_t>(target.size())};
    PENSTOCK_RETURN_IF_ERROR(weights_.Add(length, weights));
    sequences_ += SequencesOf(length);
    return lengths_.Add(length);
  }

  DatasetWriterMark Mark() const override {
    return {.sequences = sequences_,
            .widened = widened_,
            .data = data_.mark(),
            .lengths = lengths_.mark(),
            .weights = weights_.Mark()};
  }

  absl::Status Sync() override {
    PENSTOCK_RETURN_IF_ERROR(data_.Sync());
    PENSTOCK_RETURN_IF_ERROR(lengths_.Sync());
    return weights_.Sync();
  }

  void Keep() override { kept_ = true; }

  absl::Status Finish() override {
    PENSTOCK_ASSIGN_OR_RETURN(PartialFile index, PartialFile::CreateFor(IndexOf(prefix_), kExtension));
    PENSTOCK_RETURN_IF_ERROR(WriteIndex(index));
    PENSTOCK_RETURN_IF_ERROR(index.Sync());
    PENSTOCK_RETURN_IF_ERROR(data_.Sync());
    PENSTOCK_RETURN_IF_ERROR(data_.MoveIntoPlace());
    // Before the index, whose checksum is in them: what stops between the two leaves no dataset that is read
    // with other weights.
    PENSTOCK_ASSIGN_OR_RETURN(const uint32_t checksum, ChecksumOf(index));
    PENSTOCK_RETURN_IF_ERROR(weights_.Finish(checksum));
    PENSTOCK_RETURN_IF_ERROR(index.MoveIntoPlace());
    kept_ = false;
    lengths_.Discard();
    if (narrow_data_.has_value()) narrow_data_->Discard();
    return RemoveUnfinished(prefix_);
  }

 private:
  void KeepFiles() {
    data_.Keep();
    lengths_.Keep();
    weights_.Keep();
    if (narrow_data_.has_value()) narrow_data_->Keep();
  }

  static uint64_t SequencesOf(const SampleLength& length) { return length.input > 0 ? 2 : 1; }

  absl::Status CheckTokens(absl::Span<const int32_t> tokens) {
    bool fits_uint16 = true;
    for (int32_t token : tokens) {
      if (token < 0) return absl::InvalidArgumentError(absl::StrCat("token ", token, " is negative"));
      if (options_.vocab > 0 && static_cast<uint32_t>(token) >= options_.vocab)
        return absl::InvalidArgumentError(
            absl::StrCat("token ", token, " is not below the vocabulary of ", options_.vocab));
      fits_uint16 = fits_uint16 && token <= kLargestUint16;
    }
    if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 2)
      return absl::InvalidArgumentError(absl::StrCat("a sequence of ", tokens.size(), " tokens is too long"));
    return !fits_uint16 && type_ == TokenType::kUint16 ? Widen() : absl::OkStatus();
  }

  absl::Status AddSequence(absl::Span<const int32_t> tokens) {
    if (type_ == TokenType::kInt32) return data_.Write(tokens.data(), tokens.size());
    narrow_.assign(tokens.begin(), tokens.end());
    return data_.Write(narrow_.data(), narrow_.size());
  }

  // The first token beyond uint16: what was written so far becomes int32.
  absl::Status Widen() {
    PENSTOCK_ASSIGN_OR_RETURN(PartialFile wide, PartialFile::CreateFor(DataOf(prefix_), kWideExtension));
    std::vector<uint16_t> from(1 << 16);
    data_.Rewind();
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const size_t count, data_.Read(from.data(), from.size()));
      if (count == 0) break;
      const std::vector<int32_t> to(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
      PENSTOCK_RETURN_IF_ERROR(wide.Write(to.data(), count));
    }
    PENSTOCK_RETURN_IF_ERROR(data_.Sync());
    narrow_data_ = std::exchange(data_, std::move(wide));
    widened_ = true;
    type_ = TokenType::kInt32;
    return absl::OkStatus();
  }

  static absl::StatusOr<uint32_t> ChecksumOf(PartialFile& file) {
    std::vector<char> piece(1 << 16);
    uint32_t checksum = 0;
    file.Rewind();
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const size_t count, file.Read(piece.data(), piece.size()));
      if (count == 0) return checksum;
      checksum = Crc32({piece.data(), count}, checksum);
    }
  }

  absl::Status WriteIndex(PartialFile& index) {
    const uint64_t counts[] = {sequences_, lengths_.samples() + 1};
    PENSTOCK_RETURN_IF_ERROR(index.Write(index_format::kMagic.data(), index_format::kMagic.size()));
    PENSTOCK_RETURN_IF_ERROR(index.Write(&index_format::kVersion, 1));
    PENSTOCK_RETURN_IF_ERROR(index.Write(&type_, 1));
    PENSTOCK_RETURN_IF_ERROR(index.Write(counts, 2));
    PENSTOCK_RETURN_IF_ERROR(ForEachSequence([&](uint32_t tokens) { return index.Write(&tokens, 1); }));
    int64_t pointer = 0;
    PENSTOCK_RETURN_IF_ERROR(ForEachSequence([&](uint32_t tokens) {
      const int64_t begin = pointer;
      pointer += static_cast<int64_t>(tokens) * static_cast<int64_t>(index_format::BytesOf(type_));
      return index.Write(&begin, 1);
    }));
    return WriteDocuments(index);
  }

  template <typename Visit>
  absl::Status ForEachSequence(const Visit& visit) {
    return lengths_.ForEach([&](const SampleLength& length) {
      if (length.input > 0) PENSTOCK_RETURN_IF_ERROR(visit(length.input));
      return visit(length.target);
    });
  }

  // The first sequence of each document, and how many sequences there are.
  absl::Status WriteDocuments(PartialFile& index) {
    int64_t sequence = 0;
    PENSTOCK_RETURN_IF_ERROR(index.Write(&sequence, 1));
    return lengths_.ForEach([&](const SampleLength& length) {
      sequence += static_cast<int64_t>(SequencesOf(length));
      return index.Write(&sequence, 1);
    });
  }

  const std::string prefix_;
  const DatasetWriterOptions options_;
  PartialFile data_;
  // What was written before it became int32: marks from before are good for as long as it is there.
  std::optional<PartialFile> narrow_data_;
  WrittenLengths lengths_;
  TokenWeightsWriter weights_;
  TokenType type_ = TokenType::kUint16;
  bool widened_ = false;
  bool kept_ = false;
  uint64_t sequences_ = 0;
  std::vector<uint16_t> narrow_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::Create(
    const std::string& prefix, const DatasetWriterOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(MakeFolderOf(prefix));
  // Better now than after the import.
  PENSTOCK_RETURN_IF_ERROR(FileToReplace(IndexOf(prefix)).status());
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile data, PartialFile::CreateFor(DataOf(prefix), kExtension));
  PENSTOCK_ASSIGN_OR_RETURN(WrittenLengths lengths, WrittenLengths::Create(prefix));
  return std::make_unique<FileWriter>(prefix, options, std::move(data), std::move(lengths));
}

absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::OpenAt(
    const std::string& prefix, const DatasetWriterOptions& options, const DatasetWriterMark& mark) {
  PENSTOCK_ASSIGN_OR_RETURN(
      PartialFile data,
      PartialFile::OpenAt(DataOf(prefix), mark.widened ? kWideExtension : kExtension, mark.data));
  PENSTOCK_ASSIGN_OR_RETURN(WrittenLengths lengths, WrittenLengths::OpenAt(prefix, mark.lengths));
  auto writer = std::make_unique<FileWriter>(prefix, options, std::move(data), std::move(lengths));
  PENSTOCK_RETURN_IF_ERROR(writer->GoOnAt(mark));
  return writer;
}

absl::Status IndexedDatasetWriter::RemoveUnfinished(const std::string& prefix) {
  for (const char* extension : {kExtension, kWideExtension})
    PENSTOCK_RETURN_IF_ERROR(PartialFile::Remove(DataOf(prefix), extension));
  PENSTOCK_RETURN_IF_ERROR(PartialFile::Remove(IndexOf(prefix), kExtension));
  PENSTOCK_RETURN_IF_ERROR(WrittenLengths::Remove(prefix));
  return TokenWeightsWriter::RemoveUnfinished(prefix);
}

}  // namespace penstock
