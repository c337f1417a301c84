#include "common/dataset/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/data_file.h"
#include "common/dataset/index_format.h"
#include "common/dataset/token_weights.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using index_format::BytesOf;
using index_format::kHeaderBytes;
using index_format::TokenType;

// "'x.idx', offset 17: found dtype code 6, expected 4 (int32) or 8 (uint16)".
absl::Status Broken(const DataFile& file, uint64_t offset, const std::string& found,
                    const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", file.path(), "', offset ", offset, ": found ", found, ", expected ", expected));
}

// "dtype code 5 (int64)".
std::string TypeText(TokenType type) {
  const auto code = static_cast<size_t>(type);
  const std::string text = absl::StrCat("dtype code ", code);
  if (code < 1 || code > std::size(index_format::kTypeNames)) return text;
  return absl::StrCat(text, " (", index_format::kTypeNames[code - 1], ")");
}

// A number at any alignment.
template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// What is read of an index: checked while it is read, and kept in memory.
class Index {
 public:
  // Possible errors: see IndexedDataset::Open.
  static absl::StatusOr<Index> Read(const DataFile& file, const DataFile& data);

  TokenType type() const { return type_; }
  size_t documents() const { return lengths_.size(); }
  SampleLength Length(size_t document) const { return lengths_[document]; }
  // Where its tokens begin in the .bin file, bytes. The sequences of a document lie one behind the other, as
  // do documents.
  uint64_t Offset(size_t document) const;
  uint64_t tokens() const { return next_offset_ / BytesOf(type_); }

 private:
  // How many documents share a known offset.
  static constexpr size_t kStride = 16;

  explicit Index(const DataFile& file) : file_(&file) {}

  uint64_t LengthOffset(uint64_t sequence) const { return kHeaderBytes + 4 * sequence; }
  uint64_t PointerOffset(uint64_t sequence) const { return kHeaderBytes + 4 * sequences_ + 8 * sequence; }
  uint64_t DocumentOffset(uint64_t document) const { return kHeaderBytes + 12 * sequences_ + 8 * document; }
  absl::Status ReadHeader();
  absl::Status CheckSize() const;
  absl::StatusOr<std::vector<uint32_t>> ReadSequences(const DataFile& data) const;
  absl::Status CheckPointers(const std::vector<uint32_t>& tokens, const DataFile& data) const;
  absl::Status ReadDocuments(const std::vector<uint32_t>& tokens);
  absl::Status AddDocument(uint64_t document, const std::vector<uint32_t>& tokens, int64_t first,
                           int64_t next);

  // Only while reading.
  const DataFile* file_;
  TokenType type_ = TokenType::kInt32;
  uint64_t sequences_ = 0;
  uint64_t document_indices_ = 0;
  std::vector<SampleLength> lengths_;
  // Of every kStride-th document, and of the next one to read: in the end, of the end.
  std::vector<uint64_t> offsets_;
  uint64_t next_offset_ = 0;
};

absl::StatusOr<Index> Index::Read(const DataFile& file, const DataFile& data) {
  Index index(file);
  PENSTOCK_RETURN_IF_ERROR(index.ReadHeader());
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint32_t> tokens, index.ReadSequences(data));
  PENSTOCK_RETURN_IF_ERROR(index.ReadDocuments(tokens));
  index.file_ = nullptr;
  return index;
}

uint64_t Index::Offset(size_t document) const {
  const size_t known = document / kStride;
  uint64_t tokens = 0;
  for (size_t d = known * kStride; d < document; ++d)
    tokens += uint64_t{lengths_[d].input} + lengths_[d].target;
  return offsets_[known] + tokens * BytesOf(type_);
}

absl::Status Index::ReadHeader() {
  if (file_->size() < kHeaderBytes)
    return Broken(*file_, file_->size(), "the end of the file",
                  absl::StrCat("a header of ", kHeaderBytes, " bytes"));
  char header[kHeaderBytes];
  PENSTOCK_RETURN_IF_ERROR(file_->Read(0, kHeaderBytes, header));
  if (std::string_view(header, index_format::kMagic.size()) != index_format::kMagic)
    return Broken(*file_, 0, "other bytes", "the magic \"MMIDIDX\\0\\0\" of an indexed dataset");
  const auto version = Load<uint64_t>(header + index_format::kVersionOffset);
  if (version != index_format::kVersion)
    return Broken(*file_, index_format::kVersionOffset, absl::StrCat("version ", version),
                  absl::StrCat("version ", index_format::kVersion));
  type_ = static_cast<TokenType>(Load<uint8_t>(header + index_format::kDtypeOffset));
  if (type_ != TokenType::kInt32 && type_ != TokenType::kUint16)
    return Broken(
        *file_, index_format::kDtypeOffset, TypeText(type_),
        "4 (int32) or 8 (uint16): write the dataset again with one of them, or import its tokens as "
        "JSON lines");
  sequences_ = Load<uint64_t>(header + index_format::kSequencesOffset);
  document_indices_ = Load<uint64_t>(header + index_format::kDocumentsOffset);
  return CheckSize();
}

absl::Status Index::CheckSize() const {
  // Far above any dataset; the products below cannot overflow.
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (sequences_ > kMost)
    return Broken(*file_, index_format::kSequencesOffset, absl::StrCat(sequences_, " sequences"),
                  absl::StrCat("at most ", kMost));
  if (document_indices_ < 1 || document_indices_ > kMost)
    return Broken(*file_, index_format::kDocumentsOffset,
                  absl::StrCat(document_indices_, " document indices"), absl::StrCat("from 1 to ", kMost));
  const uint64_t expected = DocumentOffset(document_indices_);
  if (sequences_ > 0 && file_->size() == expected + sequences_)
    return Broken(*file_, expected, "a mode for each sequence, as multimodal datasets have",
                  "the end of the file: a dataset of text alone");
  if (file_->size() != expected)
    return Broken(*file_, file_->size(), "the end of the file",
                  absl::StrCat("it at ", expected, " for ", sequences_, " sequences and ", document_indices_,
                               " document indices"));
  return absl::OkStatus();
}

// Tokens of each sequence.
absl::StatusOr<std::vector<uint32_t>> Index::ReadSequences(const DataFile& data) const {
  std::vector<uint32_t> tokens(sequences_);
  PENSTOCK_RETURN_IF_ERROR(
      file_->ForEach<int32_t>(LengthOffset(0), sequences_, [&](uint64_t s, int32_t length) {
        tokens[s] = static_cast<uint32_t>(length);
        if (length >= 0) return absl::OkStatus();
        return Broken(*file_, LengthOffset(s), absl::StrCat("length ", length), "0 or more tokens");
      }));
  PENSTOCK_RETURN_IF_ERROR(CheckPointers(tokens, data));
  return tokens;
}

// One sequence lies behind the other, and the last ends with the data.
absl::Status Index::CheckPointers(const std::vector<uint32_t>& tokens, const DataFile& data) const {
  uint64_t end = 0;
  PENSTOCK_RETURN_IF_ERROR(
      file_->ForEach<int64_t>(PointerOffset(0), sequences_, [&](uint64_t s, int64_t pointer) {
        if (pointer < 0 || static_cast<uint64_t>(pointer) != end)
          return Broken(*file_, PointerOffset(s), absl::StrCat("pointer ", pointer),
                        absl::StrCat(end, ", the end of the sequence before"));
        end += uint64_t{tokens[s]} * BytesOf(type_);
        return absl::OkStatus();
      }));
  if (end == data.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", data.path(), "', offset ", data.size(),
                                                 ": found the end of the file, expected it at ", end, " as '",
                                                 file_->path(), "' says"));
}

absl::Status Index::ReadDocuments(const std::vector<uint32_t>& tokens) {
  lengths_.reserve(document_indices_ - 1);
  int64_t first = 0;
  PENSTOCK_RETURN_IF_ERROR(
      file_->ForEach<int64_t>(DocumentOffset(0), document_indices_, [&](uint64_t d, int64_t next) {
        const int64_t begin = std::exchange(first, next);
        if (d > 0) return AddDocument(d - 1, tokens, begin, next);
        if (next == 0) return absl::OkStatus();
        return Broken(*file_, DocumentOffset(0), absl::StrCat("document index ", next), "0");
      }));
  if (static_cast<uint64_t>(first) != sequences_)
    return Broken(*file_, DocumentOffset(document_indices_ - 1), absl::StrCat("document index ", first),
                  absl::StrCat(sequences_, ", the number of sequences"));
  return absl::OkStatus();
}

// The sequences from `first` to before `next`.
absl::Status Index::AddDocument(uint64_t document, const std::vector<uint32_t>& tokens, int64_t first,
                                int64_t next) {
  if (next < 0 || static_cast<uint64_t>(next) > sequences_)
    return Broken(*file_, DocumentOffset(document + 1), absl::StrCat("document index ", next),
                  absl::StrCat("at most ", sequences_, ", the number of sequences"));
  if (next != first + 1 && next != first + 2)
    return Broken(
        *file_, DocumentOffset(document + 1), absl::StrCat("document index ", next),
        absl::StrCat(first + 1, " or ", first + 2, ": a document has 1 or 2 sequences",
                     next > first + 2 ? ", and no sentences (preprocess without --split-sentences)" : ""));
  SampleLength length = {.input = 0, .target = tokens[next - 1]};
  if (next == first + 2) length.input = tokens[first];
  const uint64_t sum = uint64_t{length.input} + length.target;
  if (sum == 0 || sum > INT32_MAX)
    return Broken(*file_, LengthOffset(first), absl::StrCat("a document of ", sum, " tokens"),
                  "from 1 to 2147483647");
  if (document % kStride == 0) offsets_.push_back(next_offset_);
  next_offset_ += sum * BytesOf(type_);
  lengths_.push_back(length);
  return absl::OkStatus();
}

class FileDataset final : public IndexedDataset {
 public:
  FileDataset(Index index, DataFile data, std::optional<TokenWeights> weights)
      : index_(std::move(index)), data_(std::move(data)), weights_(std::move(weights)) {}

  size_t size() const override { return index_.documents(); }
  size_t bytes_per_token() const override { return BytesOf(index_.type()); }
  SampleLength Length(size_t sample) const override { return index_.Length(sample); }

  absl::StatusOr<std::vector<int32_t>> Tokens(size_t sample) const override {
    const SampleLength length = Length(sample);
    std::vector<int32_t> tokens(size_t{length.input} + length.target);
    const uint64_t offset = index_.Offset(sample);
    if (index_.type() == TokenType::kInt32) {
      PENSTOCK_RETURN_IF_ERROR(data_.Read(offset, tokens.size() * sizeof(int32_t), tokens.data()));
      return tokens;
    }
    const auto narrow = std::make_unique_for_overwrite<uint16_t[]>(tokens.size());
    PENSTOCK_RETURN_IF_ERROR(data_.Read(offset, tokens.size() * sizeof(uint16_t), narrow.get()));
    std::copy_n(narrow.get(), tokens.size(), tokens.begin());
    return tokens;
  }

  bool has_weights() const override { return weights_.has_value(); }

  absl::StatusOr<std::vector<float>> TargetWeights(size_t sample) const override {
    const SampleLength length = Length(sample);
    if (!weights_.has_value()) return std::vector<float>(length.target, 1);
    return weights_->Read(index_.Offset(sample) / BytesOf(index_.type()) + length.input, length.target);
  }

 private:
  const Index index_;
  const DataFile data_;
  const std::optional<TokenWeights> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<IndexedDataset>> IndexedDataset::Open(const std::string& prefix) {
  PENSTOCK_ASSIGN_OR_RETURN(const DataFile index_file, DataFile::Open(absl::StrCat(prefix, ".idx")));
  PENSTOCK_ASSIGN_OR_RETURN(DataFile data_file, DataFile::Open(absl::StrCat(prefix, ".bin")));
  PENSTOCK_ASSIGN_OR_RETURN(Index index, Index::Read(index_file, data_file));
  PENSTOCK_ASSIGN_OR_RETURN(std::optional<TokenWeights> weights,
                            TokenWeights::Open(prefix, index_file, index.tokens()));
  return std::make_unique<FileDataset>(std::move(index), std::move(data_file), std::move(weights));
}

}  // namespace penstock
