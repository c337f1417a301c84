#include "common/dataset/indexed_dataset_writer.h"

#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/index_format.h"
#include "common/dataset/partial_file.h"
#include "common/dataset/token_weights_writer.h"
#include "common/files/files.h"
#include "common/hash/crc32.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using index_format::TokenType;

constexpr int32_t kLargestUint16 = std::numeric_limits<uint16_t>::max();

class FileWriter final : public IndexedDatasetWriter {
 public:
  FileWriter(std::string prefix, const DatasetWriterOptions& options, PartialFile data)
      : prefix_(std::move(prefix)), options_(options), data_(std::move(data)), weights_(prefix_) {
    if (options.vocab > static_cast<uint32_t>(kLargestUint16) + 1) type_ = TokenType::kInt32;
  }

  absl::Status Add(absl::Span<const int32_t> input, absl::Span<const int32_t> target,
                   absl::Span<const float> weights) override {
    if (input.empty() && target.empty()) return absl::InvalidArgumentError("the sample has no token");
    PENSTOCK_RETURN_IF_ERROR(CheckWeights(weights, target.size()));
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(input));
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(target));
    if (!input.empty()) PENSTOCK_RETURN_IF_ERROR(AddSequence(input));
    PENSTOCK_RETURN_IF_ERROR(AddSequence(target));
    PENSTOCK_RETURN_IF_ERROR(weights_.Add(input.size(), target.size(), weights));
    document_indices_.push_back(static_cast<int64_t>(lengths_.size()));
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    PENSTOCK_ASSIGN_OR_RETURN(PartialFile index,
                              PartialFile::CreateFor(absl::StrCat(prefix_, ".idx"), ".partial"));
    PENSTOCK_RETURN_IF_ERROR(WriteIndex(index));
    PENSTOCK_RETURN_IF_ERROR(index.Sync());
    PENSTOCK_RETURN_IF_ERROR(data_.Sync());
    PENSTOCK_RETURN_IF_ERROR(data_.MoveIntoPlace());
    // Before the index, whose checksum is in them: what stops between the two leaves no dataset that is read
    // with other weights.
    PENSTOCK_ASSIGN_OR_RETURN(const uint32_t checksum, ChecksumOf(index));
    PENSTOCK_RETURN_IF_ERROR(weights_.Finish(checksum));
    return index.MoveIntoPlace();
  }

 private:
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
    lengths_.push_back(static_cast<int32_t>(tokens.size()));
    if (type_ == TokenType::kInt32) return data_.Write(tokens.data(), tokens.size());
    narrow_.assign(tokens.begin(), tokens.end());
    return data_.Write(narrow_.data(), narrow_.size());
  }

  // The first token beyond uint16: what was written so far becomes int32.
  absl::Status Widen() {
    PENSTOCK_ASSIGN_OR_RETURN(PartialFile wide,
                              PartialFile::CreateFor(absl::StrCat(prefix_, ".bin"), ".wide.partial"));
    std::vector<uint16_t> from(1 << 16);
    data_.Rewind();
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const size_t count, data_.Read(from.data(), from.size()));
      if (count == 0) break;
      const std::vector<int32_t> to(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
      PENSTOCK_RETURN_IF_ERROR(wide.Write(to.data(), count));
    }
    data_ = std::move(wide);
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

  absl::Status WriteIndex(PartialFile& index) const {
    const uint64_t counts[] = {lengths_.size(), document_indices_.size()};
    PENSTOCK_RETURN_IF_ERROR(index.Write(index_format::kMagic.data(), index_format::kMagic.size()));
    PENSTOCK_RETURN_IF_ERROR(index.Write(&index_format::kVersion, 1));
    PENSTOCK_RETURN_IF_ERROR(index.Write(&type_, 1));
    PENSTOCK_RETURN_IF_ERROR(index.Write(counts, 2));
    PENSTOCK_RETURN_IF_ERROR(index.Write(lengths_.data(), lengths_.size()));
    int64_t pointer = 0;
    for (int32_t length : lengths_) {
      PENSTOCK_RETURN_IF_ERROR(index.Write(&pointer, 1));
      pointer += static_cast<int64_t>(length) * static_cast<int64_t>(index_format::BytesOf(type_));
    }
    return index.Write(document_indices_.data(), document_indices_.size());
  }

  const std::string prefix_;
  const DatasetWriterOptions options_;
  PartialFile data_;
  TokenWeightsWriter weights_;
  TokenType type_ = TokenType::kUint16;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> document_indices_ = {0};
  std::vector<uint16_t> narrow_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::Create(
    const std::string& prefix, const DatasetWriterOptions& options) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make folder '", folder.string(), "'"));
  // Better now than after the import.
  PENSTOCK_RETURN_IF_ERROR(FileToReplace(absl::StrCat(prefix, ".idx")).status());
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile data,
                            PartialFile::CreateFor(absl::StrCat(prefix, ".bin"), ".partial"));
  return std::make_unique<FileWriter>(prefix, options, std::move(data));
}

}  // namespace penstock
